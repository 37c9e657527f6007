//! The properties: laws for every state, on whatever path it was reached.

use laws::Law;
use proto::Demand;
use proto::node::Phase;
use stateright::Property;

use crate::books::Server;
use crate::model::{Locking, START_MS};
use crate::packet::{Ask, Outcome, Packet};
use crate::served::served;
use crate::server::node_index;
use crate::state::{Budget, Client, NUMBERS, Node, Stage, State, node_of};

/// Records that the last step broke this law.
pub(crate) fn breaks(state: &mut State, law: Law) {
    state.record.broken |= 1 << law as u32;
}

fn holds(state: &State, law: Law) -> bool {
    state.record.broken & (1 << law as u32) == 0
}

pub(crate) const FIT: &str = "S1 a grant fits beside the leases that have not ended";
pub(crate) const GUARDED: &str = "S2 a guard believed valid has its lease";
pub(crate) const GUARDS_FIT: &str = "S2 guards that are valid at once fit together";
pub(crate) const RISING: &str =
    "S3 tokens rise in the order of grants, and parts held together share one";
pub(crate) const STALE: &str = "S4 a stale operation changes nothing of another's";
pub(crate) const AGAIN: &str =
    "S5 an attempt asked again has the same grant, and none once it was given up";
pub(crate) const ONCE: &str = "S6 a release counts once";
pub(crate) const SUM: &str = "S7 the sum in the lock key is that of the holds";
pub(crate) const ORDER: &str = "F1 grants follow the order of arrival";
pub(crate) const POSITION: &str = "F2 F6 a position is kept";
pub(crate) const ON: &str = "F3 F5 free weight is handed on, as far as it goes";
pub(crate) const REST: &str = "F5 the rest of one command is asked for at once";
pub(crate) const WORDS: &str = "T1 every answer is true";
pub(crate) const ENDS: &str = "T2 every key ends, and a lease is as long as it should be";
pub(crate) const UNSTUCK: &str = "L1 no waiter is stuck";
pub(crate) const SERVED: &str = "L1 everybody is served or told in time";
pub(crate) const CLEAN: &str = "L3 nothing is left behind";

pub(crate) fn all(model: &Locking) -> Vec<Property<Locking>> {
    type Always = Property<Locking>;
    let mut laws = vec![
        Always::always(FIT, |_, state| holds(state, Law::S1)),
        Always::always(GUARDED, guarded),
        Always::always(GUARDS_FIT, guards_fit),
        Always::always(RISING, |_, state| holds(state, Law::S3)),
        Always::always(STALE, |_, state| holds(state, Law::S4)),
        Always::always(AGAIN, |_, state| holds(state, Law::S5)),
        Always::always(ONCE, |_, state| holds(state, Law::S6)),
        Always::always(SUM, |_, state| holds(state, Law::S7)),
        Always::always(ORDER, |_, state| holds(state, Law::F1)),
        Always::always(POSITION, |_, state| holds(state, Law::F2)),
        Always::always(ON, |_, state| holds(state, Law::F5)),
        Always::always(WORDS, |_, state| holds(state, Law::T1)),
        Always::always(ENDS, |_, state| holds(state, Law::T2)),
        Always::always(UNSTUCK, unstuck),
        Always::always(CLEAN, clean),
        Always::always(SERVED, served),
        Always::sometimes("everybody is served", |_, state| {
            let is_done = |client: &Client| client.left == 0 && client.stage == Stage::Idle;
            state.network.is_empty() && state.clients.iter().all(is_done)
        }),
    ];
    if model.some_wait() {
        laws.push(Always::sometimes("all but one wait while it holds", |model, state| {
            let clients = || state.clients.iter().zip(model.scope.homes);
            let waits = |(client, home): &(&Client, &u8)| {
                state.phase(**home, client) == Some(Phase::Waiting)
            };
            clients().filter(waits).count() + 1 == state.clients.len()
                && clients().any(|(client, home)| state.believes(*home, client))
        }));
    }
    if model.some_go_together() {
        let several = |model: &Locking, state: &State| believing(model, state).count() > 1;
        laws.push(Always::sometimes("several hold at once", several));
    }
    if model.scope.one_by_one && is_calm(model.scope.budget) {
        laws.push(Always::always(REST, rest_asked_for));
    }
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

/// Returns the members with valid guards, except force-released members whose node has not been
/// notified yet.
fn believing<'a>(model: &'a Locking, state: &'a State) -> impl Iterator<Item = u8> + 'a {
    let clients = state.clients.iter().zip(model.scope.homes);
    let believing = clients.filter(|(client, home)| state.believes(**home, client));
    // Compared by the members that hold on the server; for a batch, its first member.
    let members = believing.filter_map(|(client, home)| {
        let core = &state.nodes[usize::from(*home)].core;
        Some(model.id_of(*home, core.held_as(state.number(*home, client)?)))
    });
    members.filter(|member| state.record.unnotified & (1 << *member) == 0)
}

fn guarded(model: &Locking, state: &State) -> bool {
    let mut believing = believing(model, state).peekable();
    if believing.peek().is_none() {
        return true;
    }
    let books = state.server.books(model, at_ms(state.now));
    believing.all(|member| books.live_hold(member).is_some_and(|held| held.ends_ms.is_some()))
}

/// Whether the valid guards fit beside each other. A guard of a downgraded lock counts as a read.
/// In some order each guard fitted beside those before it; if any order exists, the order of limits
/// is such an order.
fn guards_fit(model: &Locking, state: &State) -> bool {
    let counted_on = |member: u8| match state.record.downgraded & (1 << member) {
        0 => model.demand(member),
        _ => Demand::READ,
    };
    let mut demands: Vec<_> = believing(model, state).map(counted_on).collect();
    demands.sort_unstable_by_key(|demand| demand.limit());
    let mut used = 0;
    demands.into_iter().all(|demand| {
        let fits = demand.fits(used);
        used += demand.weight();
        fits
    })
}

/// Returns true if nothing happens except the clients' own operations, without delay.
fn is_calm(budget: Budget) -> bool {
    let Budget { losses, crashes, cuts, forced, passes, leaks, .. } = budget;
    losses + crashes + cuts + forced + passes + leaks == 0
}

/// Whether each head that fits, because a command has left it over, has a reply or a further touch
/// under way.
fn rest_asked_for(model: &Locking, state: &State) -> bool {
    let used = state.server.books(model, at_ms(state.now)).used();
    let head = state.record.line.first();
    let is_left_over = head.is_some_and(|head| model.demand(head.member).fits(used));
    let goes_on = |packet: &Packet| match packet {
        Packet::Request { ask, .. } => *ask == Ask::Touch { members: 0 },
        Packet::Reply { content, .. } => content.more,
        _ => false,
    };
    !is_left_over || state.network.iter().any(goes_on)
}

/// Whether an entry of a live process accounts for this member on the server.
fn is_accounted_for(model: &Locking, state: &State, member: u8) -> bool {
    let node = &state.nodes[node_of(member)];
    node.is_dead || node.core.phase(model.number(state, member)).is_some()
}

/// Whether the server has no finished member once everything has arrived.
fn clean(model: &Locking, state: &State) -> bool {
    if !state.network.is_empty() {
        return true;
    }
    let books = state.server.books(model, at_ms(state.now));
    // The server sets aside a lapsed batch, with the members that were served.
    let may_be_back = state.record.lapsed & !state.record.ended;
    let may_be_back = if laws::SERVED_MEMBERS_STAY_GONE { 0 } else { may_be_back };
    let is_known =
        |member: u8| is_accounted_for(model, state, member) || may_be_back & (1 << member) != 0;
    // A batch's hold has the first member's name, and that member may have left.
    let batch = state.server.batch(model);
    let mut holds = books.live().map(|held| held.member);
    holds.all(|holder| is_known(holder) || batch.iter().any(|member| is_known(*member)))
        && state.server.places(model).into_iter().all(is_known)
}

/// Whether, once everything has arrived, no node waits for a response, and the waiters only need
/// time and their next request: one of them holds the lock once all releases have run and all holds
/// without a caller have ended, unless all waiters were superseded.
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
    let mut server = Server::clone(&state.server);
    let mut now_ms = at_ms(state.now);
    server.expire(now_ms);
    for held in server.books(model, now_ms).live() {
        let has_guard = |(client, home): (&Client, &u8)| {
            let hold = |number| state.nodes[usize::from(*home)].core.held_as(number);
            matches!(client.stage, Stage::Guard(number)
                if model.id_of(*home, hold(number)) == held.member)
        };
        if clients().any(has_guard) {
            return true;
        }
        // A waiter without a message finds the hold by the next request; leaked holds, and holds of
        // dead processes, end by themselves.
        let is_leaked = state.record.leaked & (1 << held.member) != 0;
        if is_leaked || state.nodes[node_of(held.member)].is_dead {
            let Some(ends_ms) = held.ends_ms else { return false };
            now_ms = now_ms.max(ends_ms);
        }
    }
    let mut ask = |ask: Ask, node: u8| {
        let connected = |text: &str| {
            let node = state.nodes.get(usize::from(node_index(text)));
            node.is_some_and(|node| node.is_connected && !node.is_dead)
        };
        let command = model.command(ask, |id| model.member(id).clone());
        let id = &model.ids[usize::from(node)];
        let (answer, _) = model.serve(&mut server, &connected, id, &command, now_ms * 1_000);
        model.content_of(ask, &answer)
    };
    for (node, core) in (0..).zip(state.nodes.iter().map(|node| &node.core)) {
        for number in core.numbers() {
            if let Some(Phase::Releasing | Phase::Leaving) = core.phase(number) {
                let member = model.id_of(node, number);
                // For a batch's hold the node sends the release; for other holds a leave is as
                // good.
                ask(Ask::Release { member }, node);
                ask(Ask::Leave { members: 1 << member, ambiguous: 0, served: 0 }, node);
            }
        }
    }
    let mut still_wait = false;
    for (node, number) in open {
        let content = ask(Ask::Touch { members: 1 << model.id_of(node, number) }, node);
        // A superseded waiter is notified.
        let is_notified = matches!(content.outcome, Outcome::Touched { superseded: 1.., .. });
        still_wait |= !is_notified;
        if matches!(content.outcome, Outcome::Touched { gone, .. } if gone != 0) {
            // The attempt continues under an unused number.
            let member = node * NUMBERS + NUMBERS - 1;
            ask(Ask::Acquire { members: 1 << member, waits: true, is_fast: false }, node);
        }
    }
    let books = server.books(model, now_ms);
    !still_wait || books.live().any(|held| !state.nodes[node_of(held.member)].is_dead)
}
