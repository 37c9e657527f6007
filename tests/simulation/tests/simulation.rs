//! Runs of the simulation, as many as fit into each run of the tests.

use std::time::Duration;

use lock_simulate::{Fault, KINDS, Law, Plan, Size, reduce, run};

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
        assert_eq!(Fault::TABLE[fault as usize].1, name, "the table has the order of the faults");
        let of = |law: &Law| format!("{law:?}");
        let laws = match laws.len() == Law::ALL.len() {
            true => "all".into(),
            false => laws.iter().map(of).collect::<Vec<_>>().join(" "),
        };
        let row = text.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        assert!(row.is_some_and(|row| row.ends_with(&format!(" | {laws} |"))), "{name}: {laws}");
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

/// Clocks that are wrong by more than the margin break S2, which is only counted: here it
/// counts.
fn breaks(plan: Plan) -> Option<Size> {
    let outcome = run(plan).ok()?;
    (outcome.counted[Law::S2 as usize] > 0).then_some(outcome.size)
}

#[test]
fn what_is_left_of_a_plan_still_breaks_the_law_and_has_nothing_needless() {
    let (_, rates) = KINDS.into_iter().find(|(kind, _)| *kind == "rates").expect("it is one");
    let plan = Plan { nodes: 12, ..Plan::of(3, 20_000, rates) };
    let reduced = reduce(plan, Duration::from_secs(60), breaks);
    assert!(breaks(reduced).is_some());
    assert_eq!(reduced.faults.all().collect::<Vec<_>>(), [Fault::Drift]);
    assert!(reduced.nodes <= 2 && reduced.locks == 1 && reduced.events < 1_000, "{reduced:?}");
}
