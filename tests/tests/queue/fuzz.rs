//! Many random sequences at a time, and the shortest that fails.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::thread;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tokio::runtime::Runtime;

use crate::case::{self, Kind, MET};
use crate::random;
use crate::world::World;

/// Commands in the longest sequence.
const COMMANDS: usize = 120;
/// Servers at a time, for each kind: most of a sequence is waiting.
const WORKERS: u32 = 2;

/// The results of a worker's sequences.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) commands: usize,
    pub(crate) seen: BTreeSet<String>,
}

fn number(name: &str, usual: u32) -> u32 {
    let Ok(text) = std::env::var(name) else { return usual };
    text.parse().unwrap_or_else(|_| panic!("{name} is '{text}', which is no number"))
}

pub(crate) fn run(kind: Kind) {
    let each = number("DIFFERENTIAL_CASES", 256).div_ceil(4 * WORKERS);
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(kind, worker, each))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no difference")).collect()
    });
    let mut all = Tally::default();
    for mut tally in tallies {
        all.commands += tally.commands;
        all.seen.append(&mut tally.seen);
    }
    let told = format!("{kind:?}: {} commands, 0 differences\n", all.commands);
    let _ = std::io::stderr().write_all(told.as_bytes());
    // Where other programs' keys are in the way, few commands get far enough for more than one
    // does.
    // Of locks, one is granted at a time.
    let is_rare = |what: &str| match kind {
        Kind::Strange | Kind::Locks => what == "several grants in a message" || what == "more",
        _ => false,
    };
    let missed: Vec<_> =
        MET.iter().filter(|what| !all.seen.contains(**what) && !is_rare(what)).collect();
    assert!(missed.is_empty(), "{kind:?} never met {missed:?}");
    let strange = all.seen.contains("refused as strange");
    assert!(strange == (kind == Kind::Strange), "{kind:?}: a strange key was met: {strange}");
}

fn work(kind: Kind, worker: u32, cases: u32) -> Tally {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_time: number("DIFFERENTIAL_SHRINK", 60_000),
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let mut seed = [1; 32];
    seed[0..4].copy_from_slice(&number("DIFFERENTIAL_SEED", 0).to_le_bytes());
    (seed[4], seed[5]) = (kind as u8, worker as u8);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let runtime = Runtime::new().expect("a runtime");
    let world = RefCell::new(runtime.block_on(World::start()));
    let tally = RefCell::new(Tally::default());
    let outcome =
        TestRunner::new_with_rng(config, rng).run(&random::choices(COMMANDS), |choices| {
            let (mut world, mut tally) = (world.borrow_mut(), tally.borrow_mut());
            let run = case::run(&mut world, kind, choices, &mut tally);
            runtime.block_on(run).map_err(TestCaseError::fail)
        });
    match outcome {
        Ok(()) => tally.into_inner(),
        Err(TestError::Fail(difference, choices)) => {
            let steps = choices.iter().flatten().count();
            panic!("{kind:?}, step {steps} of a sequence:\n{difference}")
        }
        Err(TestError::Abort(reason)) => panic!("{kind:?}: {reason}"),
    }
}
