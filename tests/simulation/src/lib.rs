//! A simulation of many nodes and one or several servers: the real cores (`node::Core`) and the
//! real protocol, in a single thread and in virtual time.
//!
//! A plan determines everything in a run, and a seed determines the plan: a history that breaks a
//! law is replayed from the seed, on every machine.
//!
//! - `plan`, `fault`: a run's size and faults, and the laws that hold under the faults, in a table;
//! - `world`, `event_queue`: virtual time, event by event; `dice`: random numbers;
//! - `network`, `server`, `resource`, `server_faults`: messages under way, the protocol's function
//!   with a clock and a token counter, the locks and the demands for them, server faults;
//! - `cluster`, `routing`: several servers, hash slots that move between them, and how requests
//!   follow the slots;
//! - `process`, `lifecycle`, `callers`, `holders`: the nodes' cores, their processes, and the
//!   callers while they wait and while they hold;
//! - `facts`: each command, for the judge in `lock-laws`; `judge`, `cut`, `settle`: the laws that
//!   concern more than one command, checked against a separate record; `breach`: a broken law;
//!   `reduce`: from a run that breaks a law to a small one;
//! - `pairs`: which mechanisms met during a hold.

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
pub use fault::{DRAWN, Fault, Faults, kinds};
pub use laws::Law;
pub use pairs::{Mechanism, Pairs};
pub use plan::{Outcome, Plan, Size};
pub use reduce::reduce;

/// Runs a plan to the end.
///
/// # Errors
/// The first broken law, among the laws that hold under the plan's faults.
pub fn run(plan: Plan) -> Result<Outcome, Breach> {
    world::World::new(plan).run()
}

/// Runs a plan to the end, and prints all requests and replies containing `text`.
///
/// # Errors
/// See [`run`].
pub fn trace(plan: Plan, text: String) -> Result<Outcome, Breach> {
    let mut world = world::World::new(plan);
    world.trace = Some(text);
    world.run()
}
