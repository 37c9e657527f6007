//! The certificates and keys of a `Locks` that uses TLS.

use std::fmt;

/// Trusted authorities, and the certificate that identifies this client to servers, from the
/// provider of `LocksBuilder::certificates`. All in PEM format.
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
    /// Creates an empty set: trusts the system roots, and sends no certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts this authority, as `LocksBuilder::tls_ca` does; each further call adds another.
    #[must_use]
    pub fn ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.trust(pem.as_ref());
        self
    }

    /// Sends this certificate and chain to servers, as `LocksBuilder::tls_identity` does.
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

    /// Fills missing parts from `others`.
    pub(crate) fn or(self, others: &Self) -> Self {
        Self {
            ca: self.ca.or_else(|| others.ca.clone()),
            identity: self.identity.or_else(|| others.identity.clone()),
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are secret, and PEM is not readable anyway.
        f.write_str("Certificates(..)")
    }
}
