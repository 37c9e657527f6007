//! What a node does, as its engine does it: ask, take in what every reply tells, give up, give back.

use crate::act::put;
use crate::event::Event;
use crate::model::{CLAIM_MS, Locking};
use crate::packet::{Ask, Outcome, Packet, Told};
use crate::state::{Client, Id, NUMBERS, Phase, State};
use crate::variant::Variant;

/// Until when a lease of `left` is certain, counted from `anchor`: a hundredth earlier, at least 5 ms.
fn deadline(anchor: u32, left: u32) -> u32 {
    anchor + left.saturating_sub((left / 100).max(5))
}

pub(crate) fn send(state: &mut State, node: u8, ask: Ask) {
    put(state, Packet::Request { node, ask, sent: state.now, is_late: false });
}

impl Locking {
    pub(crate) fn begin(&self, state: &mut State, client: usize, waits: bool) {
        state.clients[client] = Client {
            phase: Phase::Asking,
            member: self.next_member(state, client),
            anchor: state.now,
            is_ambiguous: false,
            is_cancelled: false,
            waits,
            left: state.clients[client].left - 1,
        };
        self.ask(state, client);
    }

    fn next_member(&self, state: &mut State, client: usize) -> Id {
        let home = self.scope.homes[client];
        let number = &mut state.nodes[usize::from(home)].next_number;
        *number += 1;
        assert!(*number <= NUMBERS, "a node of the model has too few numbers");
        home * NUMBERS + *number - 1
    }

    pub(crate) fn ask(&self, state: &mut State, client: usize) {
        let Client { member, waits, .. } = state.clients[client];
        if waits && !state.nodes[usize::from(self.scope.homes[client])].is_connected {
            // No grant could reach it.
            state.clients[client].phase = Phase::Parked;
            return;
        }
        state.clients[client].phase = Phase::Asking;
        send(state, self.scope.homes[client], Ask::Acquire { member, waits });
    }

    pub(crate) fn release(&self, state: &mut State, client: usize) {
        let Client { member, is_ambiguous, .. } = state.clients[client];
        state.clients[client].phase = Phase::Ending;
        let ask = if is_ambiguous {
            Ask::Leave { member, is_ambiguous, ends: true }
        } else {
            Ask::Release { member }
        };
        send(state, self.scope.homes[client], ask);
    }

    /// The reaper's. One copy at a time is enough: it is repeated until it is answered.
    pub(crate) fn leave(&self, state: &mut State, member: Id, is_ambiguous: bool) {
        if self.variant == Variant::ForgetsToLeave {
            return;
        }
        let is_ambiguous = is_ambiguous && self.variant != Variant::NoTombstone;
        let ask = Ask::Leave { member, is_ambiguous, ends: false };
        let is_on_its_way = |packet: &Packet| {
            matches!(packet,
            Packet::Request { ask: other, is_late: false, .. } if *other == ask)
        };
        if !state.network.iter().any(is_on_its_way) {
            send(state, member / NUMBERS, ask);
        }
    }

    pub(crate) fn cancel(&self, state: &mut State, client: usize) {
        let Client { phase, member, is_ambiguous, .. } = state.clients[client];
        match phase {
            // Its answer will find it cancelled.
            Phase::Asking => state.clients[client].is_cancelled = true,
            Phase::Parked if !is_ambiguous => state.clients[client].phase = Phase::Idle,
            _ => {
                state.clients[client].phase = Phase::Idle;
                self.leave(state, member, is_ambiguous);
            }
        }
    }

    fn open(&self, state: &State, member: Id) -> Option<usize> {
        state.clients.iter().position(|client| client.member == member && client.phase.is_open())
    }

    /// Whether a guard, or a release on its way, accounts for the hold.
    fn is_held_here(&self, state: &State, member: Id) -> bool {
        let is_held = |phase| matches!(phase, Phase::Holding { .. } | Phase::Ending);
        state.clients.iter().any(|client| client.member == member && is_held(client.phase))
    }

    pub(crate) fn replied(&self, state: &mut State, node: u8, ask: Ask, sent: u32, told: &Told) {
        match (ask, told.outcome) {
            (Ask::Acquire { member, .. }, outcome) => self.acquired(state, member, sent, outcome),
            (Ask::Renew { member, confirms }, Outcome::Held(held)) => {
                let left = if held { told.left } else { 0 };
                return self.renewed(state, member, confirms, sent, left);
            }
            (Ask::Release { member } | Ask::Leave { member, ends: true, .. }, _) => {
                self.ended(state, member);
            }
            _ => {}
        }
        self.absorb(state, sent, told);
        if let Outcome::Touched { waiting, gone } = told.outcome {
            self.touched(state, node, sent, waiting, gone);
        }
    }

    fn acquired(&self, state: &mut State, member: Id, sent: u32, outcome: Outcome) {
        let Some(client) = self.open(state, member) else { return };
        let Client { phase, is_ambiguous, is_cancelled, .. } = state.clients[client];
        match outcome {
            Outcome::Queued if is_cancelled => {
                state.clients[client].phase = Phase::Idle;
                self.leave(state, member, is_ambiguous);
            }
            // A grant may have overtaken this answer.
            Outcome::Queued if matches!(phase, Phase::Asking | Phase::Parked) => {
                state.clients[client].phase = Phase::Waiting;
                state.clients[client].anchor = sent;
            }
            Outcome::Busy | Outcome::Full => {
                state.clients[client].phase = Phase::Idle;
                if is_ambiguous {
                    self.leave(state, member, true);
                }
            }
            Outcome::Refused => self.place_lost(state, client),
            // The grant is in the reply's second part.
            _ => {}
        }
    }

    /// The server does not know the member any more: its attempt goes on as a new one, at the tail.
    fn place_lost(&self, state: &mut State, client: usize) {
        self.meet(Event::PlaceLost);
        let Client { member, is_ambiguous, is_cancelled, .. } = state.clients[client];
        if is_ambiguous || is_cancelled {
            self.leave(state, member, is_ambiguous);
        }
        if is_cancelled {
            state.clients[client].phase = Phase::Idle;
            return;
        }
        if self.variant != Variant::KeepsItsMember {
            state.clients[client].member = self.next_member(state, client);
        }
        state.clients[client].anchor = state.now;
        state.clients[client].is_ambiguous = false;
        self.ask(state, client);
    }

    fn absorb(&self, state: &mut State, sent: u32, told: &Told) {
        let Some(member) = told.grant else { return };
        let is_known = self.granted(state, member, told.left, Some(sent));
        if !is_known && !state.network.iter().any(|packet| is_leave(packet, member)) {
            self.leave(state, member, false);
        }
    }

    pub(crate) fn pushed(&self, state: &mut State, member: Id, left: u32) {
        self.granted(state, member, left, None);
    }

    /// A member of ours holds the lock, with `left` counted from `anchor`, or from its own anchor if
    /// it was told unasked. Returns whether somebody waits for it or holds it.
    fn granted(&self, state: &mut State, member: Id, left: u32, anchor: Option<u32>) -> bool {
        let Some(client) = self.open(state, member) else {
            return self.is_held_here(state, member);
        };
        let Client { phase, is_ambiguous, is_cancelled, .. } = state.clients[client];
        if phase == Phase::Confirming {
            return true;
        }
        let anchor = match (self.variant, anchor) {
            (Variant::CountsFromTheReply, Some(_)) | (Variant::CountsFromTheMessage, None) => {
                state.now
            }
            (_, anchor) => anchor.unwrap_or(state.clients[client].anchor),
        };
        let certain = deadline(anchor, left).saturating_sub(state.now);
        let waiter = &mut state.clients[client];
        if certain == 0 && is_cancelled {
            waiter.phase = Phase::Idle;
            self.leave(state, member, is_ambiguous);
        } else if certain == 0 {
            // Too late to be a guard: a touch decides.
            waiter.phase = Phase::Waiting;
        } else if certain < CLAIM_MS / 2 {
            waiter.phase = Phase::Confirming;
            send(state, member / NUMBERS, Ask::Renew { member, confirms: true });
        } else {
            self.seize(state, client, deadline(anchor, left));
        }
        true
    }

    /// The guard is made; if nobody is there to take it, it is dropped at once.
    fn seize(&self, state: &mut State, client: usize, deadline: u32) {
        let Client { member, is_ambiguous, is_cancelled, .. } = state.clients[client];
        if is_cancelled {
            state.clients[client].phase = Phase::Idle;
            self.leave(state, member, is_ambiguous);
        } else {
            state.clients[client].phase = Phase::Holding { deadline, is_lost: false };
        }
    }

    fn renewed(&self, state: &mut State, member: Id, confirms: bool, sent: u32, left: u32) {
        let until = deadline(sent, left);
        if confirms {
            let confirmed =
                |client: &Client| client.member == member && client.phase == Phase::Confirming;
            let Some(client) = state.clients.iter().position(confirmed) else { return };
            if until > state.now {
                self.meet(Event::Confirmed);
                self.seize(state, client, until);
            } else {
                state.clients[client].phase = Phase::Waiting;
            }
            return;
        }
        let now = state.now;
        for client in state.clients.iter_mut().filter(|client| client.member == member) {
            if let Phase::Holding { deadline, is_lost } = &mut client.phase {
                // Whoever asked in between has been told that it was lost.
                let is_over = *is_lost || now >= *deadline;
                if left == 0 || is_over {
                    *is_lost = true;
                } else {
                    *deadline = (*deadline).max(until);
                }
            }
        }
    }

    fn touched(&self, state: &mut State, node: u8, sent: u32, waiting: u32, gone: u32) {
        for number in 0..NUMBERS {
            let member = node * NUMBERS + number;
            let Some(client) = self.open(state, member) else { continue };
            if waiting & (1 << member) != 0 {
                state.clients[client].anchor = sent;
            } else if gone & (1 << member) != 0 {
                self.place_lost(state, client);
            }
        }
    }

    fn ended(&self, state: &mut State, member: Id) {
        for client in state.clients.iter_mut().filter(|client| client.member == member) {
            if client.phase == Phase::Ending {
                client.phase = Phase::Idle;
            }
        }
    }

    pub(crate) fn revoked(&self, state: &mut State, member: Id) {
        for client in state.clients.iter_mut().filter(|client| client.member == member) {
            if let Phase::Holding { is_lost, .. } = &mut client.phase {
                *is_lost = true;
            }
        }
    }

    /// Nobody answers any more, and whether the request ran or will run is not known.
    pub(crate) fn unanswered(&self, state: &mut State, node: u8, ask: Ask) {
        match ask {
            Ask::Acquire { member, .. } => {
                let Some(client) = self.open(state, member) else { return };
                state.clients[client].is_ambiguous = true;
                if state.clients[client].is_cancelled {
                    state.clients[client].phase = Phase::Idle;
                    self.leave(state, member, true);
                } else {
                    state.clients[client].phase = Phase::Parked;
                }
            }
            Ask::Renew { member, confirms: true } => {
                let Some(client) = self.open(state, member) else { return };
                if state.clients[client].phase == Phase::Confirming {
                    state.clients[client].phase = Phase::Waiting;
                }
            }
            Ask::Release { member } => {
                self.ended(state, member);
                self.leave(state, member, false);
            }
            Ask::Leave { member, is_ambiguous, ends } => {
                if ends {
                    self.ended(state, member);
                }
                debug_assert_eq!(node, member / NUMBERS);
                self.leave(state, member, is_ambiguous);
            }
            // Both are asked again by themselves.
            Ask::Renew { .. } | Ask::Touch { .. } | Ask::Force => {}
        }
    }
}

/// Whether the packet is a leave of this member, on its way.
fn is_leave(packet: &Packet, member: Id) -> bool {
    matches!(packet, Packet::Request { ask: Ask::Leave { member: of, .. }, .. } if *of == member)
}
