//! The ACL line in the manual: it is enough for everything that is public, and it allows nothing
//! else.

use std::collections::BTreeSet;
use std::time::Duration;

use lock_tests::acl::{manual_acl, manual_commands, set_user};
use lock_tests::{Raw, RedisServer, eventually};
use lockcore::{LockError, LockErrorKind, Locks};
use proto::Topology;
use proto::layout::QUEUE;
use redis::{Cmd, Value, cmd};

const SOON: Duration = Duration::from_secs(20);

async fn soon<T>(future: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(SOON, future.into_future()).await.expect("at once")
}

/// The commands that the line allows.
fn allowed() -> BTreeSet<String> {
    manual_commands().map(str::to_owned).collect()
}

/// Starts a server with the user of the manual; returns a connection that may do everything, and
/// the user's URL.
async fn server() -> (RedisServer, Raw, String) {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    redis.ask::<()>(&set_user("locks", |_| false)).await;
    let url = format!("redis://locks:PASSWORD@{}/", server.address());
    (server, redis, url)
}

async fn connect(url: &str) -> Locks {
    soon(Locks::builder().namespace("shop").connect(url)).await.expect("it may connect")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_line_in_the_manual_is_enough_for_every_public_operation() {
    let (server, mut redis, url) = server().await;
    let near = connect(&url).await;
    let far = connect(&url).await;
    let lease = Duration::from_secs(2);
    let guard = soon(near.key("k").lease(lease).max_hold(SOON).lock()).await.expect("free");
    let again = guard.reenter().expect("held");
    drop(again);
    let waiting = tokio::spawn(far.lock("k"));
    eventually("it waits", SOON, async || redis.queue("shop:k").await.len() == 1).await;
    assert!(soon(near.try_lock("k")).await.expect("an answer").is_none());
    let late = soon(far.lock_timeout("k", Duration::from_millis(50))).await.expect_err("held");
    assert_eq!(late.kind(), LockErrorKind::Timeout);
    let full = soon(far.key("k").queue_limit(1).lock()).await.expect_err("one waits");
    assert_eq!(full.kind(), LockErrorKind::QueueFull);
    let before = guard.deadline();
    eventually("a renewal", SOON, async || guard.deadline() > before).await;
    assert_eq!(soon(near.inspect("k")).await.expect("an answer").waiters.len(), 1);
    soon(guard.release()).await.expect("held");
    let guard = soon(waiting).await.expect("no panic").expect("handed over");
    assert!(soon(near.force_release("k")).await.expect("an answer"));
    soon(guard.lost()).await;
    soon(near.ping()).await.expect("an answer");
    assert_eq!(soon(near.with("k", async |_| 7)).await.expect("free"), 7);
    redis.flush_scripts().await;
    drop(soon(near.lock("k")).await.expect("free"));
    let _ = soon(near.lock("k")).await.expect("given back").leak();
    soon(share(&near, &far)).await.expect("all is allowed");
    soon(near.shutdown(Duration::ZERO)).await;
    soon(far.shutdown(Duration::ZERO)).await;
    nothing_was_denied(&server, &mut redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_survey_needs_a_right_of_its_own_and_names_it() {
    let (_server, mut redis, url) = server().await;
    let locks = connect(&url).await;
    let _guard = soon(locks.lock("k")).await.expect("free");
    let error = soon(locks.survey().next_page()).await.expect_err("not allowed");
    assert_eq!(error.kind(), LockErrorKind::Denied);
    assert!(error.to_string().ends_with("allow +scan"), "{error}");
    redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg("+scan")).await;
    let page = soon(locks.survey().next_page()).await.expect("allowed").expect("a page");
    assert_eq!(page[0].lock.as_deref(), Some("shop:k"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_a_node_needs_a_right_of_its_own_and_no_request_needs_it() {
    let (server, mut redis, url) = server().await;
    let locks = connect(&url).await;
    let guard = soon(locks.lock("k")).await.expect("free");
    // Longer than the first second of a hold, after which the node writes its key.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(soon(locks.processes([locks.node()])).await.is_empty());
    soon(guard.release()).await.expect("held");
    nothing_was_denied(&server, &mut redis).await;

    let allow = |rules: &[&str]| {
        let mut allow = cmd("ACL");
        allow.arg("SETUSER").arg("locks").arg(rules);
        allow
    };
    redis.ask::<()>(&allow(&["~lock:node:*"])).await;
    let locks = connect(&url).await;
    let guard = soon(locks.lock("k")).await.expect("free");
    eventually("it is told", SOON, async || locks.processes([locks.node()]).await.len() == 1).await;

    // Taken away: it is tried once more, and all requests go on.
    redis.ask::<()>(&set_user("locks", |_| false)).await;
    redis.ask::<()>(cmd("ACL").arg("LOG").arg("RESET")).await;
    for _ in 0..3 {
        assert!(soon(locks.processes([locks.node()])).await.is_empty());
    }
    soon(guard.release()).await.expect("held");
    drop(soon(locks.lock("k")).await.expect("free"));
    let log: Vec<Vec<Value>> = redis.ask(cmd("ACL").arg("LOG")).await;
    assert_eq!(log.len(), 1, "{log:?}");
    let count = log[0].iter().position(|field| text(field) == "count").expect("a count");
    assert_eq!(text(&log[0][count + 1]), "1", "{log:?}");
}

async fn nothing_was_denied(server: &RedisServer, redis: &mut Raw) {
    // Before 7.0 only an attempt shows a denied command.
    let tried: &[&str] =
        if server.version() < (7, 0) { &["info", "script", "client"] } else { &[] };
    for denied in denials(redis).await {
        let is_node = server.version() < (7, 0) && denied.starts_with("lock:node:");
        assert!(is_node || tried.contains(&denied.as_str()), "{denied} was denied");
    }
}

/// Uses everything about reads, writes and permits.
async fn share(near: &Locks, far: &Locks) -> Result<(), LockError> {
    let name = "documents";
    let lease = Duration::from_secs(2);
    let write = near.key(name).lease(lease).write().await?;
    let waiting = tokio::spawn(far.read(name));
    eventually("it waits, or was refused", SOON, async || {
        let found = near.inspect(name).await;
        waiting.is_finished() || found.is_ok_and(|found| found.waiters.len() == 1)
    })
    .await;
    assert!(near.try_permit(name, 3).await?.is_none());
    let late = far.key(name).wait(Duration::from_millis(50)).write().await.expect_err("held");
    assert_eq!(late.kind(), LockErrorKind::Timeout);
    let before = write.deadline();
    eventually("a renewal", SOON, async || write.deadline() > before).await;
    let read = write.downgrade().await?;
    waiting.await.expect("no panic")?.release().await?;
    assert!(far.force_release(name).await?);
    read.lost().await;
    drop(read);
    let permits = near.key(name).permits(2, 3).await?;
    permits.release().await
}

/// The denials of the server so far.
async fn denials(redis: &mut Raw) -> Vec<String> {
    let log: Vec<Vec<Value>> = redis.ask(cmd("ACL").arg("LOG").arg(1_000)).await;
    let objects = log.iter().map(|entry| {
        let at = entry.iter().position(|field| text(field) == "object").expect("an object");
        text(&entry[at + 1])
    });
    objects.collect()
}

fn text(value: &Value) -> String {
    redis::from_redis_value_ref(value).unwrap_or_default()
}

/// All commands of the server with as many arguments as they want, subcommands as `container|name`.
fn commands(answer: &Value, found: &mut Vec<(String, usize)>) {
    let Value::Array(entries) = answer else { return };
    for entry in entries {
        let Value::Array(fields) = entry else { continue };
        let arity: i64 = redis::from_redis_value_ref(&fields[1]).expect("a number");
        let subcommands =
            fields.get(9).filter(|all| matches!(all, Value::Array(all) if !all.is_empty()));
        match subcommands {
            Some(subcommands) => commands(subcommands, found),
            None => found.push((text(&fields[0]), arity.unsigned_abs() as usize)),
        }
    }
}

#[tokio::test]
async fn the_line_in_the_manual_allows_the_commands_it_names_and_no_other() {
    let (server, mut redis, url) = server().await;
    let mut user = Raw::connect(&url).await;
    let answer: Value = redis.ask(&cmd("COMMAND")).await;
    let mut all = Vec::new();
    commands(&answer, &mut all);
    assert!(all.len() > 200, "{} commands", all.len());
    // Any user may do these: they show the user, and end the connection.
    all.retain(|(name, _)| !["auth", "hello", "quit", "reset"].contains(&name.as_str()));
    let can_ask = server.version() >= (7, 0);
    let mut may = BTreeSet::new();
    for (name, arity) in all {
        let mut words: Vec<_> = name.split('|').collect();
        // Numbers, so that a count of keys is one; the names of the keys make no difference here.
        words.resize(arity.max(words.len()), "1");
        let answer = if can_ask {
            redis.try_ask::<Value>(cmd("ACL").arg("DRYRUN").arg("locks").arg(&words)).await
        } else {
            user.try_ask::<Value>(cmd(words[0]).arg(&words[1..])).await
        };
        if !format!("{answer:?}").contains("has no permissions to run") {
            may.insert(name);
        }
    }
    // Before 7.0 a server does not list subcommands.
    let allowed: BTreeSet<_> =
        allowed().into_iter().filter(|name| can_ask || !name.contains('|')).collect();
    assert_eq!(may, allowed);
}

/// The rules of the line in `docs/deploy.md`, without `ACL SETUSER` and the user's name.
fn deploy_rules() -> Vec<&'static str> {
    let page = include_str!("../../../docs/deploy.md");
    let lines: Vec<_> = page.lines().filter(|line| line.starts_with("ACL SETUSER locks")).collect();
    let [line] = lines[..] else { panic!("the page has {} such lines", lines.len()) };
    line.split(' ').skip(3).collect()
}

#[test]
fn the_line_in_deploy_is_that_of_the_manual() {
    assert_eq!(deploy_rules(), manual_acl().split(' ').skip(3).collect::<Vec<_>>());
}

// The scripts that draw several numbers at once, or put one back, run rarely.
#[tokio::test]
async fn the_line_in_the_manual_has_every_command_of_the_scripts() {
    let (_server, mut redis, _url) = server().await;
    let allowed = allowed();
    let is_allowed = |name: &str| allowed.iter().any(|right| right.split('|').next() == Some(name));
    let mut missing = BTreeSet::new();
    for script in QUEUE.usual_scripts(Topology::Single) {
        let is_word =
            |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase());
        for word in script.source.split('\'').filter(is_word) {
            // The others are options of commands.
            let info: Vec<Value> = redis.ask(cmd("COMMAND").arg("INFO").arg(word)).await;
            if info != [Value::Nil] && !is_allowed(&word.to_lowercase()) {
                missing.insert(word);
            }
        }
    }
    assert_eq!(missing, BTreeSet::new());
}

#[tokio::test]
async fn a_node_that_comes_later_acquires_with_the_rights_of_the_line() {
    let (server, mut redis, url) = server().await;
    for _ in 0..2 {
        // The token floor is above the counter: the number that it draws is put back.
        let locks = connect(&url).await;
        soon(soon(locks.lock("k")).await.expect("free").release()).await.expect("held");
    }
    nothing_was_denied(&server, &mut redis).await;
}

#[tokio::test]
async fn what_lies_beyond_the_line_is_refused_also_inside_a_script() {
    let (_server, mut all, url) = server().await;
    let mut redis = Raw::connect(&url).await;
    let script = |text: &str, key: &str| {
        let mut eval = cmd("EVAL");
        eval.arg(text).arg(1).arg(key);
        eval
    };
    let ask = |words: &[&str]| -> Cmd {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        command
    };
    let attempts = [
        ask(&["GET", "lock:{other:k}"]),
        ask(&["SET", "lock:{shopping:k}", "x"]),
        ask(&["SET", "shop:k", "x"]),
        ask(&["GET", "lock:tokens:other"]),
        ask(&["ZREM", "lock:{shopping:k}:queue", "x"]),
        ask(&["PUBLISH", "news", "x"]),
        ask(&["SUBSCRIBE", "news"]),
        ask(&["FLUSHALL"]),
        ask(&["KEYS", "*"]),
        ask(&["CONFIG", "GET", "*"]),
        ask(&["PUBSUB", "CHANNELS"]),
        script("return redis.call('GET', KEYS[1])", "lock:{other:k}"),
        script("return redis.call('GET', 'lock:{other:k}')", "lock:{shop:k}"),
        script("return redis.call('PUBLISH', 'news', 'x')", "lock:{shop:k}"),
        script("return redis.call('FLUSHALL')", "lock:{shop:k}"),
        script("return redis.call('KEYS', '*')", "lock:{shop:k}"),
    ];
    all.ask::<()>(cmd("SET").arg("lock:{other:k}").arg("secret")).await;
    for attempt in &attempts {
        let packed = attempt.get_packed_command();
        let answer = redis.try_ask::<Value>(attempt).await;
        let error = answer.expect_err(&format!("{} is refused", packed.escape_ascii()));
        let text = error.to_string().to_lowercase();
        assert!(text.contains("permission") || text.contains("can't"), "{text}");
    }
    assert_eq!(all.get("lock:{other:k}").await.as_deref(), Some("secret"));
    let own = redis.try_ask::<Value>(&ask(&["SET", "lock:{shop:k}", "x"])).await;
    own.expect("its own keys are its own");
}
