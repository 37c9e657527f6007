//! The certificates and keys of a `Locks` that speaks TLS.

use std::fmt;

/// The authorities that are trusted, and the certificate by which servers know this client, from
/// the provider of `LocksBuilder::certificates`. All are PEM.
#[derive(Clone, Default)]
#[cfg_attr(not(feature = "tls"), expect(unreachable_pub, reason = "without TLS it is empty"))]
pub struct Certificates {
    #[cfg(feature = "tls")]
    pub(crate) ca: Option<Vec<u8>>,
    #[cfg(feature = "tls")]
    pub(crate) identity: Option<redis::ClientTlsConfig>,
}

#[cfg(feature = "tls")]
impl Certificates {
    /// Neither: the roots of the operating system are trusted, and no certificate is shown.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts this authority, as `LocksBuilder::tls_ca` does; several where it is called again.
    #[must_use]
    pub fn ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.trust(pem.as_ref());
        self
    }

    /// Shows this certificate, with its chain, as `LocksBuilder::tls_identity` does.
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

    /// The same, with the parts of `others` where it has none.
    pub(crate) fn or(self, others: &Self) -> Self {
        Self {
            ca: self.ca.or_else(|| others.ca.clone()),
            identity: self.identity.or_else(|| others.identity.clone()),
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are secret, and nobody reads PEM.
        f.write_str("Certificates(..)")
    }
}
