//! The protocol in every order of events: all states that a lock can reach by a few clients, a
//! network with losses and delays, and a clock that jumps, each checked against the laws.
//!
//! The server is lockcore's own function, as used by the in-memory store, and in a few scopes the
//! function of the Redisson layout. The laws are the same for both. The nodes are lockcore's own
//! cores (`node::Core`), without the driver that passes in the time and sends the commands. The
//! limits of the model:
//!
//! - No timers. A node may touch, renew, repeat or request again at any instant, and may let any
//!   instant pass; so sleeping, slow and frozen nodes are included. A driver must act in time; here
//!   a node may. Leases and other periods end when due by the clock, or later.
//! - No late callers: a caller takes the guard as soon as it is woken.
//! - No batches of requests, and only the limit on acquires under way: each due action is performed
//!   separately.
//! - No duplicated packets, just as with TCP. A request runs twice only if it was abandoned as lost
//!   and sent again; the first copy may run at any later time.
//! - A single clock. Clients and server count the same milliseconds, so the margin for different
//!   clock rates is subtracted but not needed. The server's clock does not step.
//! - A single lock, and a single touch under way at a time. Clients of a node have the same demand;
//!   a holder that waits for a downgrade may release meanwhile.
//! - No token floors, except the server time at connect, which is below all tokens: tokens
//!   rise without token floors. The counter's value does not matter, only the order of positions
//!   and tokens.
//! - No failover, no foreign members, no damaged keys, no full queues: other tests cover these.
//!
//! A few times, time passes by 700 ms or until the next end on the server: of a lease, of a node's
//! liveness deadline or of a skipped position. In total it is shorter than a tombstone's minute,
//! and so is the life of an unanswered connection.

mod act;
mod books;
mod broken_variants;
mod event;
mod facts;
mod model;
mod nightly;
mod packet;
mod progress;
mod properties;
mod scopes;
mod served;
mod server;
mod state;
mod step;
mod torture;
mod variant;
mod wire;

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use model::{Locking, SHORT_MS, Scope};
use progress::Progress;
use state::Budget;
use variant::Variant;

const NOTHING: Budget = Budget {
    losses: 0,
    cancels: 0,
    crashes: 0,
    cuts: 0,
    forced: 0,
    downgrades: 0,
    leaks: 0,
    forgets: 0,
    passes: 0,
};

/// One state in this many is checked for whether everybody is served from there. In the smallest
/// model, every state is.
const SAMPLED: u64 = 64;

/// Visits all states of a model, checks the laws in each, and returns the number of states.
fn exhaust(what: &str, scope: Scope) -> usize {
    let begun = Instant::now();
    let model = Locking::new(scope, Variant::Right);
    let must_meet = model.must_meet();
    let checker = model
        .checker()
        .threads(std::thread::available_parallelism().map_or(1, usize::from))
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_dfs()
        .report(&mut Progress::of(what))
        .join();
    let states = checker.unique_state_count();
    let depth = checker.max_depth();
    let took = begun.elapsed();
    report(&format!("{what}: {states} states, depth {depth}, {took:.1?}"));
    checker.assert_properties();
    let met = checker.model().met();
    for event in must_meet {
        assert!(met.contains(&event), "{what} never met {event:?}");
    }
    states
}

fn report(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn two_clients_who_acquire_twice_and_give_up_keep_every_law() {
    let budget = Budget { cancels: 1, ..NOTHING };
    exhaust(
        "two clients, two operations, cancelled",
        Scope { operations: &[2, 2], drops: false, ..two(budget) },
    );
}

#[test]
fn two_clients_who_crash_or_lose_their_subscription_keep_every_law() {
    let budget = Budget { crashes: 1, cuts: 1, passes: 1, ..NOTHING };
    exhaust("two clients, crashed and cut off", two(budget));
}

#[test]
fn two_clients_whose_requests_are_lost_or_late_and_who_give_up_keep_every_law() {
    let budget = Budget { losses: 1, cancels: 1, passes: 1, ..NOTHING };
    exhaust("two clients, lost and late requests, cancelled", two(budget));
}

#[test]
fn two_clients_whose_answers_are_lost_and_whose_messages_outlive_a_claim_keep_every_law() {
    let budget = Budget { losses: 1, ..NOTHING };
    exhaust(
        "two clients, one and two operations, lost answers and old messages",
        Scope { operations: &[1, 2], drops: false, ..two(budget) },
    );
}

#[test]
fn two_clients_who_are_forced_off_keep_every_law() {
    let budget = Budget { forced: 1, passes: 1, ..NOTHING };
    exhaust("two clients, forced off", Scope { tries: true, ..two(budget) });
}

#[test]
fn two_clients_of_one_node_keep_every_law() {
    let budget = Budget { losses: 1, cancels: 1, ..NOTHING };
    exhaust("two clients of one node", Scope { homes: &[0, 0], served_one_in: 1, ..two(budget) });
}

#[test]
fn two_clients_of_one_node_that_asks_for_one_at_a_time_keep_every_law() {
    let budget = Budget { losses: 1, cancels: 1, ..NOTHING };
    exhaust(
        "two clients of one node, asked for one at a time",
        Scope { homes: &[0, 0], acquires: 1, served_one_in: 1, ..two(budget) },
    );
}

fn two(budget: Budget) -> Scope {
    Scope {
        homes: &[0, 1],
        wants: &[],
        beside_jvms: false,
        operations: &[1, 1],
        tries: false,
        drops: true,
        one_by_one: false,
        acquires: usize::MAX,
        is_fast: false,
        batch_limit: 1,
        step_ms: SHORT_MS,
        is_kept: false,
        budget,
        served_one_in: SAMPLED,
    }
}

#[test]
fn three_clients_who_crash_and_give_up_keep_every_law() {
    let budget = Budget { crashes: 1, cancels: 1, ..NOTHING };
    let scope = Scope { homes: &[0, 1, 2], operations: &[1, 1, 1], drops: false, ..two(budget) };
    exhaust("three clients, crashed and cancelled", scope);
}
