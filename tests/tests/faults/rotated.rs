//! Passwords that change while locks are held and waited for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_tests::{
    Clustered, Raw, RedisOptions, RedisServer, Watched, eventually, followers, queued,
};
use lockcore::{Credentials, HoldState, LockErrorKind, Locks, LocksBuilder};
use redis::cmd;

use crate::common::{SOON, granted, release, soon};

/// The password of a provider, as in a program: another task replaces it.
#[derive(Clone)]
struct Password(Arc<Mutex<String>>);

impl Password {
    fn new(password: &str) -> Self {
        Self(Arc::new(Mutex::new(password.to_owned())))
    }

    fn replace(&self, password: &str) {
        password.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn builder(&self) -> LocksBuilder {
        let password = self.clone();
        Locks::builder().credentials(move || {
            let now = password.0.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(Credentials::new("app", &*now))
        })
    }
}

async fn set_user(redis: &mut Raw, rules: &[&str]) {
    redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("app").arg(rules)).await;
}

/// The password of all other users: without a provider there is no way in.
const OTHERS: &str = "of-others";

fn guarded() -> RedisServer {
    RedisServer::options().arg("requirepass", OTHERS).start()
}

/// The server's URL without a password.
fn url(server: &RedisServer) -> String {
    format!("redis://{}/", server.address())
}

const ALL: [&str; 4] = ["on", "allkeys", "allchannels", "+@all"];

/// Kills all connections of `app`, both of each node.
async fn kill_connections(redis: &mut Raw) {
    let killed: usize = redis.ask(cmd("CLIENT").arg("KILL").arg("USER").arg("app")).await;
    assert!(killed >= 2, "{killed}");
}

#[tokio::test]
async fn a_password_is_replaced_while_a_lock_is_held_and_waited_for() {
    let server = guarded();
    let mut redis = Raw::connect(&server.url()).await;
    set_user(&mut redis, &ALL).await;
    set_user(&mut redis, &[">one"]).await;
    let password = Password::new("one");
    let [near, far] = [password.builder(), password.builder()].map(|builder| {
        let url = url(&server);
        async move { soon("a connection", builder.connect(url)).await.expect("accepted") }
    });
    let near = near.await;
    let far = far.await;
    let guard = soon("the lock", near.lock("k")).await.expect("free");
    let waiting = tokio::spawn(far.lock("k"));
    queued(&near, "k", 1).await;

    set_user(&mut redis, &[">two", "<one"]).await;
    // Established connections stay.
    soon("an answer", near.ping()).await.expect("an answer");
    kill_connections(&mut redis).await;
    // The server refuses the old password until the provider knows the new one.
    eventually("it is refused, and says so", SOON, async || {
        let lockcore::operate::Connection::Down { reason, .. } = near.status().commands else {
            return false;
        };
        reason.to_lowercase().contains("authentication")
    })
    .await;
    password.replace("two");
    eventually("all connections are back", SOON, async || {
        near.status().is_connected() && far.status().is_connected()
    })
    .await;
    // Long before its next renewal, after a third of the lease of 30 s.
    let at_once = Duration::from_secs(5);
    eventually("renewed at once", at_once, async || guard.state() == HoldState::Held).await;
    release(guard).await;
    release(granted(waiting).await).await;
    assert_eq!(far.status().positions_lost, 0);
}

// B7: the error was Unavailable, and pointed people to the network.
#[tokio::test]
async fn a_process_with_the_old_password_is_told_so_once_its_connections_are_gone() {
    let server = guarded();
    let mut redis = Raw::connect(&server.url()).await;
    set_user(&mut redis, &ALL).await;
    set_user(&mut redis, &[">one"]).await;
    let url = format!("redis://app:one@{}/", server.address());
    let builder = Locks::builder().request_timeout(Duration::from_millis(500));
    let locks = soon("a connection", builder.connect(url)).await.expect("accepted");
    let waiting = tokio::spawn(locks.lock("k"));
    release(granted(waiting).await).await;
    set_user(&mut redis, &[">two", "<one"]).await;
    kill_connections(&mut redis).await;
    eventually("it is refused", SOON, async || {
        let lockcore::operate::Connection::Down { reason, .. } = locks.status().commands else {
            return false;
        };
        reason.contains("login")
    })
    .await;
    let waits = tokio::spawn(locks.key("k").store_wait(SOON).lock());
    let short = Duration::from_millis(300);
    let errors = [
        soon("an answer", locks.try_lock("k")).await.map(drop).expect_err("no connection"),
        soon("an answer", locks.lock_timeout("k", short)).await.map(drop).expect_err("none"),
        soon("an answer", locks.ping()).await.expect_err("no connection"),
    ];
    for error in errors {
        assert_eq!(error.kind(), LockErrorKind::Denied, "{error}");
        assert!(error.is_outage() && !error.is_retryable(), "{error}");
        assert!(error.to_string().contains("AuthenticationFailed"), "{error}");
    }
    // The error may be temporary: a waiter keeps waiting.
    assert!(!waits.is_finished());
    set_user(&mut redis, &[">one"]).await;
    release(granted(waits).await).await;
}

#[tokio::test]
async fn a_provider_that_panics_costs_no_hold_and_one_that_gave_nothing_yet_is_named() {
    let server = guarded();
    let mut redis = Raw::connect(&server.url()).await;
    set_user(&mut redis, &ALL).await;
    set_user(&mut redis, &[">one"]).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let builder = Locks::builder().credentials(move || {
        // Two connections are opened at first.
        assert!(counted.fetch_add(1, Ordering::Relaxed) < 2, "on purpose");
        Ok(Credentials::new("app", "one"))
    });
    let locks = soon("a connection", builder.connect(url(&server))).await.expect("accepted");
    let guard = soon("the lock", locks.lock("k")).await.expect("free");
    kill_connections(&mut redis).await;
    eventually("it is asked again", SOON, async || calls.load(Ordering::Relaxed) > 2).await;
    eventually("the last password does", SOON, async || locks.status().is_connected()).await;
    release(guard).await;

    let builder = Locks::builder().credentials(|| Err("no such file".into()));
    let error = soon("an answer", builder.connect(url(&server))).await.expect_err("no password");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(text.contains("the provider of credentials failed: no such file"), "{text}");
}

#[tokio::test]
async fn a_wrong_password_of_a_provider_is_denied_at_connect() {
    let server = guarded();
    let mut redis = Raw::connect(&server.url()).await;
    set_user(&mut redis, &ALL).await;
    let connect = soon("an answer", Password::new("wrong-one").builder().connect(url(&server)));
    let error = connect.await.expect_err("the user has no such password");
    assert_eq!(error.kind(), LockErrorKind::Denied, "{error}");
    assert!(!format!("{error} {error:?}").contains("wrong-one"), "{error}");
}

#[tokio::test]
async fn a_primary_that_takes_over_is_spoken_to_with_the_password_of_now() {
    let users = RedisOptions::default()
        .arg("requirepass", OTHERS)
        .arg("masterauth", OTHERS)
        .arg("user", "app on >one >two allkeys allchannels +@all");
    let more = format!("sentinel auth-pass locks {OTHERS}");
    let mut watched = Watched::start_with(users, &more, |_| RedisOptions::default()).await;
    let password = Password::new("one");
    let builder = password.builder().require_replicas(1, Duration::from_secs(1));
    let locks = soon("a connection", builder.connect(watched.url())).await.expect("accepted");
    let guard = soon("the lock", locks.lock("k")).await.expect("free");
    watched.in_step().await;
    for number in 0..3 {
        let mut redis = watched.raw(number).await;
        set_user(&mut redis, &["<one"]).await;
    }
    password.replace("two");
    watched.server(0).kill();
    let now = watched.promoted(0).await;
    let mut primary = watched.raw(now).await;
    eventually("the hold is renewed at the new primary", SOON, async || {
        primary.hold("k").await.is_some_and(|(_, left)| left > 29_000)
    })
    .await;
    release(guard).await;
    // The sentinels may be slow to reconfigure the other replica: a sentinel without a processor
    // for 2 s does nothing for 30 s.
    eventually("a replica follows", 3 * SOON, async || followers(&mut primary, 1).await > 0).await;
    // The connections that wait for a replica use it, too.
    eventually("a grant is acknowledged", SOON, async || match locks.try_lock("k").await {
        Ok(Some(guard)) => guard.release().await.is_ok(),
        _ => false,
    })
    .await;
}

#[tokio::test]
async fn a_cluster_is_spoken_to_with_the_password_of_now_also_at_a_primary_that_takes_over() {
    let users = RedisOptions::default()
        .arg("requirepass", OTHERS)
        .arg("masterauth", OTHERS)
        .arg("user", "app on >one >two allkeys allchannels +@all");
    let mut clustered = Clustered::start(users, true, Duration::from_secs(2)).await;
    let password = Password::new("one");
    let connecting = password.builder().connect(clustered.url());
    let locks = soon("a connection", connecting).await.expect("accepted");
    let [kept, failing] = [clustered.key_of(0, 0), clustered.key_of(1, 0)];
    let near = soon("the lock", locks.lock(&kept)).await.expect("free");
    let far = soon("the lock", locks.lock(&failing)).await.expect("free");
    let mut primary = clustered.raw(1).await;
    eventually("the replica has all", SOON, async || {
        primary.ask::<usize>(cmd("WAIT").arg(1).arg(500)).await == 1
    })
    .await;
    for number in 0..6 {
        set_user(&mut clustered.raw(number).await, &["<one"]).await;
    }
    password.replace("two");

    // New connections to a known server.
    kill_connections(&mut clustered.raw(0).await).await;
    let at_first = near.deadline();
    eventually("the hold is renewed", SOON, async || near.deadline() > at_first).await;
    release(near).await;
    // The first connections to a server that was no primary before.
    clustered.server(1).kill();
    clustered.promoted(1).await;
    let at_first = far.deadline();
    eventually("the hold is renewed", SOON, async || far.deadline() > at_first).await;
    release(far).await;
    assert!(locks.status().is_connected());
}
