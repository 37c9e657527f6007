//! A step's effects: on clients, on packets under way, and on time.

use std::sync::Arc;

use proto::node::Phase;

use crate::books::Server;
use crate::model::{Action, Locking};
use crate::packet::{Ask, Outcome, Packet, ReplyContent, Sent};
use crate::properties::at_ms;
use crate::server::{bits, together};
use crate::state::{Bits, Client, Stage, State, node_of};
use crate::wire::moment;

/// The id of the operator, which force-releases locks and is no node of the model.
pub(crate) const OPERATOR: u8 = u8::MAX;

impl Locking {
    pub(crate) fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Begin { client, waits } => self.begin(state, client, waits),
            Action::Attend { node, due } => {
                let due = state.nodes[usize::from(node)].core.dues().nth(due);
                let (_, due) = due.expect("it is due in this very state");
                self.attend(state, node, &due);
            }
            Action::Release { client } => {
                let node = self.scope.homes[client];
                let Stage::Guard(number) = state.clients[client].stage else {
                    unreachable!("only guards are released");
                };
                // The server only knows the hold of the whole batch.
                let hold = state.nodes[usize::from(node)].core.held_as(number);
                let request = self.event(state, node, |core| core.release(number));
                state.clients[client].stage = match request.request() {
                    Some(request) => {
                        self.send(state, node, &request);
                        Stage::Releasing(hold)
                    }
                    None => Stage::Idle,
                };
            }
            Action::Drop { client } => {
                let Stage::Guard(number) = state.clients[client].stage else {
                    unreachable!("only guards are dropped");
                };
                state.clients[client].stage = Stage::Idle;
                let node = self.scope.homes[client];
                self.event(state, node, |core| core.dropped(number));
            }
            Action::Cancel { client } => {
                state.budget.cancels -= 1;
                let Stage::Attempt(attempt) = state.clients[client].stage else {
                    unreachable!("only attempts are cancelled");
                };
                state.clients[client].stage = Stage::Idle;
                let node = self.scope.homes[client];
                self.event(state, node, |core| core.cancel(attempt));
            }
            Action::Downgrade { client } => self.downgrade(state, client),
            Action::Leak { client } => self.leak(state, client),
            Action::Run { packet } => {
                let Packet::Request { node, ask, sent, is_late } = state.network.remove(packet)
                else {
                    unreachable!("only requests run");
                };
                let mut content = self.run(state, node, ask, is_late);
                if matches!(ask, Ask::Renew { .. } | Ask::Confirm { .. } | Ask::Downgrade { .. }) {
                    // The first end is another member's, and the node's core does not read it in
                    // the reply to these commands.
                    content.left = 0;
                }
                if !is_late && !state.nodes[usize::from(node)].is_dead {
                    put(state, Packet::Reply { node, ask, sent, content });
                }
            }
            Action::Deliver { packet } => match state.network.remove(packet) {
                Packet::Reply { node, ask, sent, content } => {
                    self.replied(state, node, ask, sent, &content);
                }
                Packet::Grant { members, left } => self.pushed(state, members, left),
                Packet::Batch { members, left } => self.batch_pushed(state, &members, left),
                Packet::Revoked { members } => {
                    state.record.unnotified &= !members;
                    self.revoked(state, members);
                }
                Packet::Superseded { members } => self.superseded(state, members),
                Packet::Request { .. } => unreachable!("requests run"),
            },
            Action::Fail { packet, stays } => {
                state.budget.losses -= 1;
                let (node, ask, sent) = match state.network.remove(packet) {
                    Packet::Request { node, ask, sent, .. } => {
                        if stays {
                            put(
                                state,
                                Packet::Request { node, ask, sent: Sent::NEVER, is_late: true },
                            );
                        }
                        (node, ask, sent)
                    }
                    Packet::Reply { node, ask, sent, .. } => (node, ask, sent),
                    _ => unreachable!("a message is not waited for"),
                };
                self.unanswered(state, node, ask, sent);
            }
            Action::Lose { packet } => {
                let lost = state.network.remove(packet);
                if !matches!(lost, Packet::Request { .. } | Packet::Reply { .. }) {
                    state.budget.losses -= 1;
                }
            }
            Action::Crash { node } => {
                state.budget.crashes -= 1;
                self.crash(state, node);
            }
            Action::Unsubscribe { node } => {
                state.nodes[usize::from(node)].is_connected = false;
                if !state.nodes[usize::from(node)].is_dead {
                    state.budget.cuts -= 1;
                    self.subscribed(state, node, false);
                }
            }
            Action::Resubscribe { node } => {
                state.nodes[usize::from(node)].is_connected = true;
                self.subscribed(state, node, true);
                // A grant under way is confirmed by the node. A guard that has ended is notified by
                // the next renewal.
                let core = &state.nodes[usize::from(node)].core;
                let has_guard = |member: &u8| {
                    let phase = core.phase(self.number(state, *member));
                    matches!(phase, Some(Phase::Held | Phase::Offered))
                };
                let notified = bits(state.record.unnotified)
                    .filter(|member| node_of(*member) == usize::from(node) && !has_guard(member));
                let notified: Vec<u8> = notified.collect();
                state.record.unnotified &= !together(notified);
            }
            Action::Force => {
                state.budget.forced -= 1;
                self.run(state, OPERATOR, Ask::Force, false);
            }
            Action::Forget => {
                state.budget.forgets -= 1;
                if let Server::Queue { counter, .. } = Arc::make_mut(&mut state.server) {
                    *counter = None;
                }
            }
            Action::Pass { ms } => {
                state.budget.passes -= 1;
                self.pass(state, ms);
            }
        }
        self.forget(state);
    }

    pub(crate) fn pass(&self, state: &mut State, ms: u32) {
        let batch = state.server.batch(self);
        state.now += ms;
        if state.server.books(self, at_ms(state.now)).live().next().is_none() {
            state.record.lapsed |= together(batch);
        }
        Arc::make_mut(&mut state.server).expire(at_ms(state.now));
        // Waiters silent for too long may have lost their positions, or still have them.
        let now = state.now;
        let places = state.server.places(self);
        state.record.line.retain_mut(|waiting| {
            if waiting.until <= now {
                waiting.until = 0;
            }
            waiting.until > 0 || places.contains(&waiting.member)
        });
    }

    fn begin(&self, state: &mut State, client: usize, waits: bool) {
        let node = self.scope.homes[client];
        let request = self.wish(node, waits);
        let begun = self.event(state, node, |core| core.begin(request, ()));
        let (attempt, request) = begun.expect("no node is closed");
        state.clients[client] =
            Client { stage: Stage::Attempt(attempt), left: state.clients[client].left - 1 };
        if let Some(request) = request {
            self.send(state, node, &request);
        }
    }

    /// From now on the client relies only on a read, whether or not the server receives the
    /// downgrade.
    fn downgrade(&self, state: &mut State, client: usize) {
        state.budget.downgrades -= 1;
        let Stage::Guard(number) = state.clients[client].stage else {
            unreachable!("only guards are downgraded");
        };
        let node = self.scope.homes[client];
        let hold = state.nodes[usize::from(node)].core.held_as(number);
        state.record.downgraded |= 1 << self.id_of(node, hold);
        let request = self.event(state, node, |core| core.downgrade(number));
        self.send(state, node, &request.expect("it is held"));
    }

    /// Leaks the client's hold, which ends by itself.
    fn leak(&self, state: &mut State, client: usize) {
        state.budget.leaks -= 1;
        let Stage::Guard(number) = state.clients[client].stage else {
            unreachable!("only guards are leaked");
        };
        let node = self.scope.homes[client];
        let hold = state.nodes[usize::from(node)].core.held_as(number);
        state.record.leaked |= 1 << self.id_of(node, hold);
        self.event(state, node, |core| core.leak(number));
        state.clients[client].stage = Stage::Idle;
    }

    /// Makes states equal that differ only in what has no further effect.
    fn forget(&self, state: &mut State) {
        // A reply without any news arrives immediately.
        while let Some(at) = state.network.iter().position(|packet| {
            matches!(packet, Packet::Reply { ask, content, .. } if is_mere_receipt(*ask, content))
                && !self.is_awaited(state, packet)
        }) {
            let Packet::Reply { node, ask, sent, content } = state.network.remove(at) else {
                unreachable!("only replies are receipts");
            };
            self.replied(state, node, ask, sent, &content);
        }
        let network = std::mem::take(&mut state.network);
        state.network = network.into_iter().filter(|packet| self.matters(state, packet)).collect();
        for node in &mut state.nodes {
            node.take_print();
        }
    }

    /// Returns true if a guard's owner waits for this packet.
    fn is_awaited(&self, state: &State, packet: &Packet) -> bool {
        let Packet::Reply { node, ask, .. } = packet else { return false };
        let Some(left) = given_back(*ask) else { return false };
        let mut clients = state.clients.iter().zip(self.scope.homes);
        clients.any(|(client, home)| {
            matches!(client.stage, Stage::Releasing(number)
                if home == node && left & (1 << self.id_of(*node, number)) != 0)
        })
    }

    /// Returns true if any node would act on this packet.
    fn matters(&self, state: &State, packet: &Packet) -> bool {
        let phase =
            |member: u8| state.nodes[node_of(member)].core.phase(self.number(state, member));
        match packet {
            Packet::Request { .. } => true,
            Packet::Grant { members, .. } | Packet::Superseded { members } => {
                bits(*members).any(|member| {
                    matches!(phase(member), Some(Phase::Asking | Phase::Parked | Phase::Waiting))
                })
            }
            Packet::Batch { members, .. } => members.iter().any(|member| {
                matches!(phase(*member), Some(Phase::Asking | Phase::Parked | Phase::Waiting))
            }),
            Packet::Revoked { members } => bits(*members).any(|member| phase(member).is_some()),
            Packet::Reply { ask: Ask::Renew { member } | Ask::Confirm { member }, .. } => {
                matches!(
                    phase(*member),
                    Some(Phase::Confirming | Phase::Held | Phase::ConfirmingBatch | Phase::Serving)
                )
            }
            Packet::Reply { ask: Ask::Touch { members }, content, sent, .. } => {
                let news = |member: u8| {
                    let core = &state.nodes[node_of(member)].core;
                    core.anchor(self.number(state, member)) != Some(moment(sent.at))
                };
                let Outcome::Touched { waiting, .. } = content.outcome else { return true };
                has_news(content) || waiting != *members || bits(waiting).any(news)
            }
            Packet::Reply { ask: Ask::Downgrade { .. }, content, .. } => {
                // The reply always reports the node's own hold.
                content.grants.len() > 1 || content.more || content.outcome != Outcome::Held(true)
            }
            Packet::Reply { .. } => true,
        }
    }

    /// Ends a node's process. Its requests may still run, and packets to it are lost.
    fn crash(&self, state: &mut State, node: u8) {
        state.nodes[usize::from(node)].is_dead = true;
        *state.core(node) = self.core(&self.ids[usize::from(node)]);
        for (client, home) in state.clients.iter_mut().zip(self.scope.homes) {
            if *home == node {
                *client = Client { stage: Stage::Idle, left: 0 };
            }
        }
        state.network.retain(|packet| packet.addressee() != Some(node));
        for packet in &mut state.network {
            if let Packet::Request { node: from, is_late, sent, .. } = packet
                && *from == node
            {
                (*is_late, *sent) = (true, Sent::NEVER);
            }
        }
        state.network.sort_unstable();
    }
}

/// Returns the members that a request releases or takes out of the queue; `None` for other
/// requests.
pub(crate) fn given_back(ask: Ask) -> Option<Bits> {
    match ask {
        Ask::Release { member } => Some(1 << member),
        Ask::Leave { members, served, .. } if served != members => Some(members & !served),
        _ => None,
    }
}

/// Returns true if a reply only reports that a release or a leave has run.
fn is_mere_receipt(ask: Ask, content: &ReplyContent) -> bool {
    given_back(ask).is_some() && !has_news(content)
}

/// Returns true if a reply reports more than the request's outcome, such as grants.
fn has_news(content: &ReplyContent) -> bool {
    !content.grants.is_empty() || content.more
}

pub(crate) fn put(state: &mut State, packet: Packet) {
    let at = state.network.partition_point(|other| *other < packet);
    state.network.insert(at, packet);
}
