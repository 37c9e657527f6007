//! A simulation of many nodes and one or several servers: the real tables, the real protocol, one
//! thread, virtual time.
//!
//! Everything in a run follows from its plan, and so from a number: a history that breaks a law is
//! replayed by its seed, on every machine.
//!
//! - `plan`, `fault`: the size of a run, its faults, and the laws that hold under them, as one
//!   table;
//! - `world`, `event_queue`: virtual time, and one event after the other; `dice`: chance;
//! - `network`, `server`, `resource`, `server_faults`: the messages on their way, the protocol's
//!   function behind a clock and a counter of tokens, the locks and the demands for them, server
//!   faults;
//! - `cluster`, `routing`: several servers, hash slots that move from one to another, and the way
//!   of a request after them;
//! - `process`, `lifecycle`, `callers`, `holders`: the nodes' tables, their processes, and the
//!   callers of locks, until they have one and from then on;
//! - `facts`: each command, for the judge of `lock-laws`; `judge`, `cut`, `settle`: the laws of
//!   more than one command, against a record of our own; `breach`: a broken law; `reduce`: from a
//!   run that breaks one to a small one;
//! - `pairs`: the mechanisms that met in the life of one hold.

mod breach;
mod callers;
mod cluster;
mod cut;
mod dice;
mod event_queue;
mod facts;
mod fault;
mod holders;
mod judge;
mod lifecycle;
mod network;
mod pairs;
mod plan;
mod process;
mod reduce;
mod replica;
mod resource;
mod routing;
mod server;
mod server_faults;
mod settle;
mod world;

pub use breach::Breach;
pub use fault::{Fault, Faults, KINDS};
pub use laws::Law;
pub use pairs::{Mechanism, Pairs};
pub use plan::{Outcome, Plan, Size};
pub use reduce::reduce;

/// Runs a plan to its end.
///
/// # Errors
/// The first law that is broken although it holds under the faults of the plan.
pub fn run(plan: Plan) -> Result<Outcome, Breach> {
    world::World::new(plan).run()
}

/// Runs a plan to its end, and prints all requests and answers that have `text` in them.
///
/// # Errors
/// As [`run`].
pub fn trace(plan: Plan, text: String) -> Result<Outcome, Breach> {
    let mut world = world::World::new(plan);
    world.trace = Some(text);
    world.run()
}
