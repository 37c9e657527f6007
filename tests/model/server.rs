//! The server: lockcore's own functions on the state, and their replies in the model's terms.

use std::num::NonZeroU32;
use std::sync::Arc;

use proto::NodeId;
use proto::queue::{self, Bounds};
use proto::{
    Acquired, Answer, Command, Grant, Leaving, Left, Member, Mode, Presence, Released, Renewed,
    Reply,
};

use crate::act::{OPERATOR, put};
use crate::books::{GREETED_US, Server};
use crate::event::Event;
use crate::model::Locking;
use crate::packet::{Ask, Outcome, Packet, ReplyContent};
use crate::properties::at_ms;
use crate::state::{Bits, Id, State};
use crate::step::Step;

/// The queue limit, above the number of members, because the differential test covers full queues.
const QUEUE_LIMIT: u32 = 1_000;

/// A command's message to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Members of a node were granted, each with the remaining lease.
    Granted { node: u8, token: u64, members: Vec<(Id, u32)> },
    /// Members of a node are a batch, in this order.
    Batch { node: u8, token: u64, members: Vec<Id>, left: u32 },
    /// Members of a node were force-released.
    Revoked { node: u8, members: Vec<Id> },
    /// Members of a node were superseded.
    Superseded { node: u8, members: Vec<Id> },
}

impl Locking {
    /// Runs a command on the server, puts the messages under way, and returns the reply.
    pub(crate) fn run(&self, state: &mut State, node: u8, ask: Ask, is_late: bool) -> ReplyContent {
        if matches!(ask, Ask::Acquire { is_fast: true, .. }) && !state.server.is_free() {
            self.meet(Event::NotServed);
            let (grants, batch) = (Vec::new(), Vec::new());
            return ReplyContent {
                outcome: Outcome::NotServed,
                left: 0,
                grants,
                batch,
                more: false,
            };
        }
        let command = self.command(ask, |id| self.member(id).clone());
        let caller = if node == OPERATOR { self.ids.len() - 1 } else { usize::from(node) };
        let now_ms = at_ms(state.now);
        // Expired keys are gone already: they are removed as time passes.
        let before = Arc::clone(&state.server);
        let mut after = Server::clone(&before);
        let nodes = &state.nodes;
        let connected = |text: &str| {
            nodes.get(usize::from(node_index(text))).is_some_and(|node| node.is_connected)
        };
        let caller = &self.ids[caller];
        let (answer, said) = self.serve(&mut after, &connected, caller, &command, now_ms * 1_000);
        let content = self.content_of(ask, &answer);
        let step = Step {
            model: self,
            ask,
            node,
            is_late,
            now: state.now,
            before: before.books(self, now_ms),
            after: after.books(self, now_ms),
            was: &before,
            is: &after,
            content: &content,
            tokens: answer.grants().iter().map(|grant| grant.token.get()).collect(),
            skipped: answer.skipped(),
            said: &said,
        };
        step.judge(state);
        after.renumber(&mut state.record.token);
        state.server = Arc::new(after);
        for said in said {
            publish(state, said);
        }
        content
    }

    /// Runs a command.
    pub(crate) fn serve(
        &self,
        server: &mut Server,
        connected: &dyn Fn(&str) -> bool,
        caller: &NodeId,
        command: &Command,
        now_us: u64,
    ) -> (Answer, Vec<Said>) {
        match server {
            Server::Queue { state, counter } => {
                let mut call = queue::Call::new(caller, connected, now_us);
                (call.bounds, call.counter) = (self.bounds(), *counter);
                call.floor_us = GREETED_US;
                let answer = self.variant.step(state, &mut call, command);
                *counter = call.counter;
                let said = call.messages.into_iter().map(|message| self.said(message));
                (answer, said.collect())
            }
            Server::Redisson(lock) => {
                let mut call = redisson::Call::new(caller, connected, now_us);
                let answer = lock.step(&mut call, command);
                let said = call.messages.into_iter().map(|message| self.redisson_said(message));
                (answer, said.collect())
            }
        }
    }

    fn bounds(&self) -> Bounds {
        match self.scope.one_by_one {
            true => Bounds { granted: 1, reclaimed: 1, ..Bounds::default() },
            false => Bounds::default(),
        }
    }

    fn redisson_said(&self, message: redisson::Message) -> Said {
        match message {
            redisson::Message::Grant { node, member, token, left_ms } => Said::Granted {
                node: node_index(node.as_str()),
                token: token.get(),
                members: vec![(self.id(&member), left_ms as u32)],
            },
            redisson::Message::Revoked { node, member } => {
                Said::Revoked { node: node_index(node.as_str()), members: vec![self.id(&member)] }
            }
            redisson::Message::Poke { member } => unreachable!("{member} is no foreign one"),
        }
    }

    fn said(&self, message: queue::Message) -> Said {
        let ids = |node: u8, numbers: Vec<u64>| {
            numbers.into_iter().map(|number| self.id_of(node, number)).collect()
        };
        match message {
            queue::Message::Grants { node, token, grants } => {
                let node = node_index(node.as_str());
                let id = |(number, left_ms): (u64, u64)| (self.id_of(node, number), left_ms as u32);
                let members = grants.into_iter().map(id).collect();
                Said::Granted { node, token: token.get(), members }
            }
            queue::Message::Batch { node, token, left_ms, numbers } => {
                let node = node_index(node.as_str());
                let members = ids(node, numbers);
                Said::Batch { node, token: token.get(), members, left: left_ms as u32 }
            }
            queue::Message::Revoked { node, numbers } => {
                let node = node_index(node.as_str());
                Said::Revoked { node, members: ids(node, numbers) }
            }
            queue::Message::Superseded { node, numbers } => {
                let node = node_index(node.as_str());
                Said::Superseded { node, members: ids(node, numbers) }
            }
        }
    }

    /// Returns the command, with members converted by `member`.
    pub(crate) fn command(&self, ask: Ask, member: impl Fn(Id) -> Member) -> Command {
        match ask {
            Ask::Acquire { members, waits, .. } => {
                let mode = if waits { Mode::Wait } else { Mode::Try };
                let members = bits(members).map(&member).collect();
                Command::Acquire { members, mode, queue_limit: QUEUE_LIMIT }
            }
            Ask::Release { member: id } => Command::Release { member: member(id) },
            Ask::Renew { member: id } => Command::Renew { members: vec![member(id)] },
            Ask::Confirm { member: id } => Command::Confirm { member: member(id) },
            Ask::Downgrade { member: id, served, back } => {
                let served = member(served).number();
                let back = bits(back).map(|id| member(id).number()).collect();
                Command::Reduce { member: member(id), served, weight: NonZeroU32::MIN, back }
            }
            Ask::Touch { members } => {
                Command::Touch { members: bits(members).map(&member).collect() }
            }
            Ask::Leave { members, ambiguous, served } => {
                let is_in = |bits: Bits, id: Id| bits & (1 << id) != 0;
                let leaving = |id| Leaving {
                    member: member(id),
                    ambiguous: is_in(ambiguous, id),
                    served: is_in(served, id),
                };
                Command::Leave { leaving: bits(members).map(leaving).collect() }
            }
            Ask::Force => Command::ForceRelease { member: None },
        }
    }

    pub(crate) fn content_of(&self, ask: Ask, answer: &Answer) -> ReplyContent {
        match answer {
            Answer::Acquired(reply) => self.reply(reply, |outcomes| {
                let Ask::Acquire { members, .. } = ask else { unreachable!("it was asked for") };
                let with = |is: fn(&Acquired) -> bool| {
                    let found = bits(members).zip(outcomes);
                    together(found.filter(|(_, outcome)| is(outcome)).map(|(id, _)| id))
                };
                Outcome::Acquired {
                    granted: with(|outcome| *outcome == Acquired::Granted),
                    queued: with(|outcome| matches!(outcome, Acquired::Queued { .. })),
                    refused: with(|outcome| *outcome == Acquired::Refused),
                }
            }),
            Answer::Released(reply) => {
                self.reply(reply, |outcome| Outcome::Released(*outcome == Released::Released))
            }
            Answer::Renewed(reply) => {
                self.reply(reply, |outcome| Outcome::Held(*outcome == [Renewed::Held]))
            }
            Answer::Touched(reply) => self.reply(reply, |touched| {
                let Ask::Touch { members } = ask else { unreachable!("a touch was asked for") };
                let with = |presence| {
                    let found = bits(members).zip(&touched.members);
                    together(found.filter(|(_, is)| **is == presence).map(|(id, _)| id))
                };
                Outcome::Touched {
                    waiting: with(Presence::Waiting),
                    superseded: with(Presence::Superseded),
                    gone: with(Presence::Gone),
                }
            }),
            Answer::Left(reply) => {
                self.reply(reply, |left| Outcome::Left(left.contains(&Left::Left)))
            }
            Answer::Inspected(_) => unreachable!("the model does not inspect"),
        }
    }

    fn batch_of(&self, grant: &Grant) -> Vec<Id> {
        let node = node_index(grant.member.node());
        grant.batch.iter().map(|number| self.id_of(node, *number)).collect()
    }

    fn reply<T>(&self, reply: &Reply<T>, outcome: impl Fn(&T) -> Outcome) -> ReplyContent {
        let grant = |grant: &Grant| (self.id(&grant.member), grant.left_ms as u32);
        ReplyContent {
            outcome: outcome(&reply.outcome),
            left: reply.first_end_ms.expect("the functions always tell it") as u32,
            grants: reply.grants.iter().map(grant).collect(),
            batch: reply.grants.iter().flat_map(|grant| self.batch_of(grant)).collect(),
            more: reply.more,
        }
    }
}

fn publish(state: &mut State, said: Said) {
    let packet = match said {
        Said::Granted { members, .. } => {
            // All members have the same lease, so they have the same grace lease.
            let left = members.first().map_or(0, |(_, left)| *left);
            Packet::Grant { members: together(members.iter().map(|(member, _)| *member)), left }
        }
        Said::Batch { members, left, .. } => Packet::Batch { members, left },
        Said::Revoked { members, .. } => Packet::Revoked { members: together(members) },
        Said::Superseded { members, .. } => Packet::Superseded { members: together(members) },
    };
    let node = packet.addressee().map(|node| &state.nodes[usize::from(node)]);
    if node.is_some_and(|node| node.is_connected && !node.is_dead) {
        put(state, packet);
    }
}

/// Returns the index of a node, from its text.
pub(crate) fn node_index(text: &str) -> u8 {
    text.as_bytes()[0] - b'a'
}

/// Returns the set of these members, with a bit for each.
pub(crate) fn together(members: impl IntoIterator<Item = Id>) -> Bits {
    members.into_iter().fold(0, |bits, member| bits | 1 << member)
}

/// Returns the members whose bits are set.
pub(crate) fn bits(mut bits: Bits) -> impl Iterator<Item = Id> {
    std::iter::from_fn(move || {
        let member = bits.trailing_zeros() as Id;
        (bits != 0).then(|| {
            bits &= bits - 1;
            member
        })
    })
}
