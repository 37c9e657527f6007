//! A server with two ports: one for TLS, and a plain one for the tests themselves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_tests::{Port, Raw, RedisOptions, RedisServer};
use lockcore::{LockError, Locks, LocksBuilder};

use crate::authority::{Authority, Identity};

/// The bound of anything that happens at once, on a machine that is busy with other things.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) const PASSWORD: &str = "hunter2";

pub(crate) struct Setup {
    pub(crate) authority: Authority,
    pub(crate) server: RedisServer,
    pub(crate) port: Port,
    _files: Files,
}

/// Whether clients have to show a certificate.
#[derive(PartialEq, Eq)]
pub(crate) enum Clients {
    Any,
    Certified,
}

impl Setup {
    /// Starts a server whose certificate says that it is 127.0.0.1.
    pub(crate) fn start() -> Self {
        let authority = Authority::new();
        let identity = authority.sign("127.0.0.1");
        Self::with(authority, &identity, Clients::Any)
    }

    pub(crate) fn with(authority: Authority, identity: &Identity, clients: Clients) -> Self {
        let port = Port::free();
        let files = Files::new(&port);
        let options = RedisServer::options().arg("requirepass", PASSWORD);
        let server = files.speak_tls(options, &port, &authority, identity, &clients).start();
        Self { authority, server, port, _files: files }
    }

    pub(crate) fn url(&self) -> String {
        self.url_to("rediss", "127.0.0.1")
    }

    pub(crate) fn url_to(&self, scheme: &str, host: &str) -> String {
        format!("{scheme}://:{PASSWORD}@{host}:{}/", self.port.number())
    }

    /// A builder that trusts the server's authority.
    pub(crate) fn builder(&self) -> LocksBuilder {
        Locks::builder().tls_ca(&self.authority.pem)
    }

    pub(crate) async fn connect(&self) -> Locks {
        soon(self.builder().connect(self.url())).await.expect("it is trusted")
    }

    /// Opens a connection past TLS, for looking on.
    pub(crate) async fn raw(&self) -> Raw {
        Raw::connect(&self.server.url()).await
    }

    /// Returns the error of a client that may not or cannot connect.
    pub(crate) async fn refusal(&self, builder: LocksBuilder, url: &str) -> LockError {
        let error = soon(builder.connect(url)).await.expect_err("it is refused");
        let text = format!("{error} {error:?}");
        assert!(!text.contains(PASSWORD) && !text.contains("PRIVATE KEY"), "{text}");
        error
    }
}

pub(crate) async fn soon<T>(future: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(SOON, future.into_future()).await.expect("at once")
}

/// A directory for the server's files, which is removed with the test.
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new(port: &Port) -> Self {
        let name = format!("lock-tests-tls-{}-{}", std::process::id(), port.number());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
        Self(directory)
    }

    /// The options for a server, or a sentinel, that speaks TLS at `port`, beside its plain one.
    pub(crate) fn speak_tls(
        &self,
        options: RedisOptions,
        port: &Port,
        authority: &Authority,
        identity: &Identity,
        clients: &Clients,
    ) -> RedisOptions {
        self.certify(options, authority, identity, clients)
            .arg("tls-port", &port.number().to_string())
    }

    /// The options for a server with this identity.
    pub(crate) fn certify(
        &self,
        options: RedisOptions,
        authority: &Authority,
        identity: &Identity,
        clients: &Clients,
    ) -> RedisOptions {
        options
            .arg("tls-ca-cert-file", &self.write("ca", &authority.pem))
            .arg("tls-cert-file", &self.write("certificate", &identity.certificate))
            .arg("tls-key-file", &self.write("key", &identity.key))
            .arg("tls-auth-clients", if *clients == Clients::Certified { "yes" } else { "no" })
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the temporary directory can be written");
        Path::to_str(&path).expect("the path is text").to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
