//! The laws: what holds in every state, whatever happened on the way to it.

use lockcore::internals::node::Phase;
use lockcore::internals::protocol::LockState;
use stateright::Property;

use crate::model::{Locking, START_MS};
use crate::packet::{Ask, Outcome};
use crate::served::served;
use crate::state::{Client, NUMBERS, Node, Stage, State, node_of};

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
pub(crate) const SERVED: &str = "L1 everybody is served or told in time";
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
        Always::always(SERVED, served),
        Always::sometimes("everybody is served", |_, state| {
            let is_done = |client: &Client| client.left == 0 && client.stage == Stage::Idle;
            state.network.is_empty() && state.clients.iter().all(is_done)
        }),
        Always::sometimes("two wait while one holds", |model, state| {
            let clients = || state.clients.iter().zip(model.scope.homes);
            let waits = |(client, home): &(&Client, &u8)| {
                state.phase(**home, client) == Some(Phase::Waiting)
            };
            clients().filter(waits).count() + 1 == state.clients.len()
                && clients().any(|(client, home)| state.believes(*home, client))
        }),
    ];
    if model.scope.budget.passes > 0 {
        laws.push(Always::sometimes("a guard outlives its lease", |model, state| {
            let mut clients = state.clients.iter().zip(model.scope.homes);
            clients.any(|(client, home)| {
                matches!(client.stage, Stage::Guard(_)) && !state.believes(*home, client)
            })
        }));
    }
    laws
}

pub(crate) fn at_ms(now: u32) -> u64 {
    START_MS + u64::from(now)
}

/// The members whose guards say that the lock is held. Of a hold that is forced off, its guard
/// hears later.
fn believing<'a>(model: &'a Locking, state: &'a State) -> impl Iterator<Item = u8> + 'a {
    let clients = state.clients.iter().zip(model.scope.homes);
    let believing = clients.filter(|(client, home)| state.believes(**home, client));
    let members = believing
        .filter_map(|(client, home)| Some(model.id_of(*home, state.number(*home, client)?)));
    members.filter(|member| state.record.forced & (1 << *member) == 0)
}

/// Whether the server would still refuse the lock to everybody but this member.
fn has_lease(model: &Locking, state: &State, member: u8) -> bool {
    let hold = state.server.hold.as_ref();
    let live = hold.filter(|hold| hold.expires_ms.is_some_and(|ends| ends > at_ms(state.now)));
    live.is_some_and(|hold| model.id(&hold.member) == member)
}

fn guarded(model: &Locking, state: &State) -> bool {
    believing(model, state).all(|member| has_lease(model, state, member))
}

fn one_guard(model: &Locking, state: &State) -> bool {
    believing(model, state).count() <= 1
}

/// Whether one of a live process accounts for what stands under this member on the server.
fn is_accounted_for(model: &Locking, state: &State, member: u8) -> bool {
    let node = &state.nodes[node_of(member)];
    node.is_dead || node.core.phase(model.number(state, member)).is_some()
}

/// When everything has arrived, the server knows of nobody who has gone.
fn clean(model: &Locking, state: &State) -> bool {
    if !state.network.is_empty() {
        return true;
    }
    let mut server = LockState::clone(&state.server);
    server.expire(at_ms(state.now));
    let hold = server.hold.iter().map(|hold| &hold.member);
    hold.chain(&server.queue).all(|member| is_accounted_for(model, state, model.id(member)))
}

/// When everything has arrived, no node waits for an answer, and those who wait need nothing but
/// time and their next question: once what is given back is given back and what nobody gives back
/// has ended, one of them holds the lock.
fn unstuck(model: &Locking, state: &State) -> bool {
    if !state.network.is_empty() {
        return true;
    }
    let waits_for_ever = |node: &Node| node.core.unanswered_numbers().next().is_some();
    if state.nodes.iter().any(waits_for_ever) {
        return false;
    }
    let clients = || state.clients.iter().zip(model.scope.homes);
    let open: Vec<(u8, u64)> = clients()
        .filter(|(client, home)| {
            matches!(state.phase(**home, client), Some(Phase::Waiting | Phase::Parked))
        })
        .filter_map(|(client, home)| Some((*home, state.number(*home, client)?)))
        .collect();
    if open.is_empty() {
        return true;
    }
    let mut server = LockState::clone(&state.server);
    let mut now_ms = at_ms(state.now);
    server.expire(now_ms);
    if let Some(hold) = &server.hold {
        let holder = model.id(&hold.member);
        let has_guard = |(client, home): (&Client, &u8)| matches!(client.stage, Stage::Guard(number) if model.id_of(*home, number) == holder);
        if clients().any(has_guard) {
            return true;
        }
        // A waiter who was not told finds its hold by asking; one of a dead process ends.
        if state.nodes[node_of(holder)].is_dead {
            let Some(ends_ms) = hold.expires_ms else { return false };
            now_ms = ends_ms;
        }
    }
    let mut ask = |ask: Ask, node: u8| {
        let connected = |text: &str| {
            let node = state.nodes.get(usize::from(text.as_bytes()[0] - b'a'));
            node.is_some_and(|node| node.is_connected && !node.is_dead)
        };
        let command = model.command(ask, |id| model.member(id).clone());
        let id = &model.ids[usize::from(node)];
        let step = model.variant.step(&mut server, &connected, id, &command, now_ms * 1_000);
        model.told(ask, &step.0)
    };
    for (node, core) in (0..).zip(state.nodes.iter().map(|node| &node.core)) {
        for number in core.numbers() {
            if let Some(Phase::Releasing | Phase::Leaving) = core.phase(number) {
                ask(Ask::Leave { member: model.id_of(node, number), is_ambiguous: false }, node);
            }
        }
    }
    for (node, number) in open {
        let told = ask(Ask::Touch { members: 1 << model.id_of(node, number) }, node);
        if matches!(told.outcome, Outcome::Touched { gone, .. } if gone != 0) {
            // It goes on under a number that nobody has had.
            let member = node * NUMBERS + NUMBERS - 1;
            ask(Ask::Acquire { member, waits: true }, node);
        }
    }
    let holder = server.hold.as_ref().map(|hold| node_of(model.id(&hold.member)));
    holder.is_some_and(|node| !state.nodes[node].is_dead)
}
