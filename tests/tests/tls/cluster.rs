//! A Redis Cluster that speaks TLS: its nodes announce the names that are in their certificates.

use std::time::Duration;

use lock_tests::{Clustered, Port, RedisOptions, queued};
use lockcore::{LockError, LockErrorKind, Locks, LocksBuilder};
use proto::LockName;
use redis::cmd;

use crate::authority::Authority;
use crate::setup::{Clients, Files, PASSWORD, soon};

/// The bound of the start of a Cluster, and of a connection to all of it.
const STARTED: Duration = Duration::from_secs(60);
/// A name of this machine, and its address: a certificate has one of the two.
const NAME: &str = "localhost";
const ADDRESS: &str = "127.0.0.1";

struct Guarded {
    clustered: Clustered,
    authority: Authority,
    _files: Files,
}

impl Guarded {
    /// Starts a Cluster whose servers announce `NAME`, with certificates for `certified`.
    async fn start(certified: &str, clients: Clients) -> Self {
        let authority = Authority::new();
        let identity = authority.sign(certified);
        let files = Files::new(&Port::free());
        let options =
            RedisOptions::default().arg("requirepass", PASSWORD).arg("masterauth", PASSWORD);
        let options = files.certify(options, &authority, &identity, &clients);
        let clustered = Clustered::start_with_tls(options, NAME).await;
        Self { clustered, authority, _files: files }
    }

    fn builder(&self) -> LocksBuilder {
        Locks::builder().tls_ca(&self.authority.pem)
    }

    fn url(&self, host: &str) -> String {
        self.clustered.url_with("rediss", &format!(":{PASSWORD}@"), host)
    }

    async fn connect(&self, builder: LocksBuilder) -> Locks {
        let connecting = builder.connect(self.url(NAME));
        let connected = tokio::time::timeout(STARTED, connecting).await.expect("in time");
        connected.expect("it is trusted")
    }

    async fn refusal(&self, builder: LocksBuilder, url: &str) -> LockError {
        let connecting = tokio::time::timeout(STARTED, builder.connect(url));
        let error = connecting.await.expect("in time").expect_err("it is refused");
        let text = format!("{error} {error:?}");
        assert!(!text.contains(PASSWORD) && !text.contains("PRIVATE KEY"), "{text}");
        error
    }
}

/// A lock is handed over, by a message.
async fn handed_over(near: &Locks, far: &Locks, key: &str) {
    let guard = soon(near.lock(key)).await.expect("free");
    let waiting = tokio::spawn(far.lock(key));
    queued(near, key, 1).await;
    soon(guard.release()).await.expect("held");
    let guard = soon(waiting).await.expect("no panic").expect("handed over");
    soon(guard.release()).await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_reached_by_the_names_that_they_announce_also_after_a_redirect_by_an_address() {
    let guarded = Guarded::start(NAME, Clients::Any).await;
    let near = guarded.connect(guarded.builder()).await;
    let far = guarded.connect(guarded.builder()).await;
    let keys: Vec<_> = (0..3).map(|primary| guarded.clustered.key_of(primary, 0)).collect();
    for key in &keys {
        handed_over(&near, &far, key).await;
    }
    // The redirect alone tells, and it has the address, of which there is no certificate.
    for number in 0..3 {
        let mut deny = cmd("ACL");
        deny.arg("SETUSER").arg("default").arg("-cluster|slots");
        guarded.clustered.raw(number).await.ask::<()>(&deny).await;
    }
    let slot = LockName::from(keys[0].as_str()).slot();
    let moving = guarded.clustered.move_slot(slot, 0, 1);
    tokio::time::timeout(STARTED, moving).await.expect("in time");
    handed_over(&near, &far, &keys[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_the_certificate_does_not_have_is_refused_and_told() {
    let guarded = Guarded::start(ADDRESS, Clients::Any).await;
    // The node that is asked first is the one in the URL; the names come from its answer.
    let error = guarded.refusal(guarded.builder(), &guarded.url(ADDRESS)).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(text.contains(NAME) && text.contains("not for this host name"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authorities_client_certificates_and_schemes_that_do_not_fit_are_refused_and_told() {
    let guarded = Guarded::start(NAME, Clients::Certified).await;
    let client = guarded.authority.sign("a client");
    let identified = |builder: LocksBuilder| builder.tls_identity(&client.certificate, &client.key);
    let locks = guarded.connect(identified(guarded.builder())).await;
    for primary in 0..3 {
        let guard = soon(locks.lock(guarded.clustered.key_of(primary, 0))).await.expect("free");
        soon(guard.release()).await.expect("held");
    }
    let plain = guarded.clustered.url_with("redis", "", NAME);
    for (builder, url, advice) in [
        (guarded.builder(), guarded.url(NAME), "tls_identity"),
        (identified(Locks::builder()), guarded.url(NAME), "tls_ca"),
        (Locks::builder(), plain, "rediss"),
    ] {
        let error = guarded.refusal(builder, &url).await;
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(advice), "no {advice} in: {error}");
    }
}
