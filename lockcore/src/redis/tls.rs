//! Whom we trust over TLS, and who we say we are.

use redis::{ConnectionInfo, RedisError};

use crate::error::LockError;
#[cfg(feature = "tls")]
use crate::error::LockErrorKind;

/// What a connection over TLS needs beyond its URL. Nothing by default: the system's roots.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    #[cfg(feature = "tls")]
    ca: Option<Vec<u8>>,
    #[cfg(feature = "tls")]
    identity: Option<redis::ClientTlsConfig>,
}

#[cfg(feature = "tls")]
impl Certificates {
    pub(crate) fn trust(&mut self, ca: &[u8]) {
        self.ca.get_or_insert_default().extend_from_slice(ca);
    }

    pub(crate) fn identify(&mut self, certificate: &[u8], key: &[u8]) {
        self.identity = Some(redis::ClientTlsConfig {
            client_cert: certificate.to_vec(),
            client_key: key.to_vec(),
        });
    }

    /// `info` with these certificates.
    pub(super) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, LockError> {
        let is_tls = matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. });
        if is_tls {
            choose_provider();
        }
        if self.ca.is_none() && self.identity.is_none() {
            return Ok(info);
        }
        if !is_tls {
            // Without TLS nobody would look at them, and nobody would notice.
            return Err(invalid("certificates are given, but not a rediss:// URL"));
        }
        if self.ca.as_ref().is_some_and(|pem| !holds_certificate(pem)) {
            return Err(invalid("tls_ca holds no certificate: give it as PEM"));
        }
        let certificates = redis::TlsCertificates {
            client_tls: self.identity.clone(),
            root_cert: self.ca.clone(),
        };
        match redis::Client::build_with_tls(info, certificates) {
            Ok(client) => Ok(client.get_connection_info().clone()),
            Err(error) => Err(invalid(&format!("a certificate or key cannot be read: {error}"))),
        }
    }
}

#[cfg(not(feature = "tls"))]
impl Certificates {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "with TLS it has work to do")]
    pub(super) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, LockError> {
        Ok(info)
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificates(..)")
    }
}

/// rustls panics if an application builds several kinds of cryptography in and has chosen none.
#[cfg(feature = "tls")]
fn choose_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error: somebody has chosen meanwhile.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(feature = "tls")]
fn holds_certificate(pem: &[u8]) -> bool {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    pem.windows(BEGIN.len()).any(|window| window == BEGIN)
}

#[cfg(feature = "tls")]
fn invalid(detail: &str) -> LockError {
    LockError::with_detail(LockErrorKind::InvalidOption, detail)
}

/// What to do about a connection that failed because of TLS.
pub(super) fn advice(error: &RedisError) -> Option<&'static str> {
    if cfg!(not(feature = "tls")) {
        let is_config = error.kind() == redis::ErrorKind::InvalidClientConfig;
        let names_tls = is_config && error.to_string().to_lowercase().contains("tls");
        return names_tls.then_some(NEEDS_FEATURE);
    }
    let text = error.to_string();
    let has = |part| text.contains(part);
    if has("UnknownIssuer") {
        Some("no CA that is trusted here signed it; trust yours with LocksBuilder::tls_ca")
    } else if has("CertificateRequired") || has("HandshakeFailure") {
        Some("the server may want a client certificate: LocksBuilder::tls_identity")
    } else {
        None
    }
}

pub(super) const NEEDS_FEATURE: &str = "TLS (rediss://) needs the feature `tls` of lockcore";

#[cfg(all(test, not(feature = "tls")))]
mod tests {
    use std::time::Duration;

    use deadpool_redis::{Config, ConnectionAddr, ConnectionInfo};

    use super::*;
    use crate::error::LockErrorKind;
    use crate::redis::Connector;

    const TIMEOUT: Duration = Duration::from_secs(2);

    #[test]
    fn a_url_that_wants_tls_is_told_of_the_feature() {
        for url in ["rediss://:hunter2@localhost/", "valkeys://:hunter2@localhost/"] {
            let error = Connector::from_url(url, &Certificates::default(), TIMEOUT).unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::InvalidOption);
            let text = error.to_string();
            assert!(text.contains("feature `tls`") && !text.contains("hunter2"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_configuration_that_wants_tls_is_told_of_the_feature() {
        let addr = ConnectionAddr::TcpTls { host: "::1".into(), port: 1, insecure: false };
        let config = Config::from_connection_info(ConnectionInfo { addr, ..Default::default() });
        let connector = Connector::from_config(config, &Certificates::default(), TIMEOUT).unwrap();
        for error in [
            connector.commands().await.map(drop).unwrap_err(),
            connector.subscription().await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind, LockErrorKind::InvalidOption);
            assert!(error.detail.contains("feature `tls`"), "{}", error.detail);
        }
    }

    #[test]
    fn a_url_that_is_none_is_not_told_of_tls() {
        let error =
            Connector::from_url("http://h/", &Certificates::default(), TIMEOUT).unwrap_err();
        assert!(!error.to_string().contains("feature"), "{error}");
    }
}
