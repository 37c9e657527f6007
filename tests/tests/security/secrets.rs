//! Neither a password nor, where names are redacted, a lock's name stands in a log, an error or a
//! `Debug`.

use std::fmt::Debug;
use std::time::Duration;

use lock_tests::{Log, Raw, RedisServer, eventually, lock_key};
use lock_tower::LockLayer;
use lockcore::{LockError, Locks, LocksBuilder};
use redis::cmd;
use tower::{Service as _, ServiceBuilder};

const PASSWORD: &str = "hunter2";
const SECRET: &str = "patient-4711";
const SOON: Duration = Duration::from_secs(20);

async fn soon<T>(future: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(SOON, future.into_future()).await.expect("at once")
}

fn builder(redact: bool) -> LocksBuilder {
    Locks::builder().redact_names(redact).request_timeout(Duration::from_millis(500))
}

/// Runs a life of locks and notes all its texts; returns them.
async fn everything_shown(redact: bool) -> String {
    let (log, _here) = Log::listen();
    let show = |value: &dyn Debug| log.note(&format!("{value:?} {value:#?}"));
    let failed = |error: LockError| log.note(&format!("{error} {error:?}"));
    let mut server = RedisServer::options().arg("requirepass", PASSWORD).start();
    let mut redis = Raw::connect(&server.url()).await;
    show(&builder(redact));
    failed(builder(redact).connect(format!("http://:{PASSWORD}@h/")).await.expect_err("no URL"));
    let wrong = server.url().replace(PASSWORD, "hunter2-wrong");
    failed(soon(builder(redact).connect(wrong)).await.expect_err("another password"));
    let near = soon(builder(redact).connect(server.url())).await.expect("accepted");
    let far = soon(builder(redact).connect(server.url())).await.expect("accepted");
    show(&near);
    show(&near.key(SECRET));
    show(&near.status());
    let guard = soon(near.key(SECRET).lease(Duration::from_secs(1)).lock()).await.expect("free");
    show(&guard);
    let mut waiting = Box::pin(far.lock(SECRET));
    show(&waiting);
    eventually("it waits", SOON, async || {
        let _ = futures_util::poll!(&mut waiting);
        redis.queue(SECRET).await.len() == 1
    })
    .await;
    show(&waiting);
    show(&soon(near.try_lock(SECRET)).await.expect("an answer"));
    failed(soon(far.lock_timeout(SECRET, Duration::from_millis(20))).await.expect_err("held"));
    failed(soon(far.key(SECRET).queue_limit(1).lock()).await.expect_err("one waits"));
    failed(soon(far.lock(format!("{SECRET}\n"))).await.expect_err("a control character"));
    let before = guard.deadline();
    eventually("a renewal", SOON, async || guard.deadline() > before).await;
    let again = guard.reenter().expect("held");
    drop(guard);
    let release = again.release();
    show(&release);
    soon(release).await.expect("held");
    let guard = soon(waiting).await.expect("handed over");
    assert!(soon(near.force_release(SECRET)).await.expect("an answer"));
    soon(guard.lost()).await;
    show(&guard);
    failed(soon(guard.release()).await.expect_err("lost"));

    let layer = LockLayer::new(near.clone(), |name: &String| name.clone());
    let mut service = ServiceBuilder::new()
        .layer(&layer)
        .service_fn(|_: String| async { Ok::<_, lock_tower::LockError>(()) });
    show(&layer);
    std::future::poll_fn(|context| service.poll_ready(context)).await.expect("ready");
    soon(service.call(SECRET.to_owned())).await.expect("served");

    redis.ask::<()>(cmd("RPUSH").arg(lock_key(SECRET)).arg("a list")).await;
    failed(soon(near.lock(SECRET)).await.expect_err("another type"));
    redis.ask::<()>(cmd("DEL").arg(lock_key(SECRET))).await;
    let guard = soon(near.lock(SECRET)).await.expect("free");
    server.kill();
    failed(soon(near.try_lock(SECRET)).await.expect_err("the server is gone"));
    failed(soon(near.inspect(SECRET)).await.expect_err("the server is gone"));
    eventually("noticed", SOON, async || !near.status().is_connected()).await;
    show(&near.status());
    failed(soon(guard.release()).await.expect_err("the server is gone"));
    show(&soon(near.shutdown(Duration::ZERO)).await);
    failed(soon(near.lock(SECRET)).await.expect_err("shut down"));
    log.text()
}

fn lines_with<'a>(text: &'a str, secret: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.contains(secret)).collect()
}

// On one thread, so that the thread's subscriber sees everything.
#[tokio::test]
async fn no_password_and_no_redacted_name_is_shown_anywhere() {
    let text = everything_shown(true).await;
    assert_eq!(lines_with(&text, PASSWORD), Vec::<&str>::new());
    assert_eq!(lines_with(&text, SECRET), Vec::<&str>::new());
    assert!(text.contains("(redacted)"), "{text}");
}

#[tokio::test]
async fn the_debug_text_of_a_quorum_shows_no_redacted_name() {
    let locks = builder(true).in_memory_quorum(3).expect("in range");
    let guard = soon(locks.lock(SECRET)).await.expect("free");
    assert!(soon(locks.try_lock(SECRET)).await.expect("an answer").is_none());
    let text = format!("{locks:?} {locks:#?} {guard:?} {:?}", locks.key(SECRET));
    assert_eq!(lines_with(&text, SECRET), Vec::<&str>::new());
}

#[tokio::test]
async fn without_redaction_names_are_shown_and_passwords_still_not() {
    let text = everything_shown(false).await;
    assert_eq!(lines_with(&text, PASSWORD), Vec::<&str>::new());
    // The other test would prove nothing otherwise.
    for event in
        ["queued", "granted", "renewed", "released", "cancelled", "refused", "the hold is lost"]
    {
        let is_logged = text.lines().any(|line| line.contains(event) && line.contains(SECRET));
        assert!(is_logged, "no event {event:?} with the name in\n{text}");
    }
    assert!(text.contains("span acquire"), "{text}");
}

#[tokio::test]
async fn the_error_of_a_server_without_auth_and_hello_does_not_show_the_password() {
    let without = |command| format!("{command} switched-off-{command}");
    let options = RedisServer::options().arg("rename-command", &without("AUTH"));
    let server = options.arg("rename-command", &without("HELLO")).start();
    for option in ["", "?protocol=resp3"] {
        let url = format!("redis://app:{PASSWORD}@{}/{option}", server.address());
        let error = soon(builder(false).connect(url)).await.expect_err("no login");
        let text = format!("{error} {error:?}");
        assert!(!text.contains(PASSWORD) && !text.contains("app"), "{text}");
        // The client words the reply of some servers anew.
        assert!(text.contains("unknown command") || text.contains("HELLO"), "{text}");
    }
}
