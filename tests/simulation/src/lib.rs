//! A simulation of many nodes and one server: the real tables, the real protocol, one thread, virtual time.
//!
//! Everything in a run follows from its plan, and so from a number: a history that breaks a law is
//! replayed by its seed, on every machine. What can go wrong is [`Faults`]; the laws are those of the
//! model and of chaos that can be told from outside: guards exclude each other and the server agrees (S2), tokens
//! rise (S3), nothing is left behind (L3), and without faults everything comes to rest (L1).

mod dice;
mod plan;
mod process;
mod world;

pub use plan::{Broken, Faults, Outcome, Plan};

/// Runs a plan to its end.
///
/// # Errors
/// The first law that is broken.
pub fn run(plan: Plan) -> Result<Outcome, Broken> {
    world::World::new(plan).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64, faults: Faults) -> Plan {
        Plan { seed, events: 40_000, nodes: 5, callers: 6, locks: 3, faults }
    }

    #[test]
    fn no_kind_of_fault_breaks_a_law() {
        for (kind, faults) in Plan::KINDS {
            for seed in 0..12 {
                let outcome = run(plan(seed, faults));
                let outcome = outcome.unwrap_or_else(|broken| panic!("{kind} {seed}: {broken}"));
                assert!(outcome.holds > 500, "{kind} {seed}: {outcome:?}");
            }
        }
    }

    #[test]
    fn a_seed_replays_a_run() {
        let (_, everything) = Plan::KINDS[4];
        let (one, other) = (run(plan(7, everything)), run(plan(7, everything)));
        assert_eq!(one, other);
        assert_ne!(one, run(plan(8, everything)));
    }
}
