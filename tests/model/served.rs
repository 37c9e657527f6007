//! Liveness: from a state on, without faults, all packets are delivered and all due actions
//! performed.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use proto::node::{Due, Moment};

use crate::model::{Action, Locking};
use crate::packet::Packet;
use crate::state::{Budget, Stage, State};
use crate::variant::Variant;
use crate::wire::moment;

/// The time after which every lease, claim and liveness deadline has ended twice.
const LONGEST_MS: u32 = 60_000;

/// More steps than any state of the model needs to come to rest.
const MOST_STEPS: usize = 10_000;

/// Whether each waiter is served or notified within a bounded time.
pub(crate) fn served(model: &Locking, state: &State) -> bool {
    !is_sampled(model, state) || comes_to_rest(model, state.clone())
}

/// Whether the state is in the sample, which is the same in every run and every order of visits.
fn is_sampled(model: &Locking, state: &State) -> bool {
    let cases = model.scope.served_one_in;
    if cases <= 1 {
        return cases == 1;
    }
    let mut hasher = DefaultHasher::new();
    (state.now, &state.clients, &state.network, &state.record).hash(&mut hasher);
    hasher.finish().is_multiple_of(cases)
}

fn comes_to_rest(model: &Locking, mut state: State) -> bool {
    let end = state.now + LONGEST_MS;
    state.budget = Budget::default();
    for steps in 0.. {
        if let Some(action) = next(model, &state) {
            assert!(steps < MOST_STEPS, "{action:?} is due again and again");
            model.act(&mut state, action);
            continue;
        }
        let waits = |stage: &Stage| matches!(stage, Stage::Attempt(_) | Stage::Releasing(_));
        if !state.clients.iter().any(|client| waits(&client.stage)) {
            return true;
        }
        match soonest(model, &state) {
            Some(at) if at <= end => {
                let passed = at - state.now;
                model.pass(&mut state, passed);
            }
            // There is no next action, so the waiters wait for ever.
            _ => return false,
        }
    }
    unreachable!("the steps do not end before")
}

/// Returns the action that happens now, without faults; `None` if time has to pass first.
fn next(model: &Locking, state: &State) -> Option<Action> {
    if let Some(packet) = state.network.first() {
        return Some(match packet {
            Packet::Request { .. } => Action::Run { packet: 0 },
            _ => Action::Deliver { packet: 0 },
        });
    }
    let guard = state.clients.iter().position(|client| matches!(client.stage, Stage::Guard(_)));
    if let Some(client) = guard {
        return Some(Action::Release { client });
    }
    (0..).zip(&state.nodes).find_map(|(node, of)| match (of.is_dead, of.is_connected) {
        (true, true) => Some(Action::Unsubscribe { node }),
        (true, false) => None,
        (false, false) => Some(Action::Resubscribe { node }),
        (false, true) => {
            let mut dues = of.core.dues();
            let due = dues.position(|(at, due)| at <= moment(state.now) && model.does(&due))?;
            Some(Action::Attend { node, due })
        }
    })
}

/// Returns the time of the next action; `None` if there is none.
fn soonest(model: &Locking, state: &State) -> Option<u32> {
    let alive = state.nodes.iter().filter(|node| !node.is_dead);
    let dues = alive.flat_map(|node| node.core.dues()).filter(|(_, due)| model.does(due));
    let soonest: Option<Moment> = dues.map(|(at, _)| at).min();
    // The instants of the model are whole milliseconds.
    soonest.map(|at| at.as_micros().div_ceil(1_000) as u32)
}

impl Locking {
    /// Returns true if a node performs this action when it is due.
    pub(crate) fn does(&self, due: &Due) -> bool {
        match due {
            Due::Touch(_) => self.variant != Variant::NeverAsksAgain,
            // Other actions of the node cover these when due; these would only be earlier.
            Due::LeaveAgain | Due::RenewAll | Due::Recheck => false,
            _ => true,
        }
    }
}
