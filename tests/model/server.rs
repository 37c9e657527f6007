//! The server: lockcore's own function on the state, and its answer in the model's words.

use std::sync::Arc;

use lockcore::internals::protocol::{Answer, Command, LockState, Message};
use lockcore::internals::{
    Acquired, Grant, Leaving, Left, Member, Mode, Presence, Released, Renewed, Reply,
};

use crate::act::{OPERATOR, put};
use crate::model::{Locking, START_MS};
use crate::packet::{Ask, Outcome, Packet, Told};
use crate::state::{Id, NUMBERS, State, node_of};
use crate::step::Step;

/// More than there are members: "full" is the differential test's matter.
const QUEUE_LIMIT: u32 = 1_000;

impl Locking {
    /// Runs a command at the server: its messages are on their way afterwards, its reply is
    /// returned.
    pub(crate) fn run(&self, state: &mut State, node: u8, ask: Ask, is_late: bool) -> Told {
        let command = self.command(ask, |id| self.member(id).clone());
        let caller = if node == OPERATOR { self.ids.len() - 1 } else { usize::from(node) };
        let now_ms = START_MS + u64::from(state.now);
        let mut before = LockState::clone(&state.server);
        before.expire(now_ms);
        let mut after = before.clone();
        let nodes = &state.nodes;
        let connected = |text: &str| {
            nodes.get(usize::from(text.as_bytes()[0] - b'a')).is_some_and(|node| node.is_connected)
        };
        let caller = &self.ids[caller];
        let (answer, messages) =
            self.variant.step(&mut after, &connected, caller, &command, now_ms * 1_000);
        let told = self.told(ask, &answer);
        let token = grant(&answer).map(|grant| grant.token.get());
        let step = Step {
            model: self,
            ask,
            node,
            is_late,
            now: state.now,
            before: &before,
            after: &after,
            told: &told,
            token,
            messages: &messages,
        };
        step.judge(state);
        state.server = Arc::new(after);
        for message in messages {
            self.publish(state, message);
        }
        told
    }

    fn publish(&self, state: &mut State, message: Message) {
        let packet = match message {
            Message::Grant { member, left_ms, .. } => {
                Packet::Grant { member: self.id(&member), left: left_ms as u32 }
            }
            Message::Revoked { member, .. } => Packet::Revoked { member: self.id(&member) },
            Message::Poke { member } => unreachable!("{member} is no foreign one"),
        };
        let (Packet::Grant { member, .. } | Packet::Revoked { member }) = packet else { return };
        let node = &state.nodes[node_of(member)];
        if node.is_connected && !node.is_dead {
            put(state, packet);
        }
    }

    /// The command, with the members as one of both sides writes them.
    pub(crate) fn command(&self, ask: Ask, member: impl Fn(Id) -> Member) -> Command {
        match ask {
            Ask::Acquire { member: id, waits } => {
                let mode = if waits { Mode::Wait } else { Mode::Try };
                Command::Acquire { member: member(id), mode, queue_limit: QUEUE_LIMIT }
            }
            Ask::Release { member: id } => Command::Release { member: member(id) },
            Ask::Renew { member: id } => Command::Renew { member: member(id) },
            Ask::Touch { members } => {
                Command::Touch { members: bits(members).map(&member).collect() }
            }
            Ask::Leave { member: id, is_ambiguous } => {
                let leaving = Leaving { member: member(id), ambiguous: is_ambiguous };
                Command::Leave { leaving: vec![leaving] }
            }
            Ask::Force => Command::ForceRelease,
        }
    }

    pub(crate) fn told(&self, ask: Ask, answer: &Answer) -> Told {
        match answer {
            Answer::Acquired(reply) => self.reply(reply, |outcome| match outcome {
                Acquired::Granted => Outcome::Granted,
                Acquired::Queued { .. } => Outcome::Queued,
                Acquired::Busy => Outcome::Busy,
                Acquired::Full => Outcome::Full,
                Acquired::Refused => Outcome::Refused,
            }),
            Answer::Released(reply) => {
                self.reply(reply, |outcome| Outcome::Released(*outcome == Released::Released))
            }
            Answer::Renewed(reply) => {
                self.reply(reply, |outcome| Outcome::Held(*outcome == Renewed::Held))
            }
            Answer::Touched(reply) => self.reply(reply, |touched| {
                let Ask::Touch { members } = ask else { unreachable!("a touch was asked for") };
                let with = |presence| {
                    let found = bits(members).zip(&touched.members);
                    let found = found.filter(|(_, is)| **is == presence);
                    found.fold(0, |bits, (id, _)| bits | 1 << id)
                };
                Outcome::Touched { waiting: with(Presence::Waiting), gone: with(Presence::Gone) }
            }),
            Answer::Left(reply) => {
                self.reply(reply, |left| Outcome::Left(left.contains(&Left::Left)))
            }
            Answer::Inspected(_) | Answer::SharedInspected(_) => unreachable!("nobody inspects"),
        }
    }

    fn reply<T>(&self, reply: &Reply<T>, outcome: impl Fn(&T) -> Outcome) -> Told {
        Told {
            outcome: outcome(&reply.outcome),
            left: reply.left_ms as u32,
            grant: reply.grant.as_ref().map(|grant| self.id(&grant.member)),
        }
    }
}

/// The members whose bits are set.
pub(crate) fn bits(bits: u32) -> impl Iterator<Item = Id> {
    (0..3 * NUMBERS).filter(move |id| bits & (1 << id) != 0)
}

fn grant(answer: &Answer) -> Option<&Grant> {
    match answer {
        Answer::Acquired(reply) => reply.grant.as_ref(),
        Answer::Released(reply) => reply.grant.as_ref(),
        Answer::Renewed(reply) => reply.grant.as_ref(),
        Answer::Touched(reply) => reply.grant.as_ref(),
        Answer::Left(reply) => reply.grant.as_ref(),
        Answer::Inspected(_) | Answer::SharedInspected(_) => None,
    }
}
