//! Between a node's table and the network: what goes out as a packet, and what a packet tells the
//! table.

use lockcore::FencingToken;
use lockcore::internals::node::{Ask as Request, Core, Due, Effect, Moment, Note, Outcome as End};
use lockcore::internals::protocol::{Answer, Command};
use lockcore::internals::{
    Acquired, Event as Message, Grant, Leaving, Left, Link, Presence, Released, Renewed, Reply,
    StoreError, Touched,
};

use crate::act::put;
use crate::event::Event;
use crate::model::Locking;
use crate::packet::{Ask, Outcome, Packet, Told};
use crate::server::bits;
use crate::state::{Id, NUMBERS, ROUNDS, Stage, State, node_of};
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
            let ours = member.ours().expect("all members are ours");
            self.id_of(node, ours.number)
        };
        let ask = match &request.command {
            Command::Acquire { member, mode, .. } => {
                Ask::Acquire { member: id(member), waits: *mode == lockcore::internals::Mode::Wait }
            }
            Command::Release { member } => Ask::Release { member: id(member) },
            Command::Renew { member } => Ask::Renew { member: id(member) },
            Command::Touch { members } => Ask::Touch {
                members: members.iter().fold(0, |bits, member| bits | 1 << id(member)),
            },
            Command::Leave { leaving } => {
                let [Leaving { member, ambiguous }] = leaving.as_slice() else {
                    unreachable!("the model has them leave one by one");
                };
                if self.variant == Variant::ForgetsToLeave {
                    let reply = reply(vec![Left::Left], 0, None);
                    let answer = Answer::Left(reply);
                    return self.event(state, node, |core, now, fx| {
                        core.replied(now, request, &answer, fx);
                    });
                }
                let is_ambiguous = *ambiguous && self.variant != Variant::NoTombstone;
                Ask::Leave { member: id(member), is_ambiguous }
            }
            Command::Downgrade { .. } | Command::ForceRelease | Command::Inspect => {
                unreachable!("no node asks for it")
            }
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

    /// Nobody answers any more, and whether the request ran or will run is not known.
    pub(crate) fn unanswered(&self, state: &mut State, node: u8, ask: Ask, sent: u32) {
        let request = self.request(state, node, ask, sent);
        let error = StoreError::ambiguous("lost");
        self.event(state, node, |core, now, fx| core.unanswered(now, &request, &error, fx));
        self.released(state, node, ask);
    }

    /// A message tells of a grant.
    pub(crate) fn pushed(&self, state: &mut State, member: Id, left: u32) {
        let node = member / NUMBERS;
        let grant = self.grant(state, member);
        if self.variant == Variant::CountsFromTheMessage {
            let lock = self.lock.clone();
            let sent = moment(state.now);
            let command = Command::ForceRelease;
            let request = Request { lock, command, sent, background: false };
            let answer = Answer::Released(reply(Released::NotHeld, left, Some(grant)));
            return self
                .event(state, node, |core, now, fx| core.replied(now, &request, &answer, fx));
        }
        let Grant { member, token } = grant;
        let message = Message::Granted { member, token, left_ms: u64::from(left) };
        self.event(state, node, |core, now, fx| core.heard(now, message, fx));
    }

    pub(crate) fn revoked(&self, state: &mut State, member: Id) {
        let Grant { member: revoked, .. } = self.grant(state, member);
        let message = Message::Revoked { member: revoked };
        self.event(state, member / NUMBERS, |core, now, fx| core.heard(now, message, fx));
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
        let grant = told.grant.map(|id| self.grant(state, id));
        let left = told.left;
        match (ask, told.outcome) {
            (Ask::Touch { members }, Outcome::Touched { waiting, gone }) => {
                let members = bits(members).map(|id| match 1 << id {
                    bit if waiting & bit != 0 => Presence::Waiting,
                    bit if gone & bit != 0 => Presence::Gone,
                    _ => Presence::Holding,
                });
                let touched = Touched { members: members.collect(), listeners: 1 };
                Answer::Touched(reply(touched, left, grant))
            }
            (_, Outcome::Granted) => Answer::Acquired(reply(Acquired::Granted, left, grant)),
            (_, Outcome::Queued) => {
                Answer::Acquired(reply(Acquired::Queued { position: 0 }, left, grant))
            }
            (_, Outcome::Busy) => Answer::Acquired(reply(Acquired::Busy, left, grant)),
            (_, Outcome::Full) => Answer::Acquired(reply(Acquired::Full, left, grant)),
            (_, Outcome::Refused) => Answer::Acquired(reply(Acquired::Refused, left, grant)),
            (_, Outcome::Released(true)) => {
                Answer::Released(reply(Released::Released, left, grant))
            }
            (_, Outcome::Released(false)) => {
                Answer::Released(reply(Released::NotHeld, left, grant))
            }
            (_, Outcome::Held(true)) => Answer::Renewed(reply(Renewed::Held, left, grant)),
            (_, Outcome::Held(false)) => Answer::Renewed(reply(Renewed::NotHeld, left, grant)),
            (_, Outcome::Left(true)) => Answer::Left(reply(vec![Left::Left], left, grant)),
            (_, Outcome::Left(false)) => Answer::Left(reply(vec![Left::Absent], left, grant)),
            (_, Outcome::Touched { .. }) => unreachable!("only a touch is answered so"),
        }
    }
}

fn reply<T>(outcome: T, left: u32, grant: Option<Grant>) -> Reply<T> {
    Reply {
        outcome,
        left_ms: u64::from(left),
        grant,
        foreign: false,
        now_us: 0,
        passed_over: 0,
        several: Vec::new(),
        more: false,
    }
}
