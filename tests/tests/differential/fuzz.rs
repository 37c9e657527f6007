//! Many random sequences at a time, and a short one that fails.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::Builder;

use crate::case::{self, MET};
use crate::layout::{Kind, Layout};
use crate::random::{self, Choices};
use crate::world::World;

/// Commands in the longest sequence.
const COMMANDS: usize = 202;
/// Servers at a time, for each kind: most of a sequence is waiting.
const WORKERS: u32 = 4;
/// The milliseconds for which a sequence that fails is shortened.
const SHRINK_MS: u32 = 20_000;

/// The results of a worker's sequences.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) commands: usize,
    /// Commands at whose very instant something ended: nobody can tell on which side of it.
    pub(crate) undecided: usize,
    pub(crate) seen: BTreeSet<String>,
}

fn number(name: &str, usual: u32) -> u32 {
    let Ok(text) = std::env::var(name) else { return usual };
    text.parse().unwrap_or_else(|_| panic!("{name} is '{text}', which is no number"))
}

/// Runs one in `share` of all sequences.
pub(crate) fn run<L: Layout>(kind: Kind, share: u32) {
    let each = number("DIFFERENTIAL_CASES", 64).div_ceil(share * WORKERS);
    let failed = AtomicBool::new(false);
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let work = |worker| work::<L>(kind, worker, each, &failed);
        let workers: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no difference")).collect()
    });
    let mut all = Tally::default();
    for mut tally in tallies {
        all.commands += tally.commands;
        all.undecided += tally.undecided;
        all.seen.append(&mut tally.seen);
    }
    let Tally { commands, undecided, seen } = all;
    let layout = if L::PEERS { "redisson" } else { "queue" };
    let summary = format!(
        "{layout}, {kind:?}: {commands} commands, {undecided} as something ended, 0 differences\n"
    );
    let _ = std::io::stderr().write_all(summary.as_bytes());
    assert!(undecided * 10 < commands, "{undecided} of {commands} commands could not be judged");
    let [besides, rare] = L::met(kind);
    let is_missed = |what: &&&str| !seen.contains(**what) && !rare.contains(*what);
    let missed: Vec<_> = MET.iter().chain(besides).filter(is_missed).collect();
    assert!(missed.is_empty(), "{kind:?} never met {missed:?}");
    let strange = seen.contains("refused as strange");
    assert!(strange == (kind == Kind::Strange), "{kind:?}: a strange key was met: {strange}");
}

/// Ends early when another worker has `failed`: one short sequence is enough.
fn work<L: Layout>(kind: Kind, worker: u32, cases: u32, failed: &AtomicBool) -> Tally {
    let mut seed = [0; 32];
    seed[0..4].copy_from_slice(&number("DIFFERENTIAL_SEED", 0).to_le_bytes());
    (seed[4], seed[5]) = (kind as u8, worker as u8);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut world = runtime.block_on(World::start(L::PEERS));
    let layout = runtime.block_on(L::load(&mut world.redis));
    let mut tally = Tally::default();
    let mut run = |choices: &Choices, tally: &mut Tally| {
        runtime.block_on(case::run(&layout, &mut world, kind, choices, tally))
    };
    for _ in 0..cases {
        if failed.load(Ordering::Relaxed) {
            break;
        }
        let choices = random::choices(COMMANDS).new_tree(&mut runner).expect("choices").current();
        if let Err(difference) = run(&choices, &mut tally)
            && !failed.swap(true, Ordering::Relaxed)
        {
            let retry = |choices: &Choices| run(choices, &mut Tally::default());
            panic!("{kind:?}, {}", shorten(choices, difference, retry));
        }
    }
    tally
}

/// Leaves out parts of a sequence that fails, ever smaller ones, as long as it goes on failing. The
/// last ones first: those behind the difference are in no way needed.
fn shorten(
    mut steps: Choices,
    mut difference: String,
    mut run: impl FnMut(&Choices) -> Result<(), String>,
) -> String {
    let time = Duration::from_millis(number("DIFFERENTIAL_SHRINK", SHRINK_MS).into());
    let end = Instant::now() + time;
    let mut part = steps.len() / 2;
    while part > 0 {
        let mut from = steps.len();
        while from > 0 && Instant::now() < end {
            from = from.saturating_sub(part).min(steps.len());
            let mut shorter = steps.clone();
            shorter.drain(from..(from + part).min(steps.len()));
            if let Err(found) = run(&shorter) {
                (steps, difference) = (shorter, found);
            }
        }
        part /= 2;
    }
    difference
}
