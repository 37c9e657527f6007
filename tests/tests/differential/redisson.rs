//! Redisson's layout, in which JVMs share the queues. With a real JVM: the test binary `redisson`.

mod jvms;
mod several;

use ::redisson::{Call, LockState, Message, Peers, is_hold, is_member, is_token};
use lock_tests::protocol::redisson::{self, Snapshot, poke_channel};
use lock_tests::{Raw, protocol};
use proto::{
    Answer, Answers, Command, Demand, Label, LockErrorKind, LockName, Member, Party, Presence,
    Renewed, StoreError,
};
use redis::{Cmd, cmd};

use crate::fuzz;
use crate::layout::{self, Kind, Layout, Near, Request, Stepped};
use crate::random::Random;
use crate::world::{LISTENING, LOCK, PERSON, grants_channel};

#[test]
fn lua_and_rust_agree_on_every_command_beside_jvms() {
    fuzz::run::<Redisson>(Kind::Jvms, 2);
}

#[test]
fn lua_and_rust_agree_on_every_command_when_keys_are_damaged_from_outside() {
    fuzz::run::<Redisson>(Kind::Damaged, 4);
}

#[test]
fn lua_and_rust_agree_on_what_is_another_program_s_and_leave_it_alone() {
    fuzz::run::<Redisson>(Kind::Strange, 4);
}

/// Texts of other programs in a member's place; two only look like ours.
const STRANGE: [&str; 4] =
    ["name", "~1AAAAAAAAAAAAAAAAAAAAAA:1:0:no lease", "~1short:1:30000:x", "another:1"];

const HANDED_OVER: &str = "a grant to another node";

pub(crate) struct Redisson;

impl Layout for Redisson {
    type Snapshot = Snapshot;
    type State = LockState;

    const PEERS: bool = true;

    async fn load(_redis: &mut Raw) -> Self {
        Self
    }

    fn met(kind: Kind) -> [&'static [&'static str]; 2] {
        [if kind == Kind::Jvms { &jvms::MET } else { &[HANDED_OVER] }, &[]]
    }

    async fn take(redis: &mut Raw, lock: &LockName) -> Snapshot {
        Snapshot::take(redis, lock.as_str()).await
    }

    async fn put(redis: &mut Raw, lock: &LockName, state: &LockState) {
        redisson::put(redis, lock.as_str(), state).await;
    }

    fn at_us(seen: &Snapshot) -> u64 {
        seen.at_us
    }

    fn state(seen: &Snapshot) -> LockState {
        seen.state.clone()
    }

    fn content(seen: &Snapshot) -> impl PartialEq + std::fmt::Debug {
        seen.content()
    }

    fn counter(state: &LockState) -> u64 {
        state.token.as_ref().map_or(0, |token| token.value.get())
    }

    fn ends(state: &LockState) -> Vec<u64> {
        let hold = state.hold.as_ref().and_then(|hold| hold.expires_ms);
        let token = state.token.as_ref().and_then(|token| token.expires_ms);
        let ends = [hold, token, state.queue_expires_ms].into_iter().flatten();
        ends.chain(state.tombstones.values().copied()).collect()
    }

    fn holders(state: &LockState) -> Vec<Member> {
        state.hold.iter().filter_map(|hold| hold.member.ours()).cloned().collect()
    }

    fn waiters(state: &LockState) -> Vec<Member> {
        // A member may be alive and thrown out of the queue.
        let thrown_out = state.alive.iter().map(|(_, member)| member);
        let thrown_out = thrown_out.filter(|member| !state.queue.contains(member));
        state.queue.iter().chain(thrown_out).filter_map(Party::ours).cloned().collect()
    }

    fn demand(_kind: Kind, _random: &mut Random) -> Demand {
        Demand::EXCLUSIVE
    }

    fn disturb(state: &mut LockState, random: &mut Random, now_ms: u64) {
        jvms::disturb(state, random, now_ms);
    }

    fn damage(state: &mut LockState, random: &mut Random) {
        let waiting: Vec<Party> = state.queue.iter().cloned().collect();
        match random.below(8) {
            0 => state.queue.clear(),
            1 => state.deadlines.clear(),
            2 => state.suspects.since_ms.clear(),
            _ if waiting.is_empty() => {}
            kind => {
                let member = random.one_of(&waiting);
                match kind {
                    3 => state.queue.retain(|one| one != member),
                    4 => drop(state.deadlines.remove(member)),
                    5 | 6 => drop(state.alive.remove(member)),
                    _ => state.arrivals.retain(|one| one != member),
                }
            }
        }
    }

    /// Writes at one of the lock's names if it is free, or takes away all that it wrote.
    fn act_as_another_program(seen: &Snapshot, lock: &LockName, random: &mut Random) -> Vec<Cmd> {
        let [hold, queue, _, token, ..] = redisson::keys(lock.as_str());
        let (strange, jvm) = (*random.one_of(&STRANGE), jvms::THREADS[0]);
        match random.below(4) {
            0 if seen.fields.is_empty() => {
                let mut write = cmd("HSET").arg(&hold).arg(strange).arg(1).take();
                if random.chance(50) {
                    write.arg(jvm).arg(1);
                }
                vec![write]
            }
            1 if seen.fields.is_empty() => {
                let count = *random.one_of(&["", "one", "-1", "1234567890123456"]);
                vec![cmd("HSET").arg(&hold).arg(jvm).arg(count).take()]
            }
            2 if seen.state.queue.is_empty() => {
                vec![cmd("RPUSH").arg(&queue).arg(strange).arg(strange).take()]
            }
            3 => vec![cmd("SET").arg(&token).arg("no number").arg("PX").arg(60_000).take()],
            _ => {
                let keys = [(hold, is_hold_strange(seen)), (queue, is_queue_strange(seen))];
                let strange = keys.iter().filter(|(_, is_strange)| *is_strange);
                strange.map(|(key, _)| cmd("DEL").arg(key).take()).collect()
            }
        }
    }

    fn is_strange(seen: &Snapshot) -> bool {
        let token = seen.token.as_ref().is_some_and(|text| !is_token(text));
        token || is_hold_strange(seen) || is_queue_strange(seen)
    }

    fn is_refused(seen: &Snapshot, command: &Command) -> Option<bool> {
        Some(seen.is_refused(command))
    }

    fn spares_others(before: &Snapshot, after: &Snapshot, _command: &Command) -> bool {
        before.others == after.others
    }

    /// A renewal or a touch never goes alone: in its script are another program's key and a lock
    /// that is not held, now before it and now behind.
    async fn run(&self, redis: &mut Raw, request: &Request<'_>) -> Result<Answer, StoreError> {
        let Request { wire, lock, command, floors, way, .. } = *request;
        let stranger = Member::plain(&wire.node, 1_000_000, 30_000, &Label::new("a label"));
        let other = match command {
            Command::Touch { .. } => Command::Touch { members: vec![stranger.clone(), stranger] },
            Command::Renew { .. } => Command::Renew { members: vec![stranger] },
            _ => {
                let mut answers = protocol::run(redis, wire, &[(lock, command)], floors).await?;
                return answers.pop().expect("an answer for the command");
            }
        };
        let (strange, free) = (LockName::from(PERSON), LockName::from("not held"));
        let mut commands = [(&strange, &other), (lock, command), (&free, &other)];
        commands.rotate_left(way % 3);
        let mut answers = Answers::new();
        for commands in protocol::by_script(wire, &commands) {
            answers.extend(protocol::run(redis, wire, commands, floors).await?);
        }
        answers.rotate_right(way % 3);
        let [strange, answer, free] =
            Vec::from(answers.as_mut_slice()).try_into().expect("three answers");
        assert_eq!(strange.expect_err("a strange key").kind, LockErrorKind::WrongType);
        match free.expect("answered") {
            Answer::Renewed(reply) => assert_eq!(reply.outcome, [Renewed::NotHeld]),
            Answer::Touched(reply) => assert_eq!(reply.outcome.members, [Presence::Gone; 2]),
            other => panic!("{other:?}"),
        }
        answer
    }

    fn step(&self, request: &Request<'_>, before: &LockState, now_us: u64) -> Stepped<LockState> {
        let Request { wire, lock, command, floors, connected, .. } = *request;
        let connected = |node: &str| connected.contains(node);
        let listens = |thread: &str| lock.as_str() == LOCK && thread == LISTENING;
        let mut state = before.clone();
        let mut call = Call::new(&wire.node, &connected, now_us);
        (call.seen_us, call.peers) = (floors.latest_us, Peers { listens: &listens });
        let answer = state.step(&mut call, command);
        let mut met = jvms::met(&wire.node, before, &state, &call.messages);
        if call.messages.iter().any(|message| matches!(message, Message::Grant { .. })) {
            met.push(HANDED_OVER);
        }
        let messages = call.messages.iter().map(|message| text(lock, message)).collect();
        Stepped { answer, state, messages, met }
    }

    /// Only a release with none waiting does not tell the time, and it depends on none.
    fn is_short(command: &Command, answer: &Answer) -> bool {
        matches!(command, Command::Release { .. }) && answer.now_us().is_none()
    }

    fn settle(
        _before: &LockState,
        _answer: &Answer,
        expected: &mut LockState,
        actual: &LockState,
        near: Near,
    ) {
        if let (Some(expected), Some(actual)) = (&mut expected.hold, &actual.hold) {
            near.settle_end(&mut expected.expires_ms, actual.expires_ms);
        }
        if let (Some(expected), Some(actual)) = (&mut expected.token, &actual.token) {
            near.settle_end(&mut expected.expires_ms, actual.expires_ms);
        }
        near.settle_end(&mut expected.alive_expires_ms, actual.alive_expires_ms);
        near.settle_end(&mut expected.suspects.expire_ms, actual.suspects.expire_ms);
        for (member, at_ms) in &mut expected.tombstones {
            if let Some(actual) = actual.tombstones.get(member) {
                near.settle(at_ms, *actual);
            }
        }
        // A newcomer's score is built on the rest of the hold.
        for (actual_ms, member) in actual.deadlines.iter() {
            if let Some(mut at_ms) = expected.deadlines.get(member) {
                near.settle(&mut at_ms, actual_ms);
                expected.deadlines.set(member, at_ms);
            }
        }
        // A sorted set without its list counts for nothing: it may be there or not.
        if expected.queue.is_empty() && actual.queue.is_empty() {
            expected.deadlines = actual.deadlines.clone();
            expected.queue_expires_ms = actual.queue_expires_ms;
        }
    }
}

fn is_hold_strange(seen: &Snapshot) -> bool {
    !seen.fields.is_empty() && !is_hold(&seen.fields)
}

fn is_queue_strange(seen: &Snapshot) -> bool {
    seen.state.queue.iter().any(|party| !is_member(party.as_str()))
}

fn text(lock: &LockName, message: &Message) -> layout::Message {
    match message {
        Message::Grant { node, member, token, left_ms } => {
            (grants_channel(node), format!("g {member} {token} {left_ms}"))
        }
        Message::Revoked { node, member } => (grants_channel(node), format!("r {member}")),
        Message::Poke { member } => (poke_channel(lock.as_str(), member.as_str()), "0".to_owned()),
    }
}
