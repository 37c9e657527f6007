//! The layout of the queue.

use std::collections::HashMap;

use lock_tests::protocol::queue::{self, Snapshot};
use lock_tests::protocol::{self, Script};
use lock_tests::{COUNTER, Raw};
use proto::queue::{Bounds, Call, Held, LockKeyValue, MARGIN_MS, Mark, Message, QueueState};
use proto::wire::{queue_script, scripts};
use proto::{Answer, Command, Demand, LockName, Member, StoreError, Topology};
use redis::{Arg, Cmd, cmd};

use crate::fuzz;
use crate::layout::{self, Kind, Layout, Near, Request, Stepped};
use crate::random::Random;
use crate::world::grants_channel;

#[test]
fn lua_and_rust_agree_on_locks() {
    fuzz::run::<Queue>(Kind::Locks, 6);
}

#[test]
fn lua_and_rust_agree_on_reads_and_writes() {
    fuzz::run::<Queue>(Kind::ReadWrite, 6);
}

#[test]
fn lua_and_rust_agree_on_permits_with_weights() {
    fuzz::run::<Queue>(Kind::Semaphore, 6);
}

#[test]
fn lua_and_rust_agree_where_requests_for_one_name_have_different_limits() {
    fuzz::run::<Queue>(Kind::MixedLimits, 6);
}

#[test]
fn lua_and_rust_agree_when_keys_are_damaged_from_outside() {
    fuzz::run::<Queue>(Kind::Damaged, 6);
}

#[test]
fn lua_and_rust_agree_on_what_is_another_program_s_and_leave_it_alone() {
    fuzz::run::<Queue>(Kind::Strange, 6);
}

/// Bounds that a sequence reaches.
const SMALL: Bounds = Bounds { granted: 2, looked_at: 5, reclaimed: 2, tombstones: 3 };

const MET: [&str; 7] = ["Confirmed", "a revocation", BATCH, SEVERAL, MORE, SUPERSEDED, FOUND];
const SUPERSEDED: &str = "a newer one";
const FOUND: &str = "Superseded";
const BATCH: &str = "a batch";
const SEVERAL: &str = "several grants in a message";
const MORE: &str = "more";

/// A state of the function, with the counter of tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    lock: QueueState,
    /// Operators may set it below 0.
    counter: Option<i64>,
}

/// The scripts with small bounds: their digests by their names.
pub(crate) struct Queue {
    small: HashMap<&'static str, String>,
}

/// The bounds of a request.
fn bounds(request: &Request<'_>) -> Bounds {
    if request.way.is_multiple_of(2) { Bounds::default() } else { SMALL }
}

impl Layout for Queue {
    type Snapshot = Snapshot;
    type State = Kept;

    const PEERS: bool = false;

    async fn load(redis: &mut Raw) -> Self {
        let line = |of: Bounds| {
            format!(" = {}, {}, {}, {}\n", of.granted, of.looked_at, of.reclaimed, of.tombstones)
        };
        let (usual, mut small) = (line(Bounds::default()), HashMap::new());
        for script in scripts::of_queue(Topology::Single).all() {
            let is_bound = !["extend", "preflight", "mark"].contains(&script.name);
            let count = script.source.matches(&usual).count();
            assert_eq!(count, usize::from(is_bound), "{}", script.name);
            let source = script.source.replace(&usual, &line(SMALL));
            small.insert(script.name, redis.ask(cmd("SCRIPT").arg("LOAD").arg(source)).await);
        }
        Self { small }
    }

    fn met(kind: Kind) -> [&'static [&'static str]; 2] {
        // Of locks, one is granted at a time. Where other programs' keys are in the way, few
        // commands get far enough for more than one.
        let rare: &[_] = match kind {
            Kind::Locks => &[SEVERAL, MORE],
            Kind::Strange => &[SEVERAL, MORE, BATCH, SUPERSEDED, FOUND],
            // Two that both ask for everything; of one node, and neighbours.
            Kind::Semaphore | Kind::MixedLimits => &[BATCH, SUPERSEDED, FOUND],
            // A superseded member is found by its tombstone, which damage takes away.
            Kind::Damaged => &[BATCH, FOUND],
            _ => &[BATCH],
        };
        [&MET, rare]
    }

    async fn take(redis: &mut Raw, lock: &LockName) -> Snapshot {
        Snapshot::take(redis, lock.as_str()).await
    }

    async fn put(redis: &mut Raw, lock: &LockName, state: &Kept) {
        queue::put(redis, lock.as_str(), &state.lock).await;
        match state.counter {
            Some(count) => redis.ask::<()>(cmd("SET").arg(COUNTER).arg(count)).await,
            None => redis.ask(cmd("DEL").arg(COUNTER)).await,
        }
    }

    fn at_us(seen: &Snapshot) -> u64 {
        seen.at_us
    }

    fn state(seen: &Snapshot) -> Kept {
        Kept { lock: seen.state.clone(), counter: seen.counter.map(|count| count as i64) }
    }

    fn content(seen: &Snapshot) -> impl PartialEq + std::fmt::Debug {
        seen.content()
    }

    fn counter(state: &Kept) -> u64 {
        state.counter.unwrap_or(0) as u64
    }

    fn ends(state: &Kept) -> Vec<u64> {
        let lock = &state.lock;
        let mut ends: Vec<u64> = lock.queue_ends_ms.into_iter().chain(lock.holds_end_ms).collect();
        if let Some(ends_ms) = lock.lock_key.as_ref().and_then(|lock_key| lock_key.ends_ms) {
            // The second is that of the lease, behind a mark.
            ends.extend([ends_ms, ends_ms.saturating_sub(MARGIN_MS)]);
        }
        ends.extend(lock.patience.values());
        ends.extend(lock.swept_until_ms);
        ends.extend(lock.set_aside.values().map(|passed| passed.ends_ms));
        ends.extend(lock.holds.iter().chain(lock.tombstones.iter()).map(|(ends_ms, _)| ends_ms));
        ends
    }

    fn holders(state: &Kept) -> Vec<Member> {
        let parts = state.lock.holds.iter().map(|(_, member)| member);
        let whole = state.lock.stored_holder().map(|(member, _)| member);
        let batch = state.lock.batch().iter().filter_map(|number| Some(whole?.renumbered(*number)));
        parts.chain(whole).cloned().chain(batch).collect()
    }

    fn waiters(state: &Kept) -> Vec<Member> {
        let passed = state.lock.set_aside.values().flat_map(|passed| passed.members.iter());
        state.lock.queue.iter().chain(passed).map(|(_, member)| member.clone()).collect()
    }

    fn demand(kind: Kind, random: &mut Random) -> Demand {
        let kinds = [Kind::Locks, Kind::ReadWrite, Kind::Semaphore, Kind::MixedLimits];
        let kind = if kinds.contains(&kind) { kind } else { *random.one_of(&kinds) };
        let (weight, limit) = match kind {
            Kind::Locks => return Demand::EXCLUSIVE,
            Kind::ReadWrite if random.chance(60) => return Demand::READ,
            Kind::ReadWrite => return Demand::EXCLUSIVE,
            Kind::Semaphore => (1 + random.below(3) as u32, 3),
            _ if random.chance(15) => return Demand::EXCLUSIVE,
            _ if random.chance(15) => return Demand::READ,
            _ => {
                let limit = *random.one_of(&[2, 3, 5]);
                (1 + random.below(limit as usize) as u32, limit)
            }
        };
        Demand::permits(weight, limit).expect("a demand")
    }

    fn disturb(state: &mut Kept, random: &mut Random, now_ms: u64) {
        let lock = &mut state.lock;
        let held: Vec<Member> = lock.holds.iter().map(|(_, member)| member.clone()).collect();
        let waiting: Vec<&Member> = lock.queue.iter().map(|(_, member)| member).collect();
        // A full queue that was looked at a moment ago.
        lock.swept_until_ms = random.chance(30).then_some(now_ms + 500);
        match random.below(8) {
            // A lease that has ended.
            0..3 if !held.is_empty() => lock.holds.set(random.one_of(&held), now_ms - 2),
            0..3 if lock.stored_holder().is_some() => {
                let left_ms = *random.one_of(&[MARGIN_MS - 1_000, MARGIN_MS - 1_000, 90_000]);
                set_end(lock, Some(now_ms + left_ms));
            }
            // A silence that lasted, or nearly.
            3..6 if !waiting.is_empty() => {
                let head = random.chance(50);
                let member = if head { waiting[0] } else { *random.one_of(&waiting) };
                let is_near = random.below(3) == 0;
                match lock.patience.get_mut(member.node()) {
                    Some(ends_ms) if is_near => *ends_ms = now_ms + 5_000,
                    _ => drop(lock.patience.remove(member.node())),
                }
            }
            6 => {
                let ahead = now_ms as i64 * 1_000 + 3_600_000_000;
                let counts = [None, Some(5), Some(-7), Some(ahead), Some(1 << 54)];
                state.counter = *random.one_of(&counts);
            }
            7 => set_end(lock, None),
            _ => {}
        }
    }

    fn damage(state: &mut Kept, random: &mut Random) {
        let lock = &mut state.lock;
        match (random.below(8), &mut lock.lock_key) {
            (0 | 1, lock_key) => *lock_key = None,
            (2, _) => lock.queue.clear(),
            (3, _) => lock.holds.clear(),
            (4, _) => lock.reduced.clear(),
            (5, _) => lock.tombstones.clear(),
            // Without its mark, or without its sum.
            (_, Some(LockKeyValue { held: Held::Whole { .. }, mark, .. })) => *mark = Mark::None,
            (_, Some(lock_key)) => {
                (lock_key.held, lock_key.mark) =
                    (Held::Parts { used: 0, token: None }, Mark::Waited);
            }
            _ => {}
        }
    }

    /// Takes away all that it wrote, or else writes at one of the names.
    fn act_as_another_program(seen: &Snapshot, lock: &LockName, random: &mut Random) -> Vec<Cmd> {
        if !seen.strange.is_empty() && random.chance(60) {
            return vec![cmd("DEL").arg(&seen.strange).take()];
        }
        let mut keys = queue::keys(lock.as_str()).to_vec();
        keys.push(COUNTER.to_owned());
        let key = random.one_of(&keys);
        let write = match random.below(8) {
            0 => cmd("HSET").arg(key).arg("name").arg("Ada").take(),
            1 => cmd("SET").arg(key).arg("*3").take(),
            2 => cmd("ZADD").arg(key).arg(5).arg("another").take(),
            3 => cmd("ZADD").arg(key).arg(5).arg("~2short:1:30000:w:x").take(),
            4 => cmd("SET").arg(key).arg("text").take(),
            5 => cmd("SET").arg(key).arg("~2short:1:30000:w:x").arg("PX").arg(90_000).take(),
            _ => return vec![cmd("DEL").arg(key).take()],
        };
        vec![cmd("DEL").arg(key).take(), write]
    }

    fn is_strange(seen: &Snapshot) -> bool {
        !seen.strange.is_empty()
    }

    fn is_refused(seen: &Snapshot, command: &Command) -> Option<bool> {
        seen.is_refused(command)
    }

    fn spares_others(before: &Snapshot, after: &Snapshot, command: &Command) -> bool {
        let others = before.untouchable(command);
        before.content_of(&others) == after.content_of(&others)
    }

    async fn run(&self, redis: &mut Raw, request: &Request<'_>) -> Result<Answer, StoreError> {
        let Request { wire, lock, command, floors, .. } = *request;
        let commands = [(lock, command)];
        if bounds(request) == Bounds::default() {
            let mut answers = protocol::run(redis, wire, &commands, floors).await?;
            return answers.pop().expect("an answer for the command");
        }
        let usual: Script = wire.write(&commands, floors)?;
        let mut call = cmd("EVALSHA");
        call.arg(&self.small[queue_script(command, Topology::Single).name]);
        for argument in usual.command.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                call.arg(argument);
            }
        }
        let answer = redis.try_ask(&call).await;
        let mut answers = protocol::answers(wire, &commands, answer)?;
        answers.pop().expect("an answer for the command")
    }

    fn step(&self, request: &Request<'_>, before: &Kept, now_us: u64) -> Stepped<Kept> {
        let connected = |node: &str| request.connected.contains(node);
        let mut lock = before.lock.clone();
        let mut call = Call::new(&request.wire.node, &connected, now_us);
        call.counter = before.counter.map(|count| count.max(0) as u64);
        (call.floor_us, call.elsewhere_us) = (request.floors.floor_us, request.floors.elsewhere_us);
        call.bounds = bounds(request);
        let answer = lock.step(&mut call, request.command);
        let state = Kept { lock, counter: call.counter.map(|count| count as i64) };
        let mut met = Vec::new();
        for message in &call.messages {
            match message {
                Message::Grants { grants, .. } if grants.len() > 1 => met.push(SEVERAL),
                Message::Revoked { .. } => met.push("a revocation"),
                Message::Batch { .. } => met.push(BATCH),
                Message::Superseded { .. } => met.push(SUPERSEDED),
                Message::Grants { .. } => {}
            }
        }
        Stepped { answer, state, messages: call.messages.iter().map(text).collect(), met }
    }

    fn is_short(command: &Command, _answer: &Answer) -> bool {
        matches!(
            command,
            Command::Acquire { .. }
                | Command::Release { .. }
                | Command::Renew { .. }
                | Command::Confirm { .. }
                | Command::Touch { .. }
                | Command::Leave { .. }
        )
    }

    fn settle(before: &Kept, answer: &Answer, expected: &mut Kept, actual: &Kept, near: Near) {
        let (before, expected, actual) = (&before.lock, &mut expected.lock, &actual.lock);
        // Keys that are empty do not exist.
        expected.expire(0);
        // A short way at the lock key of a lock does not drop the parts beside it.
        if answer.now_us().is_none() && before.stored_holder().is_some() {
            (expected.holds, expected.reduced) = (before.holds.clone(), before.reduced.clone());
            expected.holds_end_ms = before.holds_end_ms;
        }
        if let (Some(expected), Some(actual)) = (&mut expected.lock_key, &actual.lock_key) {
            near.settle_end(&mut expected.ends_ms, actual.ends_ms);
        }
        near.settle_end(&mut expected.queue_ends_ms, actual.queue_ends_ms);
        near.settle_end(&mut expected.holds_end_ms, actual.holds_end_ms);
        near.settle_end(&mut expected.swept_until_ms, actual.swept_until_ms);
        // A hold of everything that was reduced has the end of the lock key.
        for (actual_ms, member) in actual.holds.iter() {
            if let Some(mut ends_ms) = expected.holds.get(member) {
                near.settle(&mut ends_ms, actual_ms);
                expected.holds.set(member, ends_ms);
            }
        }
        for (node, ends_ms) in &mut expected.patience {
            if let Some(actual) = actual.patience.get(node) {
                near.settle(ends_ms, *actual);
            }
        }
        for (node, passed) in &mut expected.set_aside {
            if let Some(actual) = actual.set_aside.get(node) {
                near.settle(&mut passed.ends_ms, actual.ends_ms);
            }
        }
    }
}

fn set_end(state: &mut QueueState, ends_ms: Option<u64>) {
    if let Some(lock_key) = &mut state.lock_key {
        lock_key.ends_ms = ends_ms;
    }
}

fn text(message: &Message) -> layout::Message {
    match message {
        Message::Grants { node, token, grants } => {
            let grants = grants.iter().map(|(number, left_ms)| format!(" {number} {left_ms}"));
            (grants_channel(node), format!("p {token}{}", grants.collect::<String>()))
        }
        Message::Batch { node, token, left_ms, numbers } => {
            let numbers = numbers.iter().map(|number| format!(" {number}"));
            let text = format!("w {token} {left_ms}{}", numbers.collect::<String>());
            (grants_channel(node), text)
        }
        Message::Revoked { node, numbers } => {
            let numbers = numbers.iter().map(|number| format!(" {number}"));
            (grants_channel(node), format!("r{}", numbers.collect::<String>()))
        }
        Message::Superseded { node, numbers } => {
            let numbers = numbers.iter().map(|number| format!(" {number}"));
            (grants_channel(node), format!("s{}", numbers.collect::<String>()))
        }
    }
}
