//! The protocol of [lockcore](https://docs.rs/lockcore), a fair distributed lock, without I/O: no
//! runtime, no client of Redis, no clock and no chance. Everything that it depends on is an
//! argument.
//!
//! This crate is for drivers: `lockcore` is the lock. It promises no stable API.
//!
//! | module | half |
//! |---|---|
//! | [`queue`] | the server's: each [`Command`] on one lock as one pure function of its state |
//! | [`layout`] | the keys, commands and rules of a lock behind one trait |
//! | [`node`] | the client's: every attempt and hold of one process, as a state machine |
//! | [`wire`] | both over Redis: the scripts, their calls, their answers and messages |
//!
//! The other items are the vocabulary of all of them.
//!
//! # How a driver drives it
//!
//! A driver owns one [`node::Core`] and one store, and carries requests and answers between them.
//! Each event is one call of [`Core::event`](node::Core::event) with the time, and then of one
//! method of one of these kinds:
//!
//! 1. *Callers*: [`begin`](node::Core::begin), [`take`](node::Core::take),
//!    [`cancel`](node::Core::cancel), [`release`](node::Core::release),
//!    [`dropped`](node::Core::dropped), [`leak`](node::Core::leak),
//!    [`confirmation`](node::Core::confirmation), [`downgrade`](node::Core::downgrade).
//! 2. *The store*: [`replied`](node::Core::replied) or [`unanswered`](node::Core::unanswered) for
//!    each request that a method returned or [`Effect::Send`](node::Effect::Send) asked for,
//!    [`confirmed`](node::Core::confirmed) for one of [`Effect::Confirm`](node::Effect::Confirm),
//!    [`heard`](node::Core::heard) for a message, [`linked`](node::Core::linked) for a connection
//!    that breaks or stands again, and [`moved`](node::Core::moved) before it if commands go to
//!    another server from then on.
//! 3. *Time*: [`tick`](node::Core::tick), when [`next`](node::Core::next) says so.
//! 4. *The end*: [`close`](node::Core::close), then [`end_attempts`](node::Core::end_attempts) and
//!    [`take_holds`](node::Core::take_holds) until each has no part left.
//!
//! After each event the driver runs the effects of [`drain`](node::Core::drain), in their order. It
//! may run the effects of two events in any order, outside of the mutex that guards the core.
//!
//! ```
//! use std::time::Duration;
//!
//! use lockcore_proto::node::{Core, Moment, Outcome, Request, Rules};
//! use lockcore_proto::queue::{Call, QueueState};
//! use lockcore_proto::{Demand, Label, LockName, Mode, NodeId, Terms};
//!
//! // The server's half: one lock, and all nodes are connected.
//! let (mut lock, connected, now_us) = (QueueState::default(), |_: &str| true, 1_000_000);
//! // The client's half, of a node without anything that guards would read.
//! let node = NodeId::from(7_u128);
//! let mut core = Core::<()>::new(node.clone(), Rules::default());
//!
//! let request = Request {
//!     lock: LockName::from("order:42"),
//!     options: Terms { lease: Duration::from_secs(10), ..Terms::default() },
//!     mode: Mode::Wait,
//!     label: Label::new("web"),
//!     demand: Demand::EXCLUSIVE,
//! };
//! let now = Moment::from_micros(0);
//! let (attempt, ask) = core.event(now).begin(request, ()).expect("open");
//! let ask = ask.expect("nothing is on its way");
//!
//! // The driver's work: the request to the server, and the answer back.
//! let answer = lock.step(&mut Call::new(&node, &connected, now_us), &ask.command);
//! core.event(now).replied(&ask, &answer);
//! assert!(matches!(core.event(now).take(attempt), Outcome::Granted { .. }));
//! ```

pub mod layout;
pub mod node;
pub mod queue;
pub mod token;
pub mod wire;

mod command;
mod demand;
mod error;
mod event;
mod member;
mod name;
mod reply;
mod sorted_set;
mod terms;
mod text;
mod topology;

pub use command::{Answer, Answers, Command};
pub use demand::{ALL, Demand};
pub use error::{ConfigError, LockErrorKind, StoreError};
pub use event::{Event, Link};
pub use member::{Label, MAX_RUN, Member, NodeId, PLAIN_MARKER, Party, Service};
pub use name::LockName;
pub use reply::{
    Acquired, Grant, HoldView, Inspection, Leaving, Left, MAX_ACQUIRES, MAX_BATCH, MAX_LINES,
    MAX_RENEWALS, Mode, Presence, Released, Renewed, Reply, Touched,
};
pub use sorted_set::SortedSet;
pub use terms::{Renewal, Terms, WhenBusy};
pub use token::{FencingToken, TokenError};
pub use topology::Topology;

/// The time for which a waiting member's node is believed alive after it was heard of.
pub const PATIENCE_MS: u64 = 15_000;
/// The life of a tombstone.
pub const TOMBSTONE_MS: u64 = 60_000;
/// A claim is this part of the lease,
const CLAIMS_PER_LEASE: u64 = 3;
/// but no shorter than this, unless the lease is shorter still,
const MIN_CLAIM_MS: u64 = 2_000;
/// and no longer: a process that has just frozen keeps the others waiting for so long.
const MAX_CLAIM_MS: u64 = 10_000;

/// The lease of a hold that was handed over, until its first renewal.
pub fn claim_ms(lease_ms: u64) -> u64 {
    lease_ms.min((lease_ms / CLAIMS_PER_LEASE).clamp(MIN_CLAIM_MS, MAX_CLAIM_MS))
}
