//! Sentinels that speak TLS, and have a password and a user of their own.

use lock_tests::{Port, RedisOptions, RedisServer, Watched, queued};
use lockcore::{LockError, LockErrorKind, Locks, LocksBuilder, Sentinels};

use crate::authority::Authority;
use crate::setup::{Clients, Files, PASSWORD, Setup, soon};
use crate::trusted::exercise;

/// Real sentinels, of which clients have to know a user and its password, and servers with another
/// one. Clients speak TLS with the sentinels.
struct Guarded {
    watched: Watched,
    authority: Authority,
    ports: [Port; 3],
    _files: Files,
}

const OF_SENTINELS: &str = "among-sentinels";
/// The sentinels' user of docs/deploy.md.
const USER: &str = "user watcher on >watch-over +sentinel|master +sentinel|get-master-addr-by-name";

impl Guarded {
    async fn start(clients: Clients) -> Self {
        let authority = Authority::new();
        let identity = authority.sign("127.0.0.1");
        let ports = [Port::free(), Port::free(), Port::free()];
        let files = Files::new(&ports[0]);
        let servers =
            RedisOptions::default().arg("requirepass", PASSWORD).arg("masterauth", PASSWORD);
        let more = format!(
            "sentinel auth-pass locks {PASSWORD}\nsentinel sentinel-pass {OF_SENTINELS}\n{USER}"
        );
        let of_sentinel = |number: usize| {
            let options = RedisOptions::default().arg("requirepass", OF_SENTINELS);
            files.speak_tls(options, &ports[number], &authority, &identity, &clients)
        };
        let watched = Watched::start_with(servers, &more, of_sentinel).await;
        Self { watched, authority, ports, _files: files }
    }

    fn builder(&self) -> LocksBuilder {
        Locks::builder().tls_ca(&self.authority.pem)
    }

    /// The sentinels, with these credentials.
    fn sentinels(&self, credentials: &str) -> Sentinels {
        let urls =
            self.ports.iter().map(|port| format!("rediss://{credentials}{}", port.address()));
        Sentinels::new("locks", urls).primary(format!("redis://:{PASSWORD}@primary"))
    }

    async fn refusal(&self, builder: LocksBuilder, sentinels: Sentinels) -> LockError {
        let error = soon(builder.connect(sentinels)).await.expect_err("it is refused");
        let text = format!("{error} {error:?}");
        for secret in [PASSWORD, OF_SENTINELS, "watch-over", "PRIVATE KEY"] {
            assert!(!text.contains(secret), "{text}");
        }
        error
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_with_tls_and_a_user_of_their_own_are_asked_again_when_the_primary_dies() {
    let mut guarded = Guarded::start(Clients::Any).await;
    let connect = || guarded.builder().connect(guarded.sentinels("watcher:watch-over@"));
    let near = soon(connect()).await.expect("it is let in");
    let far = soon(connect()).await.expect("it is let in");
    let guard = soon(near.lock("k")).await.expect("free");
    let waiting = tokio::spawn(far.lock("k"));
    queued(&near, "k", 1).await;
    guarded.watched.in_step().await;
    guarded.watched.server(0).kill();
    guarded.watched.promoted(0).await;
    let guard_at_last = async {
        // It goes on in the background if the connection is replaced just now.
        let _ = guard.release().await;
        waiting.await.expect("no panic").expect("granted")
    };
    let limit = std::time::Duration::from_secs(60);
    let guard = tokio::time::timeout(limit, guard_at_last).await.expect("its turn comes");
    soon(guard.release()).await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_refuse_us_are_named_with_what_is_wrong() {
    let guarded = Guarded::start(Clients::Any).await;
    for credentials in ["", "watcher:wrong@", ":wrong@"] {
        let error = guarded.refusal(guarded.builder(), guarded.sentinels(credentials)).await;
        assert_eq!(error.kind(), LockErrorKind::Denied, "{credentials}: {error}");
        let port = guarded.ports[0].number().to_string();
        assert!(error.to_string().contains(&port), "{error}");
    }
    let right = || guarded.sentinels("watcher:watch-over@");
    let error = guarded.refusal(Locks::builder(), right()).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("tls_ca"), "{error}");

    // The primary has other credentials.
    let wrong = right().primary("redis://:wrong@primary");
    let error = guarded.refusal(guarded.builder(), wrong).await;
    assert_eq!(error.kind(), LockErrorKind::Denied, "{error}");

    // One side speaks TLS and the other plain text, and the other way round.
    let plain = guarded.ports.iter().map(|port| format!("redis://{}", port.address()));
    let error = guarded.refusal(Locks::builder(), Sentinels::new("locks", plain)).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("write rediss:// in place"), "{error}");
    let url = guarded.watched.url().replace("redis+", "rediss+");
    let error = soon(guarded.builder().connect(url)).await.expect_err("no TLS is spoken there");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("write redis:// in place"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_opens_sentinels_that_ask_for_one() {
    let guarded = Guarded::start(Clients::Certified).await;
    let sentinels = || guarded.sentinels("watcher:watch-over@");
    let error = guarded.refusal(guarded.builder(), sentinels()).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("tls_identity"), "{error}");
    let client = guarded.authority.sign("a client");
    let builder = guarded.builder().tls_identity(&client.certificate, &client.key);
    let locks = soon(builder.connect(sentinels())).await.expect("it is known");
    soon(soon(locks.lock("k")).await.expect("free").release()).await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_url_has_tls_for_the_sentinels_and_the_primary() {
    let setup = Setup::start();
    let port = Port::free();
    let files = Files::new(&port);
    let identity = setup.authority.sign("127.0.0.1");
    let lines = format!(
        "sentinel monitor locks 127.0.0.1 {} 1\nsentinel auth-pass locks {PASSWORD}\n",
        setup.port.number()
    );
    let options = RedisServer::options().sentinel(lines).arg("tls-replication", "yes");
    let _sentinel =
        files.speak_tls(options, &port, &setup.authority, &identity, &Clients::Any).start();
    // The password is the primary's: a sentinel without one is given none.
    let url = format!("rediss+sentinel://:{PASSWORD}@{}/locks", port.address());
    let near = soon(setup.builder().connect(&url)).await.expect("it is trusted");
    let far = soon(setup.builder().connect(&url)).await.expect("it is trusted");
    exercise(&near, &far, &setup).await;
}

#[tokio::test]
async fn certificates_are_refused_where_neither_sentinels_nor_primary_speak_tls() {
    let authority = Authority::new();
    let plain = Sentinels::new("locks", ["redis://127.0.0.1:1"]);
    let builder = || Locks::builder().tls_ca(&authority.pem);
    let error = builder().connect(plain.clone()).await.expect_err("without an effect");
    assert_eq!(error.kind(), LockErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("rediss://"), "{error}");
    // The certificates are for the primary, which is not reached: no sentinel is there.
    let plain = plain.primary("rediss://primary");
    let error = builder().connect(plain).await.expect_err("no sentinel is there");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
}
