//! TLS: which servers are trusted, and which client certificate they get.

#[cfg(feature = "tls")]
use std::sync::{Arc, Mutex, PoisonError};

use redis::{ConnectionAddr, ConnectionInfo, RedisError};
#[cfg(feature = "tls")]
use rustls::pki_types::pem::{self, PemObject as _};
#[cfg(feature = "tls")]
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificates::Certificates;
use crate::error::ClientError;
#[cfg(feature = "tls")]
use crate::error::ClientErrorKind;
#[cfg(feature = "tls")]
use crate::provider::{Provided, Provider};

/// The certificates of TLS connections: fixed certificates, and a provider of current certificates.
/// The authorities or the client certificate from the provider replace the fixed ones.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only TLS uses certificates"))]
    pub(crate) given: Certificates,
    #[cfg(feature = "tls")]
    pub(crate) provider: Provider<Certificates>,
    /// The last connection's certificates, with the connector that equal certificates share.
    #[cfg(feature = "tls")]
    used: Arc<Mutex<Certificates>>,
}

#[cfg(feature = "tls")]
impl Tls {
    /// Trusts this certificate authority (PEM) instead of the authorities of the operating system.
    /// Each further call adds another authority.
    pub fn trust(&mut self, ca: &[u8]) {
        self.given.trust(ca);
    }

    /// Sends this client certificate, followed by its chain (PEM), to servers. `key` is the
    /// certificate's private key (PEM).
    pub fn identify(&mut self, certificate: &[u8], key: &[u8]) {
        self.given.identify(certificate, key);
    }

    /// Sets a callback that returns the current certificates, called for each new connection. If
    /// they cannot be used, the call counts as failed, and the certificates of the last successful
    /// call stay in use.
    pub fn provide(
        &mut self,
        provide: impl Fn() -> Provided<Certificates> + Send + Sync + 'static,
    ) {
        self.provider = Provider::new("certificates", move || {
            let certificates = provide()?;
            certificates.check()?;
            Ok(certificates)
        });
    }

    /// Returns the connection settings `info` with the fixed certificates. Fails if they cannot be
    /// read, or if certificates or a provider are set and the address does not use TLS.
    pub(crate) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, ClientError> {
        if self.provider.is_set() && !is_tls(info.addr()) {
            return Err(invalid(WITHOUT_TLS));
        }
        self.given.apply(info)
    }

    /// Requests the current certificates from the provider. Returns the connection settings `info`
    /// with these certificates, and the certificates themselves. Without a provider, or if the
    /// address does not use TLS, returns `info` unchanged and the fixed certificates.
    pub(crate) async fn now(
        &self,
        info: ConnectionInfo,
    ) -> Result<(ConnectionInfo, Certificates), ClientError> {
        if !is_tls(info.addr()) {
            return Ok((info, self.given.clone()));
        }
        let Some(provided) = self.provider.current().await? else {
            return Ok((info, self.shared(self.given.clone())));
        };
        let certificates = self.shared(provided.or(&self.given));
        let info = certificates.apply(info).map_err(|error| {
            let detail = format!("invalid option: {}", error.detail);
            ClientError::refused(ClientErrorKind::InvalidOption, detail)
        })?;
        Ok((info, certificates))
    }

    /// Returns these certificates, with the last connection's connector if its certificates
    /// were the same.
    fn shared(&self, certificates: Certificates) -> Certificates {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if !used.are(&certificates) {
            *used = certificates;
        }
        used.clone()
    }
}

#[cfg(feature = "tls")]
impl Certificates {
    /// Fails if no connection can be opened with these certificates: they cannot be read, or the
    /// private key does not match. Called for each result of the provider's callback.
    fn check(&self) -> Provided<()> {
        if self.ca.as_ref().is_some_and(|pem| !holds_certificate(pem)) {
            return Err(NO_CERTIFICATE.into());
        }
        choose_provider();
        self.new_connector()?;
        Ok(())
    }

    /// Returns the TLS connector with these certificates, which is created for the first
    /// connection. The errors are those of [`new_connector`](Self::new_connector).
    pub(crate) async fn connector(&self) -> Result<tokio_rustls::TlsConnector, RedisError> {
        let mut connector = self.connector.lock().await;
        if let Some(connector) = &*connector {
            return Ok(connector.clone());
        }
        let certificates = self.clone();
        // Reads the files with the operating system's authorities.
        let created = tokio::task::spawn_blocking(move || certificates.new_connector()).await;
        Ok(connector.insert(created.map_err(std::io::Error::from)??).clone())
    }

    /// Discards the connector if the authorities have refused a server's certificate, because the
    /// operating system's authorities may have changed since they were read.
    pub(crate) async fn note_failed(&self, error: &std::io::Error) {
        let error = error.get_ref().and_then(|error| error.downcast_ref());
        if matches!(error, Some(rustls::Error::InvalidCertificate(_))) {
            *self.connector.lock().await = None;
        }
    }

    /// Creates a TLS connector with these certificates. Fails if a certificate or key cannot be
    /// read, or if the key does not match.
    fn new_connector(&self) -> Result<tokio_rustls::TlsConnector, RedisError> {
        let refused = |error: pem::Error| unusable(&error);
        let mut roots = rustls::RootCertStore::empty();
        match &self.ca {
            Some(pem) => {
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    roots.add(certificate.map_err(refused)?)?;
                }
            }
            None => {
                let native = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(of_system(native)?);
            }
        }
        let config = rustls::ClientConfig::builder().with_root_certificates(roots);
        let config = match &self.identity {
            None => config.with_no_client_auth(),
            Some(redis::ClientTlsConfig { client_cert, client_key }) => {
                let chain = CertificateDer::pem_slice_iter(client_cert).collect::<Result<_, _>>();
                let key = PrivateKeyDer::from_pem_slice(client_key).map_err(refused)?;
                let chain = chain.map_err(refused)?;
                // Key and certificate may not match.
                config.with_client_auth_cert(chain, key).map_err(|error| unusable(&error))?
            }
        };
        Ok(Arc::new(config).into())
    }

    /// Returns the connection settings `info` with these certificates. Fails if they cannot be
    /// read, or if the address does not use TLS.
    pub(crate) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, ClientError> {
        let is_tls = is_tls(info.addr());
        if is_tls {
            choose_provider();
        }
        if self.ca.is_none() && self.identity.is_none() {
            return Ok(info);
        }
        if !is_tls {
            return Err(invalid(WITHOUT_TLS));
        }
        if self.ca.as_ref().is_some_and(|pem| !holds_certificate(pem)) {
            return Err(invalid(NO_CERTIFICATE));
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
impl Tls {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "used with TLS")]
    pub(crate) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, ClientError> {
        Ok(info)
    }

    #[expect(clippy::unused_async, reason = "async with TLS")]
    pub(crate) async fn now(
        &self,
        info: ConnectionInfo,
    ) -> Result<(ConnectionInfo, Certificates), ClientError> {
        Ok((info, Certificates::default()))
    }
}

/// The error text if certificates are set for a connection without TLS, where they would silently
/// have no effect.
#[cfg(feature = "tls")]
const WITHOUT_TLS: &str = "certificates are set, but the URL is not rediss://";
#[cfg(feature = "tls")]
const NO_CERTIFICATE: &str = "the authority (tls_ca) contains no certificate: pass it as PEM";

pub(crate) fn is_tls(address: &ConnectionAddr) -> bool {
    matches!(address, ConnectionAddr::TcpTls { .. })
}

/// Returns the authorities of the operating system that could be loaded. An unreadable file among
/// them is no reason to refuse the servers of the others. Fails if none could be loaded.
#[cfg(feature = "tls")]
fn of_system(
    mut native: rustls_native_certs::CertificateResult,
) -> Result<Vec<CertificateDer<'static>>, RedisError> {
    match native.errors.pop() {
        Some(error) if native.certs.is_empty() => Err(std::io::Error::other(error).into()),
        _ => Ok(native.certs),
    }
}

/// Installs a default cryptography provider, unless the application has done so. Otherwise rustls
/// panics if several providers are enabled.
#[cfg(feature = "tls")]
fn choose_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if another thread has installed one meanwhile.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(feature = "tls")]
fn unusable(error: &dyn std::error::Error) -> RedisError {
    let kind = redis::ErrorKind::InvalidClientConfig;
    RedisError::from((kind, "a certificate or key cannot be used", error.to_string()))
}

#[cfg(feature = "tls")]
fn holds_certificate(pem: &[u8]) -> bool {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    pem.windows(BEGIN.len()).any(|window| window == BEGIN)
}

#[cfg(feature = "tls")]
fn invalid(detail: &str) -> ClientError {
    ClientError::refused(ClientErrorKind::InvalidOption, detail)
}

/// Returns the remedy to append to `error` if it means that a URL needs TLS, and the feature `tls`
/// is disabled; otherwise `None`.
pub(crate) fn advice_on_url(error: &RedisError) -> Option<&'static str> {
    if cfg!(feature = "tls") {
        return None;
    }
    let is_config = error.kind() == redis::ErrorKind::InvalidClientConfig;
    let names_tls = is_config && error.to_string().to_lowercase().contains("tls");
    names_tls.then_some(NEEDS_FEATURE)
}

/// Returns the remedy for a failed connection to `address` if TLS may be the cause, such as a port
/// that does not speak TLS; otherwise `None`.
pub(crate) fn advice(error: &RedisError, address: &ConnectionAddr) -> Option<&'static str> {
    match address {
        ConnectionAddr::TcpTls { .. } if error.is_timeout() => Some(PERHAPS_PLAIN),
        ConnectionAddr::TcpTls { .. } => {
            // With TLS 1.3 the client is done before the server checks the client certificate: the
            // first write may fail before the server's alert is read.
            let hung_up = error.is_connection_dropped() && !error.is_connection_refusal();
            (advice_on_url(error).or_else(|| of_handshake(error)))
                .or_else(|| hung_up.then_some(PERHAPS_CLIENT_CERTIFICATE))
        }
        // A TLS alert is no Redis reply.
        ConnectionAddr::Tcp(..) if error.kind() == redis::ErrorKind::Parse => Some(PERHAPS_TLS),
        // A TLS server may also close the connection on the first plain bytes, without a reply.
        ConnectionAddr::Tcp(..) => {
            let hung_up = error.is_connection_dropped() && !error.is_connection_refusal();
            hung_up.then_some(PERHAPS_TLS_OR_A_PROXY)
        }
        _ => None,
    }
}

const PERHAPS_CLIENT_CERTIFICATE: &str =
    "the server may require a client certificate, or refuse ours: LocksBuilder::tls_identity";

/// Returns the remedy for a connection attempt that timed out because the server sent nothing. For
/// a TLS address, the server may not use TLS: it takes the handshake for an incomplete command, and
/// waits for more. `None` for other addresses.
pub(crate) fn advice_if_silent(address: &ConnectionAddr) -> Option<&'static str> {
    matches!(address, ConnectionAddr::TcpTls { .. }).then_some(PERHAPS_PLAIN)
}

const PERHAPS_TLS: &str = "if this port speaks TLS, write rediss:// in place of redis://";
const PERHAPS_TLS_OR_A_PROXY: &str = "the server sent nothing: if this port speaks TLS, write \
    rediss:// in place of redis://; a proxy may also do this on an unknown command";
const PERHAPS_PLAIN: &str = "if this port does not speak TLS, write redis:// in place of rediss://";

#[cfg(not(feature = "tls"))]
fn of_handshake(_: &RedisError) -> Option<&'static str> {
    None
}

/// Returns whose certificate made a handshake fail, and the remedy; `None` if that is unknown. The
/// rustls error says what is wrong, but not whose certificate it is.
#[cfg(feature = "tls")]
fn of_handshake(error: &RedisError) -> Option<&'static str> {
    use std::error::Error as StdError;

    use rustls::{AlertDescription as Alert, CertificateError as Theirs, Error};

    // redis-rs shares the socket error, which wraps the rustls error.
    let shared = StdError::source(error)?.downcast_ref::<Arc<dyn StdError + Send + Sync>>()?;
    let source = shared.downcast_ref::<std::io::Error>()?.get_ref()?;
    match source.downcast_ref::<Error>()? {
        Error::InvalidCertificate(theirs) => match theirs {
            Theirs::UnknownIssuer => Some(
                "no trusted authority signed the server's certificate; trust yours with \
                 LocksBuilder::tls_ca",
            ),
            Theirs::NotValidForName | Theirs::NotValidForNameContext { .. } => Some(ANOTHER_NAME),
            Theirs::Expired | Theirs::ExpiredContext { .. } => {
                Some("the server's certificate has expired")
            }
            Theirs::NotValidYet | Theirs::NotValidYetContext { .. } => {
                Some("the server's certificate is not valid yet: compare the clocks")
            }
            _ => Some("the server's certificate is not valid"),
        },
        // The server refuses this client with an alert.
        Error::AlertReceived(alert) => match alert {
            Alert::CertificateRequired | Alert::HandshakeFailure => {
                Some("the server may require a client certificate: LocksBuilder::tls_identity")
            }
            Alert::UnknownCA => Some(
                "the server does not trust the authority that signed our client certificate \
                 (LocksBuilder::tls_identity)",
            ),
            Alert::CertificateExpired => Some(
                "the server reports that our client certificate has expired \
                 (LocksBuilder::tls_identity)",
            ),
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::AccessDenied
            | Alert::DecryptError => {
                Some("the server refuses our client certificate (LocksBuilder::tls_identity)")
            }
            _ => None,
        },
        Error::InvalidMessage(_) => Some(PERHAPS_PLAIN),
        _ => None,
    }
}

/// Remedy text if the server's certificate is for another host name than the name in the URL or
/// from the sentinels.
pub(crate) const ANOTHER_NAME: &str = "the server's certificate is not for this host name";

pub(crate) const NEEDS_FEATURE: &str = "TLS (rediss://) needs the feature `tls` of lockcore";

#[cfg(all(test, feature = "tls"))]
mod tests {
    use redis::IntoConnectionInfo as _;
    use rustls::{HandshakeKind, ServerConfig};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// Connects to a server, and returns the handshake kind.
    async fn handshake(certificates: &Certificates, server: &TlsAcceptor) -> HandshakeKind {
        let (ours, theirs) = duplex(1 << 14);
        let accepting = server.accept(theirs);
        let serving = tokio::spawn(async move {
            let mut stream = accepting.await.expect("a client");
            stream.write_all(b"x").await.expect("it is open");
            stream.flush().await.expect("it is open");
            stream
        });
        let connector = certificates.connector().await.expect("they can be used");
        let name = "localhost".try_into().expect("a name");
        let mut stream = connector.connect(name, ours).await.expect("it is trusted");
        // The server sends its sessions in front of this.
        stream.read_exact(&mut [0]).await.expect("it is open");
        let kind = stream.get_ref().1.handshake_kind().expect("it is complete");
        serving.await.expect("no panic");
        kind
    }

    // A server spends most of a connection on a full handshake's signature.
    #[tokio::test]
    async fn connections_with_the_same_certificates_resume_a_session() {
        choose_provider();
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
        let key = PrivateKeyDer::from_pem_slice(signed.signing_key.serialize_pem().as_bytes());
        let server = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key.expect("a key"))
            .expect("they match");
        let server = TlsAcceptor::from(Arc::new(server));
        let pem = signed.cert.pem();
        let (mut given, mut provided) = (Tls::default(), Tls::default());
        given.trust(pem.as_bytes());
        provided.provide(move || Ok(Certificates::new().ca(&pem)));
        for tls in [given, provided] {
            let mut kinds = Vec::new();
            for _ in 0..2 {
                let info = "rediss://localhost".into_connection_info().expect("a URL");
                let (_, certificates) = tls.now(info).await.expect("they can be used");
                kinds.push(handshake(&certificates, &server).await);
            }
            assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed]);
        }
    }

    #[tokio::test]
    async fn the_authorities_are_read_again_after_they_have_refused_a_certificate() {
        let refused = rustls::CertificateError::UnknownIssuer.into();
        for (error, is_kept) in [(rustls::Error::DecryptError, true), (refused, false)] {
            choose_provider();
            let certificates = Certificates::default();
            certificates.connector().await.expect("those of the system");
            certificates.note_failed(&std::io::Error::other(error)).await;
            assert_eq!(certificates.connector.lock().await.is_some(), is_kept);
        }
    }

    fn found(count: usize, errors: &[&'static str]) -> rustls_native_certs::CertificateResult {
        let mut found = rustls_native_certs::CertificateResult::default();
        found.certs = vec![CertificateDer::from(Vec::new()); count];
        found.errors = errors
            .iter()
            .map(|context| rustls_native_certs::Error {
                context,
                kind: rustls_native_certs::ErrorKind::Os("not readable".into()),
            })
            .collect();
        found
    }

    #[test]
    fn an_authority_that_cannot_be_read_matters_only_if_there_is_no_other() {
        assert_eq!(of_system(found(2, &["one of three"])).expect("two are there").len(), 2);
        assert_eq!(of_system(found(0, &[])).expect("nothing failed").len(), 0);
        let error = of_system(found(0, &["the bundle"])).expect_err("none could be read");
        assert!(error.to_string().contains("the bundle"), "{error}");
    }
}
