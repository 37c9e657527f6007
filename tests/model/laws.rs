//! The laws: what holds in every state, whatever happened on the way to it.

use lockcore::internals::protocol::{Command, LockState};
use stateright::Property;

use crate::model::{Locking, START_MS};
use crate::packet::{Ask, Outcome};
use crate::state::{Client, NUMBERS, Phase, State, node_of};

/// Laws of single commands, noted in the record where they are broken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Law {
    ExclusiveLease,
    TokensRise,
    StaleIsNothing,
    SameGrant,
    NoZombie,
    ReleasedOnce,
    InOrder,
    PlaceKept,
    HandedOn,
    TrueWords,
    EverythingEnds,
}

impl Law {
    pub(crate) fn is_broken(self, state: &mut State) {
        state.record.broken |= 1 << self as u16;
    }

    fn holds(self, state: &State) -> bool {
        state.record.broken & (1 << self as u16) == 0
    }
}

pub(crate) const EXCLUSIVE: &str = "S1 a lease is exclusive";
pub(crate) const GUARDED: &str = "S2 a guard believed valid has its lease";
pub(crate) const ONE_GUARD: &str = "S2 two guards are never valid at once";
pub(crate) const RISING: &str = "S3 tokens rise in the order of grants";
pub(crate) const STALE: &str = "S4 a stale operation changes nothing of another's";
pub(crate) const SAME: &str = "S5 the same attempt asked again has the same grant";
pub(crate) const ZOMBIE: &str = "S5 what was given up is never granted";
pub(crate) const ONCE: &str = "S6 a release counts once";
pub(crate) const ORDER: &str = "F1 grants follow the order of arrival";
pub(crate) const PLACE: &str = "F2 a place is kept";
pub(crate) const ON: &str = "F3 a free lock is handed on";
pub(crate) const WORDS: &str = "T1 what is told is true";
pub(crate) const ENDS: &str = "T2 every key ends, and a lease is as long as it should be";
pub(crate) const UNSTUCK: &str = "L1 nobody is stuck";
pub(crate) const CLEAN: &str = "L3 nothing is left behind";

pub(crate) fn all(model: &Locking) -> Vec<Property<Locking>> {
    type Always = Property<Locking>;
    let mut laws = vec![
        Always::always(EXCLUSIVE, |_, state| Law::ExclusiveLease.holds(state)),
        Always::always(GUARDED, guarded),
        Always::always(ONE_GUARD, one_guard),
        Always::always(RISING, |_, state| Law::TokensRise.holds(state)),
        Always::always(STALE, |_, state| Law::StaleIsNothing.holds(state)),
        Always::always(SAME, |_, state| Law::SameGrant.holds(state)),
        Always::always(ZOMBIE, |_, state| Law::NoZombie.holds(state)),
        Always::always(ONCE, |_, state| Law::ReleasedOnce.holds(state)),
        Always::always(ORDER, |_, state| Law::InOrder.holds(state)),
        Always::always(PLACE, |_, state| Law::PlaceKept.holds(state)),
        Always::always(ON, |_, state| Law::HandedOn.holds(state)),
        Always::always(WORDS, |_, state| Law::TrueWords.holds(state)),
        Always::always(ENDS, |_, state| Law::EverythingEnds.holds(state)),
        Always::always(UNSTUCK, unstuck),
        Always::always(CLEAN, clean),
        Always::sometimes("everybody is served", |_, state| {
            let is_done = |client: &Client| client.left == 0 && client.phase == Phase::Idle;
            state.network.is_empty() && state.clients.iter().all(is_done)
        }),
        Always::sometimes("two wait while one holds", |_, state| {
            let open = state.clients.iter().filter(|client| client.phase == Phase::Waiting);
            open.count() + 1 == state.clients.len()
                && state.clients.iter().any(|client| client.believes(state.now))
        }),
    ];
    if model.scope.budget.passes > 0 {
        laws.push(Always::sometimes("a guard outlives its lease", |_, state| {
            let is_there = |client: &Client| matches!(client.phase, Phase::Holding { .. });
            state.clients.iter().any(|client| is_there(client) && !client.believes(state.now))
        }));
    }
    laws
}

pub(crate) fn at_ms(now: u32) -> u64 {
    START_MS + u64::from(now)
}

/// Whether the server would still refuse the lock to everybody but this client.
fn has_lease(model: &Locking, state: &State, client: &Client) -> bool {
    let hold = state.server.hold.as_ref();
    let live = hold.filter(|hold| hold.expires_ms.is_some_and(|ends| ends > at_ms(state.now)));
    live.is_some_and(|hold| model.id(&hold.member) == client.member)
}

fn guarded(model: &Locking, state: &State) -> bool {
    // Of a hold that is forced off, its guard hears later.
    let foreseen = |client: &&Client| state.record.forced & (1 << client.member) == 0;
    let believing = state.clients.iter().filter(|client| client.believes(state.now));
    believing.filter(foreseen).all(|client| has_lease(model, state, client))
}

fn one_guard(_: &Locking, state: &State) -> bool {
    let foreseen = |client: &&Client| state.record.forced & (1 << client.member) == 0;
    let believing = state.clients.iter().filter(|client| client.believes(state.now));
    believing.filter(foreseen).count() <= 1
}

/// Whether one of a live process accounts for what stands under this member on the server.
fn is_accounted_for(state: &State, member: u8) -> bool {
    state.nodes[node_of(member)].is_dead
        || state.clients.iter().any(|client| client.member == member && client.phase != Phase::Idle)
}

/// When everything has arrived, the server knows of nobody who has gone.
fn clean(model: &Locking, state: &State) -> bool {
    if !state.network.is_empty() {
        return true;
    }
    let mut server = LockState::clone(&state.server);
    server.expire(at_ms(state.now));
    let hold = server.hold.iter().map(|hold| &hold.member);
    hold.chain(&server.queue).all(|member| is_accounted_for(state, model.id(member)))
}

/// When everything has arrived, those who wait need nothing but time and their next question: once
/// what nobody gives back has ended, one of them holds the lock.
fn unstuck(model: &Locking, state: &State) -> bool {
    let is_open = |client: &Client| matches!(client.phase, Phase::Waiting | Phase::Parked);
    if !state.network.is_empty() || !state.clients.iter().any(is_open) {
        return true;
    }
    let gives_back = |client: &Client| matches!(client.phase, Phase::Holding { .. });
    let mut server = LockState::clone(&state.server);
    let mut now_ms = at_ms(state.now);
    server.expire(now_ms);
    if let Some(hold) = &server.hold {
        let holder = model.id(&hold.member);
        let mut holding = state.clients.iter().filter(|client| gives_back(client));
        if holding.any(|client| client.member == holder) {
            return true;
        }
        // A waiter who was not told finds its hold by asking; one of a dead process ends.
        if state.nodes[node_of(holder)].is_dead {
            let Some(ends_ms) = hold.expires_ms else { return false };
            now_ms = ends_ms;
        }
    }
    let mut ask = |command: Command, node: usize| {
        let connected = |text: &str| {
            let node = state.nodes.get(usize::from(text.as_bytes()[0] - b'a'));
            node.is_some_and(|node| node.is_connected && !node.is_dead)
        };
        let id = &model.ids[node];
        model.variant.step(&mut server, &connected, id, &command, now_ms * 1_000).0
    };
    for client in state.clients.iter().filter(|client| is_open(client)) {
        let node = node_of(client.member);
        let touch = Ask::Touch { members: 1 << client.member };
        let told = model.told(touch, &ask(model.command(touch), node));
        if matches!(told.outcome, Outcome::Touched { gone, .. } if gone != 0) {
            // It goes on under a number that nobody has had.
            let member = (client.member / NUMBERS) * NUMBERS + NUMBERS - 1;
            let waits = client.waits;
            ask(model.command(Ask::Acquire { member, waits }), node);
        }
    }
    let holder = server.hold.as_ref().map(|hold| node_of(model.id(&hold.member)));
    holder.is_some_and(|node| !state.nodes[node].is_dead)
}
