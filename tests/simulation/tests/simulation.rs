//! Runs of the simulation, as many as fit into each run of the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lock_simulate::{DRAWN, Fault, Law, Mechanism, Outcome, Plan, Size, kinds, reduce, run};

#[test]
fn no_kind_of_fault_breaks_a_law() {
    let mut total = Outcome::default();
    let mut of_kinds = BTreeMap::<_, Outcome>::new();
    for seed in 1..12 {
        for (kind, faults) in kinds(seed) {
            let outcome = run(Plan::of(seed, 40_000, faults));
            let outcome = outcome.unwrap_or_else(|broken| panic!("{kind} {seed}: {broken}"));
            assert!(outcome.holds > 100, "{kind} {seed}: {outcome:?}");
            of_kinds.entry(kind).or_default().add(&outcome);
            total.add(&outcome);
        }
    }
    for (kind, Outcome { holds, parts, .. }) in of_kinds {
        assert!(holds > 5_000, "{kind}: {holds}");
        assert!(parts > 2_000, "{kind}: {parts}");
    }
    let Outcome { works, long_works, .. } = total;
    assert!(3 * long_works > works, "{long_works} of {works} last for longer than a lease");
    let never: Vec<_> = total.pairs.all().filter(|(.., count)| *count == 0).collect();
    assert!(never.is_empty(), "never met: {never:?}");
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
fn the_documented_table_of_pairs_has_each_mechanism() {
    let text = include_str!("../../../docs/pairs.md");
    let (mechanisms, elsewhere) = text.split_once("## Not simulated").expect("a heading");
    let has = |part: &str, name: &str| {
        let first = |line: &str| line.split('|').nth(1).is_some_and(|cell| cell.contains(name));
        part.lines().any(|line| line.starts_with('|') && first(line))
    };
    for (of, name) in Mechanism::TABLE {
        assert_eq!(Mechanism::TABLE[of as usize].0, of, "the table has their order");
        let name = format!("`{name}`");
        assert!(has(mechanisms, &name) && has(elsewhere, &name), "{name}");
    }
}

#[test]
fn the_seeds_draw_each_fault_and_promotions_on_a_cluster_too() {
    let drawn = (0..500).filter_map(|seed| Some(kinds(seed).find(|(kind, _)| *kind == DRAWN)?.1));
    let drawn: Vec<Vec<Fault>> = drawn.map(|faults| faults.all().collect()).collect();
    assert!(drawn.iter().all(|faults| (3..=6).contains(&faults.len())));
    let names: BTreeSet<_> = drawn.iter().flatten().map(|fault| fault.name()).collect();
    assert_eq!(names.len(), Fault::TABLE.len());
    let both = [Fault::Promote, Fault::MoveSlot];
    assert!(drawn.iter().any(|faults| both.iter().all(|fault| faults.contains(fault))));
}

#[test]
fn a_seed_replays_a_run() {
    for (kind, faults) in kinds(7) {
        let again = |seed| run(Plan::of(seed, 40_000, faults));
        assert_eq!(again(7), again(7), "{kind}");
        assert_ne!(again(7), again(15), "{kind}");
    }
}

/// Returns the size of the run if it breaks law S2. Clocks that are wrong by more than the margin
/// break S2, which a run only counts.
fn breaks(plan: Plan) -> Option<Size> {
    let outcome = run(plan).ok()?;
    (outcome.counted[Law::S2 as usize] > 0).then_some(outcome.size)
}

#[test]
fn what_is_left_of_a_plan_still_breaks_the_law_and_has_nothing_needless() {
    let (_, rates) = kinds(0).find(|(kind, _)| *kind == "rates").expect("it is one");
    let plan = Plan { nodes: 12, ..Plan::of(3, 20_000, rates) };
    let reduced = reduce(plan, Duration::from_secs(60), breaks);
    assert!(breaks(reduced).is_some());
    assert_eq!(reduced.faults.all().collect::<Vec<_>>(), [Fault::Drift]);
    assert!(reduced.nodes <= 2 && reduced.locks == 1 && reduced.events < 1_000, "{reduced:?}");
}
