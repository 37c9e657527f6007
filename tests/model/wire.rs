//! Between a node's table and the network: what goes out as a packet, and what a packet tells the
//! table.

use lockcore::FencingToken;
use lockcore::internals::node::{Ask as Request, Core, Due, Effect, Moment, Note, Outcome as End};
use lockcore::internals::protocol::{Answer, Command};
use lockcore::internals::{
    Acquired, Event as Message, Grant, Leaving, Left, Link, Presence, Released, Renewed, Reply,
    Share, StoreError, Touched,
};

use crate::act::put;
use crate::event::Event;
use crate::model::Locking;
use crate::packet::{Ask, Outcome, Packet, Told};
use crate::server::{bits, together};
use crate::state::{Bits, Id, NUMBERS, ROUNDS, Stage, State, node_of};
use crate::variant::Variant;

pub(crate) type Effects = Vec<Effect<()>>;

/// A time of the model as the table counts it.
pub(crate) fn moment(ms: u32) -> Moment {
    Moment::from_micros(u64::from(ms) * 1_000)
}

impl Locking {
    /// The number in its node's table of a member.
    pub(crate) fn number(&self, state: &State, id: Id) -> u64 {
        let attempt = u64::from(id % NUMBERS / ROUNDS) + 1;
        let round = u64::from(id % ROUNDS);
        if self.variant == Variant::KeepsItsMember {
            let core = &state.nodes[node_of(id)].core;
            return core.round(attempt).unwrap_or(Core::<()>::number_of(attempt, 0));
        }
        Core::<()>::number_of(attempt, round)
    }

    /// The member on the wire that has this number in its node's table.
    pub(crate) fn id_of(&self, node: u8, number: u64) -> Id {
        let (attempt, round) = Core::<()>::parts_of(number);
        let round = if self.variant == Variant::KeepsItsMember { 0 } else { round as u8 };
        let attempt = attempt as u8 - 1;
        assert!(
            attempt < NUMBERS / ROUNDS && round < ROUNDS,
            "a node of the model has too few numbers"
        );
        node * NUMBERS + attempt * ROUNDS + round
    }

    /// One event of a node's table, and what it makes of it.
    pub(crate) fn event<T>(
        &self,
        state: &mut State,
        node: u8,
        event: impl FnOnce(&mut Core<()>, Moment, &mut Effects) -> T,
    ) -> T {
        let now = moment(state.now);
        let mut effects = Vec::new();
        let value = event(state.core(node), now, &mut effects);
        self.follow(state, node, effects);
        value
    }

    fn follow(&self, state: &mut State, node: u8, effects: Effects) {
        let mut wakes = false;
        for effect in effects {
            match effect {
                Effect::Send(request) => self.send(state, node, &request),
                Effect::Wake(()) => wakes = true,
                Effect::Observe(Note::PlaceLost { .. }) => self.meet(Event::PlaceLost),
                _ => {}
            }
        }
        if wakes {
            self.look(state, node);
        }
    }

    /// Those who wait look what has become of it, as soon as they are woken.
    fn look(&self, state: &mut State, node: u8) {
        let now = moment(state.now);
        for client in 0..state.clients.len() {
            let Stage::Attempt(attempt) = state.clients[client].stage else { continue };
            if self.scope.homes[client] != node {
                continue;
            }
            let mut effects = Vec::new();
            let end = state.core(node).take(now, attempt, &mut effects);
            match end {
                End::Waits => {}
                End::Granted { number, .. } => {
                    state.clients[client].stage = Stage::Guard(number);
                }
                End::Refused(_) => state.clients[client].stage = Stage::Idle,
            }
            self.follow(state, node, effects);
        }
    }

    /// Puts a request on its way.
    pub(crate) fn send(&self, state: &mut State, node: u8, request: &Request) {
        let id = |member: &lockcore::internals::Member| {
            let (_, ours) = member.parts().expect("all members are ours");
            self.id_of(node, ours.number)
        };
        let ask = match &request.command {
            Command::Acquire { member, mode, .. } => {
                Ask::Acquire { member: id(member), waits: *mode == lockcore::internals::Mode::Wait }
            }
            Command::Release { member } => Ask::Release { member: id(member) },
            Command::Renew { member } => Ask::Renew { member: id(member) },
            Command::Touch { members } => Ask::Touch { members: together(members.iter().map(id)) },
            Command::Downgrade { member } => Ask::Downgrade { member: id(member) },
            Command::Leave { leaving } => {
                let [Leaving { member, ambiguous }] = leaving.as_slice() else {
                    unreachable!("the model has them leave one by one");
                };
                if self.variant == Variant::ForgetsToLeave {
                    let ask = Ask::Leave { member: id(member), is_ambiguous: false };
                    let outcome = Outcome::Left(true);
                    let told = Told { outcome, left: 0, grants: Vec::new(), more: false };
                    let answer = self.answer(state, ask, &told);
                    return self.event(state, node, |core, now, fx| {
                        core.replied(now, request, &answer, fx);
                    });
                }
                let is_ambiguous = *ambiguous && self.variant != Variant::NoTombstone;
                Ask::Leave { member: id(member), is_ambiguous }
            }
            Command::ForceRelease | Command::Inspect => unreachable!("no node asks for it"),
        };
        put(state, Packet::Request { node, ask, sent: state.now, is_late: false });
    }

    /// The request as the table has sent it.
    fn request(&self, state: &State, node: u8, ask: Ask, sent: u32) -> Request {
        let member = |id: Id| {
            let number = self.number(state, id);
            let core = &state.nodes[usize::from(node)].core;
            core.member(number).cloned().unwrap_or_else(|| self.member(id).clone())
        };
        let command = match ask {
            Ask::Acquire { member: id, waits } => {
                self.command(Ask::Acquire { member: id, waits }, member)
            }
            ask => self.command(ask, member),
        };
        let lock = self.lock.clone();
        Request { lock, command, sent: moment(sent), background: false }
    }

    /// A reply arrives.
    pub(crate) fn replied(&self, state: &mut State, node: u8, ask: Ask, sent: u32, told: &Told) {
        let sent = match self.variant {
            Variant::CountsFromTheReply => state.now,
            _ => sent,
        };
        let request = self.request(state, node, ask, sent);
        let answer = self.answer(state, ask, told);
        let had = state.guards(node);
        self.event(state, node, |core, now, fx| core.replied(now, &request, &answer, fx));
        if matches!(ask, Ask::Renew { .. }) && state.guards(node) > had {
            self.meet(Event::Confirmed);
        }
        self.released(state, node, ask);
    }

    /// The owner of a guard hears what became of its release, whatever that is.
    fn released(&self, state: &mut State, node: u8, ask: Ask) {
        let (Ask::Release { member } | Ask::Leave { member, .. }) = ask else { return };
        for (client, home) in state.clients.iter_mut().zip(self.scope.homes) {
            if let Stage::Releasing(number) = client.stage
                && *home == node
                && self.id_of(node, number) == member
            {
                client.stage = Stage::Idle;
            }
        }
    }

    /// No answer comes any more, and whether the request ran or will run is not known.
    pub(crate) fn unanswered(&self, state: &mut State, node: u8, ask: Ask, sent: u32) {
        let request = self.request(state, node, ask, sent);
        let error = StoreError::ambiguous("lost");
        self.event(state, node, |core, now, fx| core.unanswered(now, &request, &error, fx));
        self.released(state, node, ask);
    }

    /// A message tells of grants.
    pub(crate) fn pushed(&self, state: &mut State, members: Bits, left: u32) {
        let Some(first) = bits(members).next() else { return };
        let (node, left_ms) = (first / NUMBERS, u64::from(left));
        if self.variant == Variant::CountsFromTheMessage {
            let (lock, sent) = (self.lock.clone(), moment(state.now));
            let request = Request { lock, command: Command::ForceRelease, sent, background: false };
            let outcome = Outcome::Released(false);
            let told = Told { outcome, left, grants: vec![(first, left)], more: false };
            let answer = self.answer(state, Ask::Force, &told);
            return self
                .event(state, node, |core, now, fx| core.replied(now, &request, &answer, fx));
        }
        let Grant { member, token } = self.grant(state, first);
        let message = match self.is_shared() {
            true => {
                let number = |member| (self.number(state, member), left_ms);
                Message::GrantedSeveral { token, grants: bits(members).map(number).collect() }
            }
            false => Message::Granted { member, token, left_ms },
        };
        self.event(state, node, |core, now, fx| core.heard(now, message, fx));
    }

    pub(crate) fn revoked(&self, state: &mut State, members: Bits) {
        let Some(first) = bits(members).next() else { return };
        let message = match self.is_shared() {
            true => {
                let numbers = bits(members).map(|member| self.number(state, member));
                Message::RevokedSeveral { numbers: numbers.collect() }
            }
            false => Message::Revoked { member: self.grant(state, first).member },
        };
        self.event(state, first / NUMBERS, |core, now, fx| core.heard(now, message, fx));
    }

    /// The node's subscription goes, or is there again.
    pub(crate) fn subscribed(&self, state: &mut State, node: u8, is_up: bool) {
        let link = match is_up {
            true => Link::Up,
            false => Link::Down { reason: "cut".into() },
        };
        self.event(state, node, |core, now, fx| {
            core.linked(now, Link::Up, link);
            if is_up {
                core.heard(now, Message::Resubscribed, fx);
            }
        });
    }

    pub(crate) fn attend(&self, state: &mut State, node: u8, due: &Due) {
        self.event(state, node, |core, now, fx| core.attend(now, due, fx));
    }

    /// Tokens are the server's affair: the table passes on what it is told.
    fn grant(&self, state: &State, id: Id) -> Grant {
        let number = self.number(state, id);
        let core = &state.nodes[node_of(id)].core;
        let member = core.member(number).unwrap_or_else(|| self.member(id)).clone();
        Grant { member, token: FencingToken::try_from(1).expect("small") }
    }

    fn answer(&self, state: &State, ask: Ask, told: &Told) -> Answer {
        let rest = self.rest(state, ask, told);
        let acquired = |outcome, rest| Answer::Acquired(with(outcome, rest));
        match (ask, told.outcome) {
            (Ask::Touch { members }, Outcome::Touched { waiting, gone }) => {
                let members = bits(members).map(|id| match 1 << id {
                    bit if waiting & bit != 0 => Presence::Waiting,
                    bit if gone & bit != 0 => Presence::Gone,
                    _ => Presence::Holding,
                });
                let touched = Touched { members: members.collect(), listeners: 1 };
                Answer::Touched(with(touched, rest))
            }
            (_, Outcome::Granted) => acquired(Acquired::Granted, rest),
            (_, Outcome::Queued) => acquired(Acquired::Queued { position: 0 }, rest),
            (_, Outcome::Busy) => acquired(Acquired::Busy, rest),
            (_, Outcome::Full) => acquired(Acquired::Full, rest),
            (_, Outcome::Refused) => acquired(Acquired::Refused, rest),
            (_, Outcome::Released(true)) => Answer::Released(with(Released::Released, rest)),
            (_, Outcome::Released(false)) => Answer::Released(with(Released::NotHeld, rest)),
            (_, Outcome::Held(true)) => Answer::Renewed(with(Renewed::Held, rest)),
            (_, Outcome::Held(false)) => Answer::Renewed(with(Renewed::NotHeld, rest)),
            (_, Outcome::Left(true)) => Answer::Left(with(vec![Left::Left], rest)),
            (_, Outcome::Left(false)) => Answer::Left(with(vec![Left::Absent], rest)),
            (_, Outcome::Touched { .. }) => unreachable!("only a touch is answered so"),
        }
    }

    /// What an answer says besides its outcome.
    fn rest(&self, state: &State, ask: Ask, told: &Told) -> Reply<()> {
        let (mut grant, mut several) = (None, Vec::new());
        for (id, left) in &told.grants {
            let held = self.grant(state, *id);
            // Of what is shared, a renewal tells of its own hold apart from others.
            if !self.is_shared() || is_asked_for(ask, *id) {
                grant = Some(held);
            } else {
                let Grant { member, token } = held;
                several.push(Share { member, token, left_ms: u64::from(*left) });
            }
        }
        Reply {
            outcome: (),
            left_ms: u64::from(told.left),
            grant,
            foreign: false,
            now_us: 0,
            passed_over: 0,
            several,
            more: told.more && self.variant != Variant::ForgetsMore,
        }
    }
}

fn is_asked_for(ask: Ask, id: Id) -> bool {
    matches!(ask, Ask::Renew { member } | Ask::Downgrade { member } if member == id)
}

fn with<T>(outcome: T, rest: Reply<()>) -> Reply<T> {
    let Reply { outcome: (), left_ms, grant, foreign, now_us, passed_over, several, more } = rest;
    Reply { outcome, left_ms, grant, foreign, now_us, passed_over, several, more }
}
