//! What a step does: to the clients, to what is on its way, and to time.

use std::sync::Arc;

use crate::client::send;
use crate::laws::at_ms;
use crate::model::{Action, Locking};
use crate::packet::{Ask, Outcome, Packet};
use crate::server::bits;
use crate::state::{Client, NUMBERS, Phase, State};

/// Who asks for an operator.
pub(crate) const OPERATOR: u8 = u8::MAX;

impl Locking {
    pub(crate) fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Begin { client, waits } => self.begin(state, client, waits),
            Action::AskAgain { client } => self.ask(state, client),
            Action::Touch { node } => {
                let members = self.line(state, node);
                send(state, node, Ask::Touch { members });
            }
            Action::Renew { client } => {
                let Client { member, .. } = state.clients[client];
                send(state, self.scope.homes[client], Ask::Renew { member, confirms: false });
            }
            Action::Release { client } => self.release(state, client),
            Action::Drop { client } => {
                let Client { member, is_ambiguous, .. } = state.clients[client];
                state.clients[client].phase = Phase::Idle;
                self.leave(state, member, is_ambiguous);
            }
            Action::Cancel { client } => {
                state.budget.cancels -= 1;
                self.cancel(state, client);
            }
            Action::Run { packet } => {
                let Packet::Request { node, ask, sent, is_late } = state.network.remove(packet)
                else {
                    unreachable!("only requests run");
                };
                let told = self.run(state, node, ask, is_late);
                if !is_late && !state.nodes[usize::from(node)].is_dead {
                    put(state, Packet::Reply { node, ask, sent, told });
                }
            }
            Action::Deliver { packet } => match state.network.remove(packet) {
                Packet::Reply { node, ask, sent, told } => {
                    self.replied(state, node, ask, sent, &told);
                }
                Packet::Grant { member, left } => self.pushed(state, member, left),
                Packet::Revoked { member } => self.revoked(state, member),
                Packet::Request { .. } => unreachable!("requests run"),
            },
            Action::Fail { packet, stays } => {
                state.budget.losses -= 1;
                let (node, ask) = match state.network.remove(packet) {
                    Packet::Request { node, ask, .. } => {
                        if stays {
                            put(state, Packet::Request { node, ask, sent: 0, is_late: true });
                        }
                        (node, ask)
                    }
                    Packet::Reply { node, ask, .. } => (node, ask),
                    _ => unreachable!("nobody waits for a message"),
                };
                self.unanswered(state, node, ask);
            }
            Action::Lose { packet } => {
                let lost = state.network.remove(packet);
                if matches!(lost, Packet::Grant { .. } | Packet::Revoked { .. }) {
                    state.budget.losses -= 1;
                }
            }
            Action::Crash { node } => {
                state.budget.crashes -= 1;
                self.crash(state, node);
            }
            Action::Unsubscribe { node } => {
                let node = &mut state.nodes[usize::from(node)];
                node.is_connected = false;
                if !node.is_dead {
                    state.budget.cuts -= 1;
                }
            }
            Action::Resubscribe { node } => state.nodes[usize::from(node)].is_connected = true,
            Action::Force => {
                state.budget.forced -= 1;
                self.run(state, OPERATOR, Ask::Force, false);
            }
            Action::Pass { ms } => {
                state.budget.passes -= 1;
                state.now += ms;
                // Their places are forfeit; who is late is no longer in the line.
                let now = state.now;
                state.record.line.retain(|(_, until)| *until > now);
                Arc::make_mut(&mut state.server).expire(at_ms(state.now));
            }
        }
        self.forget(state);
    }

    /// What can make no difference any more is the same in all states that differ in nothing else.
    fn forget(&self, state: &mut State) {
        for client in &mut state.clients {
            match client.phase {
                Phase::Idle => {
                    let (member, left) = (client.member / NUMBERS * NUMBERS, client.left);
                    *client = Client { member, left, ..Client::IDLE };
                }
                Phase::Holding { .. } | Phase::Ending => client.anchor = 0,
                _ => {}
            }
        }
        let clients = &state.clients;
        state.network.retain(|packet| self.matters(clients, packet));
    }

    /// Whether anybody would do anything when it arrives.
    fn matters(&self, clients: &[Client], packet: &Packet) -> bool {
        let is_any = |member: u8, phase: fn(Phase) -> bool| {
            clients.iter().any(|client| client.member == member && phase(client.phase))
        };
        match packet {
            Packet::Request { .. } => true,
            Packet::Grant { member, .. } => is_any(*member, Phase::is_open),
            Packet::Revoked { member } => is_any(*member, |phase| phase != Phase::Idle),
            Packet::Reply { ask: Ask::Renew { member, confirms }, .. } => {
                let confirms = *confirms;
                is_any(*member, |phase| matches!(phase, Phase::Confirming | Phase::Holding { .. }))
                    && is_any(*member, |phase| phase == Phase::Confirming) == confirms
            }
            Packet::Reply { ask: Ask::Leave { ends: false, .. }, told, .. } => told.grant.is_some(),
            Packet::Reply { ask: Ask::Touch { members }, told, sent, .. } => {
                let news = |member| {
                    let known = |client: &Client| client.member == member && client.anchor == *sent;
                    !clients.iter().any(known)
                };
                let Outcome::Touched { waiting, .. } = told.outcome else { return true };
                told.grant.is_some() || waiting != *members || bits(waiting).any(news)
            }
            Packet::Reply { .. } => true,
        }
    }

    /// A process ends: what it has sent may still run, what was sent to it arrives nowhere.
    fn crash(&self, state: &mut State, node: u8) {
        state.nodes[usize::from(node)].is_dead = true;
        for (client, home) in state.clients.iter_mut().zip(self.scope.homes) {
            if *home == node {
                *client = Client { member: home * NUMBERS, ..Client::IDLE };
            }
        }
        state.network.retain(|packet| match packet {
            Packet::Request { .. } => true,
            Packet::Reply { node: to, .. } => *to != node,
            Packet::Grant { member, .. } | Packet::Revoked { member } => member / NUMBERS != node,
        });
        for packet in &mut state.network {
            if let Packet::Request { node: from, is_late, sent, .. } = packet
                && *from == node
            {
                (*is_late, *sent) = (true, 0);
            }
        }
        state.network.sort_unstable();
    }
}

pub(crate) fn put(state: &mut State, packet: Packet) {
    let at = state.network.partition_point(|other| *other < packet);
    state.network.insert(at, packet);
}
