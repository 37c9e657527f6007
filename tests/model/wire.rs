//! Connects a node's core and the network: a request becomes a packet, and a packet becomes an
//! event of the core.

use proto::FencingToken;
use proto::node::{
    Core, Due, Effect, Moment, Note, Outcome as End, StoreRequest as Request, Way, grouped,
};
use proto::{
    Acquired, Answer, Command, Event as Message, Grant, Leaving, Left, Link, Member, Mode,
    Presence, Released, Renewed, Reply, StoreError, Touched,
};

use crate::act::{given_back, put};
use crate::event::Event;
use crate::model::Locking;
use crate::packet::{Ask, Outcome, Packet, ReplyContent, Sent};
use crate::server::{bits, together};
use crate::state::{Bits, Id, NUMBERS, ROUNDS, Stage, State, node_of};
use crate::variant::Variant;

/// Converts a time of the model to a moment of the cores.
pub(crate) fn moment(ms: u32) -> Moment {
    Moment::from_micros(u64::from(ms) * 1_000)
}

impl Locking {
    /// Returns a member's number in its node's core.
    pub(crate) fn number(&self, state: &State, id: Id) -> u64 {
        let attempt = u64::from(id % NUMBERS / ROUNDS) + 1;
        let round = u64::from(id % ROUNDS);
        if self.variant == Variant::KeepsItsMember {
            let core = &state.nodes[node_of(id)].core;
            return core.round(attempt).unwrap_or(Core::<()>::number_of(attempt, 0));
        }
        Core::<()>::number_of(attempt, round)
    }

    /// Returns the member that has this number in its node's core.
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

    /// Runs an event of a node's core, and sends what its effects require.
    pub(crate) fn event<T>(
        &self,
        state: &mut State,
        node: u8,
        event: impl FnOnce(&mut Core<()>) -> T,
    ) -> T {
        let now = moment(state.now);
        let value = event(state.core(node).event(now));
        self.follow(state, node);
        value
    }

    fn follow(&self, state: &mut State, node: u8) {
        let mut wakes = false;
        let mut requests = Vec::new();
        for effect in state.core(node).drain() {
            match effect {
                Effect::Send(request) => requests.push(request),
                Effect::Wake(()) => wakes = true,
                Effect::Observe(Note::PositionLost { .. }) => self.meet(Event::PositionLost),
                _ => {}
            }
        }
        // Acquires are sent together, as by the driver.
        for request in grouped(requests, |_| true, |_| 0).into_iter().flatten() {
            self.send(state, node, &request);
        }
        if wakes {
            self.look(state, node);
        }
    }

    /// Lets woken clients look up the outcomes of their attempts.
    fn look(&self, state: &mut State, node: u8) {
        let now = moment(state.now);
        for client in 0..state.clients.len() {
            let Stage::Attempt(attempt) = state.clients[client].stage else { continue };
            if self.scope.homes[client] != node {
                continue;
            }
            match state.core(node).event(now).take(attempt) {
                End::Waits => {}
                End::Granted { number, .. } => {
                    state.clients[client].stage = Stage::Guard(number);
                }
                End::Refused(_) => state.clients[client].stage = Stage::Idle,
            }
            self.follow(state, node);
        }
    }

    /// Puts a request on the network.
    pub(crate) fn send(&self, state: &mut State, node: u8, request: &Request) {
        let id = |member: &Member| self.id_of(node, member.number());
        let ask = match &request.command {
            Command::Acquire { members, mode, .. } => {
                let members = together(members.iter().map(id));
                let is_fast = request.way == Way::Fast;
                Ask::Acquire { members, waits: *mode == Mode::Wait, is_fast }
            }
            Command::Release { member } => Ask::Release { member: id(member) },
            Command::Renew { members, .. } => {
                let [member] = members.as_slice() else {
                    unreachable!("a table renews one at a time");
                };
                Ask::Renew { member: id(member) }
            }
            Command::Confirm { member } => Ask::Confirm { member: id(member) },
            Command::Touch { members } => Ask::Touch { members: together(members.iter().map(id)) },
            Command::Reduce { member, served, back, .. } => Ask::Downgrade {
                member: id(member),
                served: self.id_of(node, *served),
                back: together(back.iter().map(|number| self.id_of(node, *number))),
            },
            Command::Leave { leaving } => {
                let members = together(leaving.iter().map(|one| id(&one.member)));
                if self.variant == Variant::ForgetsToLeave {
                    let ask = Ask::Leave { members, ambiguous: 0, served: 0 };
                    let outcome = Outcome::Left(true);
                    let (grants, batch) = (Vec::new(), Vec::new());
                    let content = ReplyContent { outcome, left: 0, grants, batch, more: false };
                    let answer = self.answer(state, ask, &content);
                    return self.event(state, node, |core| {
                        core.replied(request, &answer);
                    });
                }
                let is_marked =
                    |one: &&Leaving| one.ambiguous && self.variant != Variant::NoTombstone;
                let ambiguous = leaving.iter().filter(is_marked).map(|one| id(&one.member));
                let served = leaving.iter().filter(|one| one.served).map(|one| id(&one.member));
                let (ambiguous, served) = (together(ambiguous), together(served));
                Ask::Leave { members, ambiguous, served }
            }
            Command::ForceRelease { .. } | Command::Inspect { .. } => {
                unreachable!("no node asks for it")
            }
        };
        let sent = Sent { at: state.now, background: request.background };
        put(state, Packet::Request { node, ask, sent, is_late: false });
    }

    /// Returns a request as the node's core has sent it.
    fn request(&self, state: &State, ask: Ask, sent: Sent) -> Request {
        let command = self.command(ask, |id| self.member_of(state, id));
        let lock = self.lock.clone();
        let Sent { at, background } = sent;
        let is_fast = matches!(ask, Ask::Acquire { is_fast: true, .. });
        let way = if is_fast { Way::Fast } else { Way::Script };
        Request { lock, command, sent: moment(at), background, lane: 0, way }
    }

    /// Delivers a reply to a node's core.
    pub(crate) fn replied(
        &self,
        state: &mut State,
        node: u8,
        ask: Ask,
        mut sent: Sent,
        content: &ReplyContent,
    ) {
        if self.variant == Variant::CountsFromTheReply {
            sent.at = state.now;
        }
        let request = self.request(state, ask, sent);
        let answer = self.answer(state, ask, content);
        let had = state.guards(node);
        self.event(state, node, |core| core.replied(&request, &answer));
        if matches!(ask, Ask::Confirm { .. }) && state.guards(node) > had {
            self.meet(Event::Confirmed);
        }
        self.released(state, node, ask);
    }

    /// Completes a guard's release for the owner.
    fn released(&self, state: &mut State, node: u8, ask: Ask) {
        let Some(left) = given_back(ask) else { return };
        for (client, home) in state.clients.iter_mut().zip(self.scope.homes) {
            if let Stage::Releasing(number) = client.stage
                && *home == node
                && left & (1 << self.id_of(node, number)) != 0
            {
                client.stage = Stage::Idle;
            }
        }
    }

    /// Ends the wait for a response: whether the request ran or will run is unknown.
    pub(crate) fn unanswered(&self, state: &mut State, node: u8, ask: Ask, sent: Sent) {
        let request = self.request(state, ask, sent);
        let error = StoreError::ambiguous("lost");
        self.event(state, node, |core| core.unanswered(&request, &error));
        self.released(state, node, ask);
    }

    /// Delivers a message of grants.
    pub(crate) fn pushed(&self, state: &mut State, members: Bits, left: u32) {
        let Some(first) = bits(members).next() else { return };
        let node = first / NUMBERS;
        let left_ms = u64::from(left);
        if self.variant == Variant::CountsFromTheMessage {
            let lock = self.lock.clone();
            let sent = moment(state.now);
            let command = Command::ForceRelease { member: None };
            let way = Way::Script;
            let request = Request { lock, command, sent, background: false, lane: 0, way };
            let outcome = Outcome::Released(false);
            let (grants, batch) = (vec![(first, left)], Vec::new());
            let content = ReplyContent { outcome, left, grants, batch, more: false };
            let answer = self.answer(state, Ask::Force, &content);
            return self.event(state, node, |core| core.replied(&request, &answer));
        }
        let grant = |member| (self.number(state, member), left_ms);
        let message =
            Message::Granted { token: token(), grants: bits(members).map(grant).collect() };
        self.event(state, node, |core| core.heard(message));
    }

    /// Delivers a batch message.
    pub(crate) fn batch_pushed(&self, state: &mut State, members: &[Id], left: u32) {
        let Some(first) = members.first() else { return };
        let numbers = members.iter().map(|member| self.number(state, *member)).collect();
        let left_ms = u64::from(left);
        let message = Message::GrantedBatch { token: token(), left_ms, numbers };
        self.event(state, first / NUMBERS, |core| core.heard(message));
    }

    pub(crate) fn revoked(&self, state: &mut State, members: Bits) {
        let Some(first) = bits(members).next() else { return };
        let numbers = bits(members).map(|member| self.number(state, member)).collect();
        let message = Message::Revoked { numbers };
        self.event(state, first / NUMBERS, |core| core.heard(message));
    }

    pub(crate) fn superseded(&self, state: &mut State, members: Bits) {
        let Some(first) = bits(members).next() else { return };
        let numbers = bits(members).map(|member| self.number(state, member)).collect();
        let message = Message::Superseded { numbers };
        self.event(state, first / NUMBERS, |core| core.heard(message));
    }

    /// Cuts or restores the node's subscription.
    pub(crate) fn subscribed(&self, state: &mut State, node: u8, is_up: bool) {
        let link = match is_up {
            true => Link::Up,
            false => Link::down("cut"),
        };
        self.event(state, node, |core| {
            core.linked(Link::Up, link);
            if is_up {
                core.heard(Message::Resubscribed);
            }
        });
    }

    pub(crate) fn attend(&self, state: &mut State, node: u8, due: &Due) {
        self.event(state, node, |core| core.attend(due));
    }

    /// Returns a member as its node's core knows it.
    fn member_of(&self, state: &State, id: Id) -> Member {
        let core = &state.nodes[node_of(id)].core;
        core.member(self.number(state, id)).unwrap_or_else(|| self.member(id)).clone()
    }

    fn answer(&self, state: &State, ask: Ask, content: &ReplyContent) -> Answer {
        let released = |outcome| Answer::Released(self.with_rest(state, content, outcome));
        let renewed = |outcome| Answer::Renewed(self.with_rest(state, content, vec![outcome]));
        let left = |outcome| Answer::Left(self.with_rest(state, content, vec![outcome]));
        match (ask, content.outcome) {
            (Ask::Touch { members }, Outcome::Touched { waiting, superseded, gone }) => {
                let members = bits(members).map(|id| match 1 << id {
                    bit if waiting & bit != 0 => Presence::Waiting,
                    bit if superseded & bit != 0 => Presence::Superseded,
                    bit if gone & bit != 0 => Presence::Gone,
                    _ => Presence::Holding,
                });
                let touched = Touched { members: members.collect(), listeners: 1 };
                Answer::Touched(self.with_rest(state, content, touched))
            }
            (Ask::Acquire { members, .. }, Outcome::Acquired { granted, queued, refused }) => {
                let outcomes = bits(members).map(|id| match 1 << id {
                    bit if granted & bit != 0 => Acquired::Granted,
                    bit if queued & bit != 0 => Acquired::Queued { position: 0 },
                    bit if refused & bit != 0 => Acquired::Refused,
                    _ => Acquired::Busy,
                });
                Answer::Acquired(self.with_rest(state, content, outcomes.collect()))
            }
            (Ask::Acquire { .. }, Outcome::NotServed) => {
                let outcome = vec![Acquired::NotServed { may_hold: false }];
                Answer::Acquired(self.with_rest(state, content, outcome))
            }
            (_, Outcome::NotServed) => unreachable!("only an acquire goes the fast path"),
            (_, Outcome::Acquired { .. }) => unreachable!("only an acquire is answered so"),
            (_, Outcome::Released(true)) => released(Released::Released),
            (_, Outcome::Released(false)) => released(Released::NotHeld),
            (_, Outcome::Held(true)) => renewed(Renewed::Held),
            (_, Outcome::Held(false)) => renewed(Renewed::NotHeld),
            (_, Outcome::Left(true)) => left(Left::Left),
            (_, Outcome::Left(false)) => left(Left::Absent),
            (_, Outcome::Touched { .. }) => unreachable!("only a touch is answered so"),
        }
    }

    /// Adds the rest of a reply to an outcome.
    fn with_rest<T>(&self, state: &State, content: &ReplyContent, outcome: T) -> Reply<T> {
        let grant = |(id, left): &(Id, u32)| Grant {
            member: self.member_of(state, *id),
            token: token(),
            left_ms: u64::from(*left),
            batch: content.batch.iter().map(|id| self.number(state, *id)).collect(),
        };
        Reply {
            outcome,
            grants: content.grants.iter().map(grant).collect(),
            first_end_ms: Some(u64::from(content.left)),
            now_us: None,
            skipped: 0,
            more: content.more && self.variant != Variant::ForgetsMore,
        }
    }
}

/// Returns the token in every reply. It is always the same, because the cores only pass tokens on.
fn token() -> FencingToken {
    FencingToken::try_from(1).expect("small")
}
