//! Keys of other programs at a lock's key names: whatever they are, each command that would use
//! such a key returns a typed error with its type, and no key of the server changes.

use lock_tests::{COUNTER, aside_key, holds_key, lock_key, protocol, queue_key};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use proto::{Acquired, Command, Demand, LockErrorKind, Member, Mode, Released, StoreError};
use redis::{Cmd, cmd};
use redisson::is_hold;

use crate::asking::{acquire, leave, reduce, touch};
use crate::bench::{Bench, LOCK};
use crate::facts;
use crate::node::Node;

facts! {
    scripts: [
        a_strange_key_at_a_free_lock_is_named_and_never_changed,
        a_strange_key_at_a_held_lock_is_named_and_never_changed,
        a_strange_key_at_a_lock_with_a_queue_is_named_and_never_changed,
        an_acquire_at_a_name_that_another_program_uses_says_so,
    ],
    queue_scripts: [
        a_strange_key_at_a_lock_that_is_held_in_parts_is_named_and_never_changed,
        a_lock_beside_strange_parts_is_given_back_or_handed_over_or_ends_with_its_lease,
        an_inspection_names_a_strange_part_behind_the_first,
    ],
    redisson_scripts: [with_the_clock_set_back_a_strange_key_leaves_the_token_as_it_was],
}

const JVM: &str = "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41";
const OURS: &str = "~1AAAAAAAAAAAAAAAAAAAAAA:1:30000:x";

/// The state in which a command meets the strange key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scene {
    Free,
    Held,
    HeldWithQueue,
    /// Held by a part and by a downgraded lock; a lock waits.
    InParts,
}

/// Another program's value.
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

/// A name from an application: neither a member of ours or of a JVM, nor a number.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,12}",
        "[a-zA-Z0-9:~{} -]{0,40}[a-z]",
        "\\PC{1,20}[a-z]",
        Just("~1short:1:30000:x".to_owned()),
        Just("~1AAAAAAAAAAAAAAAAAAAAAA:1:0:no lease".to_owned()),
        Just("~2AAAAAAAAAAAAAAAAAAAAAA:1:30000:no demand".to_owned()),
        Just("~2AAAAAAAAAAAAAAAAAAAAAA:1:30000:3/2:too many".to_owned()),
        Just("+*12:x".to_owned()),
        Just("another:x".to_owned()),
    ]
}

/// Various hashes that are not a hold.
fn hashes() -> Vec<BoxedStrategy<Vec<(String, String)>>> {
    let jvm = |count: &str| (JVM.to_owned(), count.to_owned());
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        prop::collection::vec((text(), text()), 1..5).boxed(),
        // A single field, like a hold, and a single field with the empty name.
        (text(), "[0-9]{1,15}").prop_map(|field| vec![field]).boxed(),
        Just(vec![field("", "1")]).boxed(),
        // A hold's field with something else instead of its count.
        text().prop_map(move |text| vec![jvm(&text)]).boxed(),
        "[0-9]{16,20}".prop_map(move |count| vec![jvm(&count)]).boxed(),
        Just(vec![jvm("")]).boxed(),
        Just(vec![jvm("-1")]).boxed(),
        // An RReadWriteLock's, and a hold's field with another field beside it.
        Just(vec![field("mode", "write"), jvm("1")]).boxed(),
        Just(vec![jvm("1"), field("name", "Ada")]).boxed(),
        Just(vec![jvm("1"), field(OURS, "1")]).boxed(),
        // More than Redis keeps in the small encoding.
        Just((0..600).map(|at| field(&format!("field {at}"), &"x".repeat(70))).collect()).boxed(),
    ]
}

/// All types of keys, and with `of_hashes` various hashes.
fn contents(of_hashes: bool) -> Vec<BoxedStrategy<Content>> {
    let texts = || prop::collection::vec(text(), 1..6);
    let mut contents = vec![
        text().prop_map(Content::Text).boxed(),
        texts().prop_map(Content::List).boxed(),
        texts().prop_map(Content::Set).boxed(),
        prop::collection::vec((any::<u32>(), text()), 1..6).prop_map(Content::SortedSet).boxed(),
        text().prop_map(Content::Stream).boxed(),
    ];
    let sorts = if of_hashes { usize::MAX } else { 1 };
    let hashes = hashes().into_iter().take(sorts);
    contents.extend(hashes.map(|hash| hash.prop_map(Content::Hash).boxed()));
    contents
}

/// The name and the outcome of each command.
pub(crate) async fn ask_everything(
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
        6 => ("confirm", Command::Confirm { member: holder.clone() }),
        7 => ("touch", touch(&[waiting, holder])),
        8 => ("leave", leave(&[(waiting, true)])),
        9 => ("leave of a holder", leave(&[(holder, true)])),
        10 => ("force release", Command::ForceRelease { member: None }),
        11 => ("inspect", Command::INSPECT),
        12 if !node.peers => {
            let read = node.member_for(Demand::READ, 30_000);
            ("read", acquire(&read, Mode::Wait, 10))
        }
        13 if !node.peers => ("reduce", reduce(holder)),
        _ => return None,
    };
    Some((name, node.run(command).await.map(drop)))
}

/// A holder and a waiting member, if the scene has them.
pub(crate) async fn set_up(node: &Node, scene: Scene) -> (Member, Member) {
    match scene {
        Scene::Free => (node.member(30_000), node.member(30_000)),
        Scene::Held => (node.hold(30_000).await, node.member(30_000)),
        Scene::HeldWithQueue => (node.hold(30_000).await, node.queue(30_000).await),
        Scene::InParts => {
            let reduced = node.hold(30_000).await;
            node.reduce(&reduced).await;
            let holder = node.hold_for(Demand::READ, 30_000).await;
            (holder, node.queue(30_000).await)
        }
    }
}

impl Bench {
    /// Replaces our key with another program's key.
    async fn put(&mut self, key: &str, content: &Content, with_expiry: bool) {
        let mut put = redis::pipe();
        put.cmd("DEL").arg(key);
        put.add_command(content.command(key));
        if with_expiry {
            put.cmd("PEXPIRE").arg(key).arg(7_000_000);
        }
        self.redis().run(&put).await;
    }
}

/// A lock's keys, starting with the lock key. The node's first member without a position has a
/// tombstone there, where each tombstone has a key.
fn keys(bench: &Bench, node: &Node) -> Vec<String> {
    if bench.side.has_peers() {
        let tombstone = node.member(30_000);
        let mut keys = protocol::redisson::keys(LOCK).to_vec();
        keys.push(format!("redisson_lock_gone:{{{LOCK}}}:{tombstone}"));
        return keys;
    }
    let mut keys = protocol::queue::keys(LOCK).to_vec();
    keys.extend([COUNTER.to_owned(), aside_key(LOCK, node.id.as_str())]);
    keys
}

/// Checks each content in turn at each key.
async fn check(mut bench: Bench, scene: Scene) {
    let a = bench.node().await;
    let mut runner = TestRunner::deterministic();
    let mut faults = Vec::new();
    for (place, key) in keys(&bench, &a).iter().enumerate() {
        for (number, content) in contents(a.peers && place == 0).iter().enumerate() {
            let content = content.new_tree(&mut runner).expect("a content").current();
            if let Content::Hash(fields) = &content {
                assert!(!is_hold(fields), "{fields:?}");
            }
            let mut at_hand = None;
            for which in 0.. {
                // As long as nothing changes, the next command meets the same state.
                let (holder, waiting, before) = match at_hand.take() {
                    Some(unchanged) => unchanged,
                    None => {
                        bench.restart().await;
                        let (holder, waiting) = set_up(&a, scene).await;
                        bench.put(key, &content, number % 2 == 1).await;
                        (holder, waiting, bench.everything().await)
                    }
                };
                let Some((name, answer)) = ask_everything(&a, &holder, &waiting, which).await
                else {
                    break;
                };
                let after = bench.everything().await;
                let strange_before = before.iter().find(|(name, ..)| name == key);
                let strange_after = after.iter().find(|(name, ..)| name == key);
                let fault = match &answer {
                    Ok(()) if place == 0 => Some("was answered".to_owned()),
                    // The command did not need the key, and left it unchanged.
                    Ok(()) if strange_before == strange_after => None,
                    // Fast paths check the types of the keys that they write, and at most the form
                    // of the head.
                    Ok(())
                        if matches!(content, Content::SortedSet(_))
                            && *key == queue_key(LOCK)
                            && ["wait", "acquire again", "read"].contains(&name) =>
                    {
                        None
                    }
                    Ok(()) => Some("was answered and changed it".to_owned()),
                    Err(error) if error.kind != LockErrorKind::WrongType => {
                        Some(format!("{error:?}"))
                    }
                    Err(error) if !names(error, &content) => {
                        Some(format!("does not name the type: {error:?}"))
                    }
                    Err(_) if before == after => None,
                    Err(_) => Some("failed and changed something".to_owned()),
                };
                if let Some(fault) = fault {
                    let content: String = format!("{content:?}").chars().take(200).collect();
                    faults.push(format!("{name} with {content} at {key}: {fault}"));
                }
                at_hand = (before == after).then_some((holder, waiting, after));
            }
        }
    }
    assert!(faults.is_empty(), "{scene:?}:\n{}", faults.join("\n"));
}

/// A renewal of several locks returns a single letter for each: the error then names only the key.
fn names(error: &StoreError, content: &Content) -> bool {
    error.detail.contains(content.type_of()) || error.detail.contains("the key lock:{…}")
}

async fn a_strange_key_at_a_free_lock_is_named_and_never_changed(bench: Bench) {
    check(bench, Scene::Free).await;
}

async fn a_strange_key_at_a_held_lock_is_named_and_never_changed(bench: Bench) {
    check(bench, Scene::Held).await;
}

async fn a_strange_key_at_a_lock_with_a_queue_is_named_and_never_changed(bench: Bench) {
    check(bench, Scene::HeldWithQueue).await;
}

async fn a_strange_key_at_a_lock_that_is_held_in_parts_is_named_and_never_changed(bench: Bench) {
    check(bench, Scene::InParts).await;
}

// The reply with it would be taken for damage of the connection, which would be replaced.
async fn an_inspection_names_a_strange_part_behind_the_first(mut bench: Bench) {
    let a = bench.node().await;
    a.hold_for(Demand::READ, 30_000).await;
    let () = bench.redis().ask(cmd("ZADD").arg(holds_key(LOCK)).arg(9e15).arg("x")).await;
    let error = a.run(Command::INSPECT).await.expect_err("another program's member");
    assert_eq!(error.kind, LockErrorKind::WrongType, "{error:?}");
}

async fn an_acquire_at_a_name_that_another_program_uses_says_so(mut bench: Bench) {
    let a = bench.node().await;
    let demands = [Demand::EXCLUSIVE, Demand::READ];
    let demands = if a.peers { &demands[..1] } else { &demands };
    let keys = match a.peers {
        true => protocol::redisson::keys(LOCK)[..4].to_vec(),
        false => vec![lock_key(LOCK), COUNTER.to_owned()],
    };
    for key in keys.iter().filter(|key| !key.contains("_timeout:")) {
        for demand in demands {
            bench.restart().await;
            let () = bench.redis().ask(cmd("ZADD").arg(key).arg(1).arg("x")).await;
            let answer = a.run(acquire(&a.member_for(*demand, 30_000), Mode::Wait, 10)).await;
            let error = answer.expect_err("another type");
            assert_eq!(error.kind, LockErrorKind::WrongType, "{key}");
            assert!(error.detail.contains("zset"), "{}", error.detail);
        }
    }
}

// The clock is set back: the last token is ahead of it, and the token key must keep its expiry.
async fn with_the_clock_set_back_a_strange_key_leaves_the_token_as_it_was(mut bench: Bench) {
    let a = bench.node().await;
    let ahead = bench.now_ms().await * 1_000 + 3_600_000_000;
    let [_, _, deadlines, token, ..] = protocol::redisson::keys(LOCK);
    let () = bench.redis().ask(cmd("ZADD").arg(deadlines).arg(1).arg("x")).await;
    let () = bench.redis().ask(cmd("SET").arg(token).arg(ahead).arg("PX").arg(60_000)).await;
    let before = bench.everything().await;
    let answer = a.run(acquire(&a.member(30_000), Mode::Wait, 10)).await;
    assert_eq!(answer.expect_err("a strange key").kind, LockErrorKind::WrongType);
    assert_eq!(bench.everything().await, before);
}

async fn a_lock_beside_strange_parts_is_given_back_or_handed_over_or_ends_with_its_lease(
    mut bench: Bench,
) {
    for key in [holds_key(LOCK), format!("{}:reduced", lock_key(LOCK))] {
        bench.restart().await;
        let (a, b) = (bench.node().await, bench.node().await);
        // From here on the counter is above the server's time.
        let first = a.hold(30_000).await;
        a.release(&first).await;
        bench.redis().ask::<()>(cmd("SET").arg(&key).arg("another program's")).await;
        let first = a.hold(30_000).await;
        assert_eq!(a.release(&first).await.outcome, Released::Released);
        let first = a.hold(30_000).await;
        let second = b.queue(30_000).await;
        assert_eq!(a.release(&first).await.outcome, Released::Released);
        let read = a.member_for(Demand::READ, 30_000);
        assert_eq!(a.wait(&read).await.outcome, Acquired::Queued { position: 0 });
        let refused = b.run(Command::Release { member: second.clone() }).await.map(drop);
        assert_eq!(refused.expect_err("another's key").kind, LockErrorKind::WrongType);
        assert_eq!(bench.holder().await, Some(second));
        assert!(bench.left().await <= 30_000, "it ends");
        let kept = bench.redis().get(&key).await;
        assert_eq!(kept.as_deref(), Some("another program's"));
    }
}
