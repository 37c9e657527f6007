//! The ACL line in the manual: it is enough for everything that is public, and it allows nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use lock_tests::{Raw, RedisServer, eventually};
use lockcore::{LockErrorKind, Locks};
use redis::{Cmd, Value, cmd};

const MANUAL: &str = include_str!("../../../lockcore/src/guide/redis.md");
const SOON: Duration = Duration::from_secs(20);

async fn soon<T>(future: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(SOON, future.into_future()).await.expect("at once")
}

/// The rules of the line, without `ACL SETUSER` and the user's name.
fn rules() -> Vec<&'static str> {
    let lines: Vec<_> = MANUAL.lines().filter(|line| line.starts_with("ACL SETUSER ")).collect();
    let [line] = lines[..] else { panic!("the manual has {} such lines", lines.len()) };
    line.split(' ').skip(3).collect()
}

/// The commands that it allows.
fn allowed() -> BTreeSet<String> {
    rules().iter().filter_map(|rule| rule.strip_prefix('+')).map(str::to_owned).collect()
}

/// A server with the user of the manual; a connection that may do everything, and the user's URL.
async fn server() -> (RedisServer, Raw, String) {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let mut set = cmd("ACL");
    set.arg("SETUSER").arg("locks");
    for rule in rules() {
        set.arg(rule);
    }
    redis.ask::<()>(&set).await;
    let url = format!("redis://locks:PASSWORD@{}/", server.address());
    (server, redis, url)
}

async fn connect(url: &str) -> Locks {
    soon(Locks::builder().namespace("shop").connect(url)).await.expect("it may connect")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_line_in_the_manual_is_enough_for_every_public_operation() {
    let (_server, mut redis, url) = server().await;
    let (near, far) = (connect(&url).await, connect(&url).await);
    let lease = Duration::from_secs(2);
    let guard = soon(near.key("k").lease(lease).max_hold(SOON).lock()).await.expect("free");
    let again = guard.reenter().expect("held");
    drop(again);
    let waiting = tokio::spawn(far.lock("k"));
    eventually("it waits", SOON, async || {
        redis.list("redisson_lock_queue:{shop:k}").await.len() == 1
    })
    .await;
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
    soon(near.shutdown(Duration::ZERO)).await;
    soon(far.shutdown(Duration::ZERO)).await;
    // What the manual calls worth adding is asked for, and done without.
    let optional = ["info", "script|load", "client|info", "client|kill", "client|setinfo"];
    for denied in denials(&mut redis).await {
        assert!(optional.contains(&denied.as_str()), "{denied} was denied");
    }
}

/// What the server has denied so far.
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
    let (_server, mut redis, _) = server().await;
    let answer: Value = redis.ask(&cmd("COMMAND")).await;
    let mut all = Vec::new();
    commands(&answer, &mut all);
    assert!(all.len() > 200, "{} commands", all.len());
    let mut may = BTreeSet::new();
    for (name, arity) in all {
        let words: Vec<_> = name.split('|').collect();
        let mut run = cmd("ACL");
        run.arg("DRYRUN").arg("locks").arg(&words);
        // Numbers, so that a count of keys is one; which keys it would be is not asked here.
        for _ in words.len()..arity {
            run.arg(1);
        }
        let answer = redis.try_ask::<Value>(&run).await;
        let refused = format!("{answer:?}").contains("has no permissions to run");
        if !refused {
            may.insert(name);
        }
    }
    // Any user may do these: they show who one is, and end the connection.
    let harmless = ["auth", "hello", "quit", "reset"].map(str::to_owned);
    let may: BTreeSet<_> = may.into_iter().filter(|name| !harmless.contains(name)).collect();
    assert_eq!(may, allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_in_the_line_is_needed_and_named_when_it_is_missing() {
    // An idle connection is asked with PING, a server that has forgotten the scripts with EVAL:
    // both later than at connect.
    let later = ["ping", "eval"];
    let (_server, mut redis, url) = server().await;
    for missing in allowed().iter().filter(|name| !later.contains(&name.as_str())) {
        let change = |sign: &str| {
            let mut set = cmd("ACL");
            set.arg("SETUSER").arg("locks").arg(format!("{sign}{missing}"));
            set
        };
        redis.ask::<()>(&change("-")).await;
        let refused = soon(Locks::builder().namespace("shop").connect(&url)).await;
        let error = refused.expect_err(missing);
        assert_eq!(error.kind(), LockErrorKind::Denied, "without {missing}: {error}");
        let name = missing.split('|').next().expect("a name");
        assert!(error.to_string().to_lowercase().contains(name), "without {missing}: {error}");
        redis.ask::<()>(&change("+")).await;
    }
    connect(&url).await;
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
        ask(&["GET", "other:k"]),
        ask(&["SET", "shopping", "x"]),
        ask(&["GET", "redisson_lock_token:{other:k}"]),
        ask(&["DEL", "redisson_lock_queue:{shopping:k}"]),
        ask(&["PUBLISH", "news", "x"]),
        ask(&["SUBSCRIBE", "news"]),
        ask(&["FLUSHALL"]),
        ask(&["KEYS", "*"]),
        ask(&["CONFIG", "GET", "*"]),
        script("return redis.call('GET', KEYS[1])", "other:k"),
        script("return redis.call('GET', 'other:k')", "shop:k"),
        script("return redis.call('PUBLISH', 'news', 'x')", "shop:k"),
        script("return redis.call('FLUSHALL')", "shop:k"),
        script("return redis.call('KEYS', '*')", "shop:k"),
    ];
    all.ask::<()>(cmd("SET").arg("other:k").arg("secret")).await;
    for attempt in &attempts {
        let packed = attempt.get_packed_command();
        let answer = redis.try_ask::<Value>(attempt).await;
        let error = answer.expect_err(&format!("{} is refused", packed.escape_ascii()));
        let text = error.to_string().to_lowercase();
        assert!(text.contains("permission") || text.contains("can't"), "{text}");
    }
    assert_eq!(all.get("other:k").await.as_deref(), Some("secret"));
    let own = redis.try_ask::<Value>(&ask(&["SET", "shop:k", "x"])).await;
    own.expect("its own keys are its own");
}
