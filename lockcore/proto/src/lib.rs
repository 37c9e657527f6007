//! The protocol of [lockcore](https://docs.rs/lockcore), a fair distributed lock, without I/O: no
//! runtime, no Redis client, no clock and no randomness. Everything is an argument.
//!
//! This crate is for authors of drivers. To lock something, use `lockcore`. The API is not stable.
//!
//! | module | half |
//! |---|---|
//! | [`queue`] | the server: each [`Command`] on a lock as a pure function of lock state |
//! | [`layout`] | a lock's keys, commands and rules behind a trait |
//! | [`node`] | the client: all attempts and holds of a process, as a state machine |
//! | [`wire`] | both halves over Redis: scripts, their calls, replies and messages |
//!
//! The other items are the vocabulary shared by these modules.
//!
//! # Glossary
//!
//! | term | meaning | in the code |
//! |---|---|---|
//! | acquire | the command that takes a lock or queues for it | [`Command::Acquire`] |
//! | attempt | a caller's try to acquire, from its begin to its outcome | [`node::Request`] |
//! | batch | consecutive waiters of a node that are granted a lock as one hold | [`MAX_BATCH`] |
//! | claim | the short lease of a handed-off lock, until the first renewal | [`claim_ms`] |
//! | clock, moment | server time in µs since the epoch; the node's own time | [`node::Moment`] |
//! | command | what a node asks of a lock, as a value | [`Command`] |
//! | demand | how much of a name is requested: everything, a read, permits | [`Demand`] |
//! | driver | the code around a core: the mutex, the store, the wake-ups | |
//! | effect | what the driver has to do after an event | [`node::Effect`] |
//! | event (of a node) | a call of the core: a caller, a response, a message, a timer | [`node::Core::event`] |
//! | event (for logs) | what is logged and counted | [`node::Note`] |
//! | exclusive, shared hold | a hold of everything; a read or permits | `Held::Whole`, `Held::Parts` |
//! | fast path | an acquire or a release without a script | [`node::Way::Fast`] |
//! | fence | keeps attempts behind a fast acquire of the same lock | `node::fence` |
//! | fencing token | a number that rises with each grant of a name | [`FencingToken`] |
//! | flag | what a command has to read beside the lock key: a queue, tombstones | [`queue::Mark`] |
//! | grant | the server gives a lock to a member | [`Grant`] |
//! | hand-off | a release that grants the lock to the next waiter | |
//! | hold, holder | a granted lock until its release or expiry, and its member | |
//! | lane | the requests and timers for one server | |
//! | layout | a kind of keys, members and scripts: ours or Redisson's | [`layout::Layout`] |
//! | lease | how long the server keeps a lock without a renewal | [`Terms::lease`] |
//! | leave | the command that takes members out of the queue, or releases them | [`Command::Leave`] |
//! | liveness deadline | until then the server believes a node's waiters alive | [`PATIENCE_MS`] |
//! | lock key | the Redis key that stores the holder | [`queue::LockKeyValue`] |
//! | lost position | the server no longer knows a waiter: it queues again at the tail | [`node::Note::PositionLost`] |
//! | member | an attempt or a hold as the server stores it | [`Member`] |
//! | message | what a server sends to a node without a request | [`Event`] |
//! | name | what is locked, as callers spell it | [`LockName`] |
//! | node | a process as the server knows it | [`NodeId`] |
//! | orphan | a member without an attempt here, which is released | |
//! | position | the number of waiters ahead | [`Acquired::Queued`] |
//! | release | the command that ends a hold | [`Command::Release`] |
//! | renewal | the command that extends leases | [`Command::Renew`] |
//! | request, response | a command under way to the store, and what comes back | [`node::StoreRequest`], [`Answer`] |
//! | request group | requests sent together in one script, each with a separate response | [`node::RequestGroup`] |
//! | round | the next member of an attempt that lost its position | |
//! | score | the number by which the queue is sorted | |
//! | set aside | a skipped member that keeps its score for 15 s | [`queue::SetAside`] |
//! | skip | grant to the next waiter because a node is not connected | [`node::Note::Skipped`] |
//! | token floor | new tokens of a node are above everything it has seen | [`wire::TokenFloors`] |
//! | tombstone | refuses late copies of an acquire | |
//! | touch | the command that keeps waiters alive and returns their state | [`Command::Touch`] |
//! | unsent, parked | an attempt that waits for its turn; one whose request failed | |
//! | waiter | an attempt in the queue | |
//!
//! # How a driver drives it
//!
//! A driver owns a [`node::Core`] and a store, and carries requests and responses between them.
//! Each event is a call of [`Core::event`](node::Core::event) with the time, followed by a call of
//! a method from these groups:
//!
//! 1. *Callers*: [`begin`](node::Core::begin), [`take`](node::Core::take),
//!    [`cancel`](node::Core::cancel), [`release`](node::Core::release),
//!    [`dropped`](node::Core::dropped), [`leak`](node::Core::leak),
//!    [`confirmation`](node::Core::confirmation), [`downgrade`](node::Core::downgrade).
//! 2. *The store*: [`replied`](node::Core::replied) or [`unanswered`](node::Core::unanswered) for
//!    each request returned by a method or by [`Effect::Send`](node::Effect::Send),
//!    [`unconfirmed`](node::Core::unconfirmed) if the store did not confirm the write of an
//!    [`Effect::Confirm`](node::Effect::Confirm),
//!    [`heard`](node::Core::heard) for a message, [`linked`](node::Core::linked) for a connection
//!    that is lost or re-established, preceded by [`moved`](node::Core::moved) if commands go to
//!    another server from then on.
//! 3. *Time*: [`tick`](node::Core::tick), when [`next`](node::Core::next) is due.
//! 4. *The end*: [`close`](node::Core::close), then [`end_attempts`](node::Core::end_attempts) and
//!    [`take_holds`](node::Core::take_holds) until both are finished.
//!
//! After each event the driver runs the effects returned by [`drain`](node::Core::drain), in order.
//! The effects of two events may run in any order, outside the mutex that guards the core.
//!
//! ```
//! use std::time::Duration;
//!
//! use lockcore_proto::node::{Core, Moment, Outcome, Request, Rules};
//! use lockcore_proto::queue::{Call, QueueState};
//! use lockcore_proto::{Demand, Label, LockName, Mode, NodeId, Terms};
//!
//! // The server's half: a lock, and all nodes are connected.
//! let (mut lock, connected, now_us) = (QueueState::default(), |_: &str| true, 1_000_000);
//! // The client's half: a node without guards.
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
//! let (attempt, store_request) = core.event(now).begin(request, ()).expect("open");
//! let store_request = store_request.expect("nothing is on its way");
//!
//! // The driver's work: the request to the server, and the reply.
//! let answer = lock.step(&mut Call::new(&node, &connected, now_us), &store_request.command);
//! core.event(now).replied(&store_request, &answer);
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

pub use command::{Answer, Answers, Command, MOST_INSPECTED};
pub use demand::{ALL, Demand};
pub use error::{ConfigError, LockErrorKind, StoreError};
pub use event::{Event, Link};
pub use member::{Label, MAX_BATCH, Member, NodeId, PLAIN_MARKER, Party, Service};
pub use name::LockName;
pub use reply::{
    Acquired, Grant, HoldView, Inspection, Leaving, Left, MAX_ACQUIRES, MAX_LINES, MAX_MEMBERS,
    MAX_RENEWALS, Mode, Presence, Released, Renewed, Reply, Touched,
};
pub use sorted_set::SortedSet;
pub use terms::{Renewal, Terms, WhenBusy};
pub use token::{FencingToken, TokenError};
pub use topology::Topology;

/// How long the server believes a node's waiters alive after the node's last sign of life, such as
/// a touch, in ms.
pub const PATIENCE_MS: u64 = 15_000;
/// How long a tombstone is kept, in ms. A tombstone refuses copies of an acquire that arrive after
/// the node has given the attempt up.
pub const TOMBSTONE_MS: u64 = 60_000;
/// A claim, the short lease right after a grant to a waiter, is the full lease divided by this
/// number, within the minimum and the maximum below.
const CLAIMS_PER_LEASE: u64 = 3;
/// The minimum claim in ms. If the lease is shorter, the claim is the whole lease.
const MIN_CLAIM_MS: u64 = 2_000;
/// The maximum claim in ms. If a process freezes right after it was handed the lock, the other
/// waiters are delayed by at most this time.
const MAX_CLAIM_MS: u64 = 10_000;

/// Returns the claim in ms: the short lease right after a grant to a waiter, until the first
/// renewal extends it to the full lease `lease_ms`.
pub fn claim_ms(lease_ms: u64) -> u64 {
    lease_ms.min((lease_ms / CLAIMS_PER_LEASE).clamp(MIN_CLAIM_MS, MAX_CLAIM_MS))
}
