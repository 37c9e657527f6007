//! Keys of other programs at a lock's names: whatever they are, each command that would use one
//! answers a typed error that names its type, and no key of the server changes.

use lockcore::LockErrorKind;
use lockcore::internals::protocol::redisson::is_hold;
use lockcore::internals::{Command, Member, Mode, StoreError};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use redis::{Cmd, cmd};

use crate::asking::{acquire, leave, touch};
use crate::bench::Bench;
use crate::node::Node;

const JVM: &str = "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41";
const OURS: &str = "~1AAAAAAAAAAAAAAAAAAAAAA:1:30000:x";

/// The state in which a command meets the strange key.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scene {
    Free,
    Held,
    HeldWithQueue,
}

/// Content that another program has stored.
#[derive(Debug, Clone)]
enum Content {
    Text(String),
    List(Vec<String>),
    Set(Vec<String>),
    SortedSet(Vec<(u32, String)>),
    Hash(Vec<(String, String)>),
    Stream(String),
}

impl Content {
    fn type_of(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::SortedSet(_) => "zset",
            Self::Hash(_) => "hash",
            Self::Stream(_) => "stream",
        }
    }

    fn command(&self, key: &str) -> Cmd {
        let name = match self {
            Self::Text(_) => "SET",
            Self::List(_) => "RPUSH",
            Self::Set(_) => "SADD",
            Self::SortedSet(_) => "ZADD",
            Self::Hash(_) => "HSET",
            Self::Stream(_) => "XADD",
        };
        let mut command = cmd(name);
        command.arg(key);
        match self {
            Self::Text(text) => command.arg(text),
            Self::List(texts) | Self::Set(texts) => command.arg(texts),
            Self::SortedSet(scores) => command.arg(scores),
            Self::Hash(fields) => command.arg(fields),
            Self::Stream(text) => command.arg("*").arg("field").arg(text),
        };
        command
    }
}

/// A name that an application may have given: no member of ours or a JVM's, no number.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,12}",
        "[a-zA-Z0-9:~{} -]{0,40}[a-z]",
        "\\PC{1,20}[a-z]",
        Just("~1short:1:30000:x".to_owned()),
        Just("~1AAAAAAAAAAAAAAAAAAAAAA:1:0:no lease".to_owned()),
        Just("another:x".to_owned()),
    ]
}

/// Hashes of all sorts that are no hold.
fn hashes() -> Vec<BoxedStrategy<Vec<(String, String)>>> {
    let jvm = |count: &str| (JVM.to_owned(), count.to_owned());
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        prop::collection::vec((text(), text()), 1..5).boxed(),
        // One field, as a hold has, and one with the empty name.
        (text(), "[0-9]{1,15}").prop_map(|field| vec![field]).boxed(),
        Just(vec![field("", "1")]).boxed(),
        // A hold's field with something else for its count.
        text().prop_map(move |text| vec![jvm(&text)]).boxed(),
        "[0-9]{16,20}".prop_map(move |count| vec![jvm(&count)]).boxed(),
        Just(vec![jvm("")]).boxed(),
        Just(vec![jvm("-1")]).boxed(),
        // An RReadWriteLock's, and a hold's field with another beside it.
        Just(vec![field("mode", "write"), jvm("1")]).boxed(),
        Just(vec![jvm("1"), field("name", "Ada")]).boxed(),
        Just(vec![jvm("1"), field(OURS, "1")]).boxed(),
        // More than Redis keeps in the small form.
        Just((0..600).map(|at| field(&format!("field {at}"), &"x".repeat(70))).collect()).boxed(),
    ]
}

fn contents() -> Vec<BoxedStrategy<Content>> {
    let texts = || prop::collection::vec(text(), 1..6);
    let mut contents = vec![
        text().prop_map(Content::Text).boxed(),
        texts().prop_map(Content::List).boxed(),
        texts().prop_map(Content::Set).boxed(),
        prop::collection::vec((any::<u32>(), text()), 1..6).prop_map(Content::SortedSet).boxed(),
        text().prop_map(Content::Stream).boxed(),
    ];
    contents.extend(hashes().into_iter().map(|hash| hash.prop_map(Content::Hash).boxed()));
    contents
}

/// The name and the outcome of each command.
async fn ask_everything(
    node: &Node,
    holder: &Member,
    waiting: &Member,
    which: usize,
) -> Option<(&'static str, Result<(), StoreError>)> {
    let newcomer = node.member(30_000);
    let (name, command) = match which {
        0 => ("try", acquire(&newcomer, Mode::Try, 10)),
        1 => ("wait", acquire(&newcomer, Mode::Wait, 10)),
        2 => ("acquire again", acquire(waiting, Mode::Wait, 10)),
        3 => ("release", Command::Release { member: holder.clone() }),
        4 => ("release of nothing", Command::Release { member: newcomer }),
        5 => ("renew", Command::Renew { members: vec![holder.clone()] }),
        6 => ("touch", touch(&[waiting, holder])),
        7 => ("leave", leave(&[(waiting, true)])),
        8 => ("leave of a holder", leave(&[(holder, true)])),
        9 => ("force release", Command::ForceRelease { member: None }),
        10 => ("inspect", Command::Inspect),
        _ => return None,
    };
    Some((name, node.run(command).await.map(drop)))
}

async fn check(scene: Scene) {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let mut runner = TestRunner::deterministic();
    let mut faults = Vec::new();
    for place in 0..8 {
        for (number, content) in contents().iter().enumerate() {
            let content = content.new_tree(&mut runner).expect("a content").current();
            if let Content::Hash(fields) = &content {
                assert!(!is_hold(fields), "{fields:?}");
            }
            let with_expiry = number % 2 == 1;
            for which in 0.. {
                bench.redis.flush_all().await;
                let (holder, waiting) = match scene {
                    Scene::Free => (a.member(30_000), a.member(30_000)),
                    Scene::Held => (a.hold(30_000).await, a.member(30_000)),
                    Scene::HeldWithQueue => (a.hold(30_000).await, a.queue(30_000).await),
                };
                let keys = [
                    bench.hold_key(),
                    bench.queue_key(),
                    bench.deadlines_key(),
                    bench.token_key(),
                    bench.tombstone_key(&waiting),
                    bench.queue_key().replace("queue", "alive"),
                    bench.queue_key().replace("queue", "arrivals"),
                    bench.queue_key().replace("queue", "suspects"),
                ];
                let key = &keys[place];
                let () = bench.redis.ask(cmd("DEL").arg(key)).await;
                let _: redis::Value = bench.redis.ask(&content.command(key)).await;
                if with_expiry {
                    let () = bench.redis.ask(cmd("PEXPIRE").arg(key).arg(7_000_000)).await;
                }
                let before = bench.everything().await;
                let Some((name, answer)) = ask_everything(&a, &holder, &waiting, which).await
                else {
                    break;
                };
                let after = bench.everything().await;
                let strange_before = before.iter().find(|(name, ..)| name == key);
                let strange_after = after.iter().find(|(name, ..)| name == key);
                let fault = match &answer {
                    Ok(()) if place == 0 => Some("was answered".to_owned()),
                    // It did not need the key; then it left it alone.
                    Ok(()) if strange_before == strange_after => None,
                    Ok(()) => Some("was answered and changed it".to_owned()),
                    Err(error) if error.kind != LockErrorKind::WrongType => {
                        Some(format!("{error:?}"))
                    }
                    Err(error) if !error.detail.contains(content.type_of()) => {
                        Some(format!("does not name the type: {error:?}"))
                    }
                    Err(_) if before == after => None,
                    Err(_) => Some("failed and changed something".to_owned()),
                };
                if let Some(fault) = fault {
                    let content: String = format!("{content:?}").chars().take(200).collect();
                    faults.push(format!("{name} with {content} at {key}: {fault}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{scene:?}:\n{}", faults.join("\n"));
}

#[tokio::test]
async fn a_strange_key_at_a_free_lock_shared_with_jvms_is_named_and_never_changed() {
    check(Scene::Free).await;
}

#[tokio::test]
async fn a_strange_key_at_a_held_lock_shared_with_jvms_is_named_and_never_changed() {
    check(Scene::Held).await;
}

#[tokio::test]
async fn a_strange_key_at_a_queue_shared_with_jvms_is_named_and_never_changed() {
    check(Scene::HeldWithQueue).await;
}

#[tokio::test]
async fn an_acquire_at_a_name_that_another_program_uses_says_so() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let keys = [bench.hold_key(), bench.queue_key(), bench.token_key()];
    for key in keys {
        bench.redis.flush_all().await;
        let () = bench.redis.ask(cmd("ZADD").arg(&key).arg(1).arg("x")).await;
        let answer = a.run(acquire(&a.member(30_000), Mode::Wait, 10)).await;
        let error = answer.expect_err("another type");
        assert_eq!(error.kind, LockErrorKind::WrongType, "{key}");
        assert!(error.detail.contains("zset"), "{}", error.detail);
    }
}

// The clock is set back: the last token is ahead of it, and the token key must keep its expiry.
#[tokio::test]
async fn with_the_clock_set_back_a_strange_key_leaves_the_token_as_it_was() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let ahead = (bench.now_ms().await + 3_600_000) * 1_000;
    let () = bench.redis.ask(cmd("ZADD").arg(bench.deadlines_key()).arg(1).arg("x")).await;
    let mut set = cmd("SET");
    set.arg(bench.token_key()).arg(ahead).arg("PX").arg(60_000);
    let () = bench.redis.ask(&set).await;
    let before = bench.everything().await;
    let answer = a.run(acquire(&a.member(30_000), Mode::Wait, 10)).await;
    assert_eq!(answer.expect_err("a strange key").kind, LockErrorKind::WrongType);
    assert_eq!(bench.everything().await, before);
}
