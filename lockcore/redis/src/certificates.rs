//! The certificates and private keys for TLS connections.

use std::fmt;
#[cfg(feature = "tls")]
use std::sync::Arc;

#[cfg(feature = "tls")]
use tokio::sync::Mutex;

/// The certificates for TLS connections, in PEM format: the trusted certificate authorities, and
/// the client certificate. Returned by the provider set with `LocksBuilder::certificates`.
#[derive(Clone, Default)]
#[cfg_attr(not(feature = "tls"), expect(unreachable_pub, reason = "without TLS it is empty"))]
pub struct Certificates {
    #[cfg(feature = "tls")]
    pub(crate) ca: Option<Vec<u8>>,
    #[cfg(feature = "tls")]
    pub(crate) identity: Option<redis::ClientTlsConfig>,
    /// The connector with these certificates, which all connections share, so that they resume TLS
    /// sessions. Empty before the first connection.
    #[cfg(feature = "tls")]
    pub(crate) connector: Arc<Mutex<Option<tokio_rustls::TlsConnector>>>,
}

#[cfg(feature = "tls")]
impl Certificates {
    /// Creates an empty set. If no authority or no client certificate is added, the connections use
    /// what is set on `LocksBuilder`. If nothing is set there either, they trust the authorities of
    /// the operating system, and send no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts this certificate authority (PEM) instead of the authorities of the operating system.
    /// Each further call adds another authority.
    #[must_use]
    pub fn ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.trust(pem.as_ref());
        self
    }

    /// Sends this client certificate, followed by its chain (PEM), to servers. `key` is the
    /// certificate's private key (PEM).
    #[must_use]
    pub fn identity(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.identify(certificate.as_ref(), key.as_ref());
        self
    }

    pub(crate) fn trust(&mut self, ca: &[u8]) {
        self.ca.get_or_insert_default().extend_from_slice(ca);
    }

    pub(crate) fn identify(&mut self, certificate: &[u8], key: &[u8]) {
        self.identity = Some(redis::ClientTlsConfig {
            client_cert: certificate.to_vec(),
            client_key: key.to_vec(),
        });
    }

    /// Returns these certificates, completed from `others`, the certificates set on `LocksBuilder`:
    /// if the authorities or the client certificate are missing here, they are taken from there.
    pub(crate) fn or(self, others: &Self) -> Self {
        Self {
            ca: self.ca.or_else(|| others.ca.clone()),
            identity: self.identity.or_else(|| others.identity.clone()),
            connector: Arc::default(),
        }
    }

    /// Returns true if both are the same certificates.
    pub(crate) fn are(&self, others: &Self) -> bool {
        self.parts() == others.parts()
    }

    fn parts(&self) -> (Option<&[u8]>, Option<[&[u8]; 2]>) {
        let identity = self.identity.as_ref();
        (self.ca.as_deref(), identity.map(|it| [&*it.client_cert, &*it.client_key]))
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are secret, and PEM is not readable anyway.
        f.write_str("Certificates(..)")
    }
}
