//! `lock-torture`: runs the chaos of `lock_tests::chaos`, and is itself the children of it. Started by
//! the test `chaos` and by `scripts/torture`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use lock_tests::chaos::{self, Kind, Outcome, Plan, Takeover};

const USAGE: &str = "usage: lock-torture faults SEED CYCLES [KIND...]
       lock-torture takeover KILLS
       lock-torture dead WAITERS";
/// What the next may wait behind dead waiters, by the server's clock.
const PAST_THE_DEAD: Duration = Duration::from_millis(5);
const DEAD_ROUNDS: usize = 9;
/// Kinds of faults at the same time, each with its own servers and children: most of a run is waiting.
const AT_ONCE: usize = 4;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["child", child, file, url, resource, seed, kind] => {
            let child = child.parse().expect("a child is a number");
            let kind = kind.parse().expect("a kind of fault");
            let seed = seed.parse().expect("a seed is a number");
            let life = chaos::live(url, resource, file.as_ref(), seed, child, kind);
            // Both sorts of runtime, for different interleavings.
            let mut builder = match child % 2 {
                0 => tokio::runtime::Builder::new_current_thread(),
                _ => tokio::runtime::Builder::new_multi_thread(),
            };
            let runtime = builder.worker_threads(2).enable_all().build();
            runtime.expect("a runtime starts").block_on(life);
            ExitCode::SUCCESS
        }
        ["faults", seed, cycles, kinds @ ..] => {
            let seed = seed.parse().expect("SEED is a number");
            let cycles: u64 = cycles.parse().expect("CYCLES is a number");
            let kinds: Vec<Kind> = match kinds {
                [] => Kind::ALL.to_vec(),
                kinds => kinds.iter().map(|kind| kind.parse().expect("a kind")).collect(),
            };
            main_loop(faults(seed, cycles, &kinds))
        }
        ["hold", url, key, lease, sort] => {
            let lease = Duration::from_millis(lease.parse().expect("a lease in ms"));
            let held = chaos::hold(url, key, lease, *sort == "renewed");
            main_loop(async {
                held.await;
                ExitCode::SUCCESS
            })
        }
        ["crowd", url, key, count] => {
            let waiting = chaos::crowd(url, key, count.parse().expect("a count"));
            main_loop(async {
                waiting.await;
                ExitCode::SUCCESS
            })
        }
        ["takeover", kills] => main_loop(takeover(kills.parse().expect("KILLS is a number"))),
        ["dead", waiters] => main_loop(dead(waiters.parse().expect("WAITERS is a number"))),
        _ => {
            say(USAGE);
            ExitCode::from(64)
        }
    }
}

fn main_loop(work: impl Future<Output = ExitCode>) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(work)
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("this program has a path")
}

async fn faults(seed: u64, cycles: u64, kinds: &[Kind]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    say(Outcome::HEAD);
    let share = cycles.div_ceil(kinds.len() as u64);
    let runs = kinds.iter().map(|kind| {
        let plan = Plan { kind: *kind, seed, cycles: share };
        async move {
            let run = tokio::spawn(async move { chaos::run(&this_program(), &plan).await });
            (*kind, run.await.expect("the harness works"))
        }
    });
    let mut outcomes = stream::iter(runs).buffered(AT_ONCE);
    let mut ended = Vec::new();
    while let Some((kind, outcome)) = outcomes.next().await {
        say(&outcome.row(kind));
        for violation in outcome.violations.iter().take(20) {
            say(&format!("  {violation}"));
        }
        if !outcome.violations.is_empty() {
            say(&format!("  again: lock-torture faults {seed} {share} {kind}"));
            code = ExitCode::FAILURE;
        }
        ended.push(outcome);
    }
    say(&Outcome::total(&ended));
    code
}

async fn takeover(kills: usize) -> ExitCode {
    let measured = chaos::takeovers(&this_program(), kills).await;
    let violations = measured.violations();
    for (name, mut took, bound) in [
        ("no renewal in between", measured.known, Takeover::BOUND),
        ("a renewal in between", measured.renewed, Takeover::BOUND_RENEWED),
    ] {
        took.sort_unstable();
        let ms = |us: Option<&u64>| us.map_or(0.0, |us| *us as f64 / 1_000.0);
        say(&format!(
            "{name}: {} kills, median {:.1} ms, longest {:.1} ms, bound {} ms",
            took.len(),
            ms(took.get(took.len() / 2)),
            ms(took.last()),
            bound.as_millis()
        ));
    }
    say(&format!("violations: {violations}"));
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Judged by the median: a processor that is busy elsewhere makes any single one longer.
async fn dead(waiters: usize) -> ExitCode {
    let mut took = Vec::new();
    for _ in 0..DEAD_ROUNDS {
        took.push(chaos::hand_over_past_the_dead(&this_program(), waiters).await);
    }
    took.sort_unstable();
    let (median, longest) = (took[DEAD_ROUNDS / 2], took[DEAD_ROUNDS - 1]);
    say(&format!(
        "{waiters} dead waiters ahead: {DEAD_ROUNDS} times, median {median:.1?}, longest {longest:.1?}, bound {PAST_THE_DEAD:?}"
    ));
    if median <= PAST_THE_DEAD { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What it says is what it is for.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}
