//! A simulation of many nodes and one or several servers: the real tables, the real protocol, one
//! thread, virtual time.
//!
//! Everything in a run follows from its plan, and so from a number: a history that breaks a law is
//! replayed by its seed, on every machine.
//!
//! - `plan`, `fault`: the size of a run, its faults, and the laws that hold under them, as one
//!   table;
//! - `world`, `agenda`: virtual time, and one event after the other; `dice`: chance;
//! - `network`, `server`, `resource`, `trouble`: the messages on their way, the protocol's function
//!   behind a clock and a counter of tokens, the locks and the demands for them, server faults;
//! - `cluster`, `routing`: several servers, hash slots that move from one to another, and the way
//!   of a request after them;
//! - `process`, `lives`, `callers`: the nodes' tables, their processes, and the callers of locks;
//! - `facts`: each command, for the judge of `lock-laws`; `judge`, `rest`: the laws of more than
//!   one command, against a record of our own; `breach`: a broken law; `reduce`: from a run
//!   that breaks one to a small one.

mod agenda;
mod breach;
mod callers;
mod cluster;
mod dice;
mod facts;
mod fault;
mod judge;
mod lives;
mod network;
mod plan;
mod process;
mod reduce;
mod replica;
mod resource;
mod rest;
mod routing;
mod server;
mod trouble;
mod world;

pub use breach::Breach;
pub use fault::{Fault, Faults, KINDS};
pub use laws::Law;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kind_of_fault_breaks_a_law() {
        for (kind, faults) in KINDS {
            let (mut holds, mut parts) = (0, 0);
            for seed in 1..12 {
                let outcome = run(Plan::of(seed, 40_000, faults));
                let outcome = outcome.unwrap_or_else(|broken| panic!("{kind} {seed}: {broken}"));
                assert!(outcome.holds > 200, "{kind} {seed}: {outcome:?}");
                holds += outcome.holds;
                parts += outcome.parts;
            }
            assert!(holds > 20_000, "{kind}: {holds}");
            assert!(parts > 5_000, "{kind}: {parts}");
        }
    }

    #[test]
    fn the_documented_table_of_laws_is_the_one_that_is_used() {
        let text = include_str!("../../../docs/reliability.md");
        for (fault, name, laws) in Fault::TABLE {
            assert_eq!(
                Fault::TABLE[fault as usize].1,
                name,
                "the table has the order of the faults"
            );
            let of = |law: &Law| format!("{law:?}");
            let laws = match laws.len() == Law::ALL.len() {
                true => "all".into(),
                false => laws.iter().map(of).collect::<Vec<_>>().join(" "),
            };
            let row = text.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            assert!(
                row.is_some_and(|row| row.ends_with(&format!(" | {laws} |"))),
                "{name}: {laws}"
            );
        }
    }

    #[test]
    fn a_seed_replays_a_run() {
        for (kind, faults) in KINDS {
            let again = |seed| run(Plan::of(seed, 40_000, faults));
            assert_eq!(again(7), again(7), "{kind}");
            assert_ne!(again(7), again(15), "{kind}");
        }
    }
}
