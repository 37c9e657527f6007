//! `lock-torture`: runs the chaos of `lock_tests::chaos`, and serves as the child program as well.
//! The test `chaos` and `scripts/torture` start it.

mod cluster;
mod dropped;
mod failovers;
mod quorum;
#[cfg(feature = "replays")]
mod replays;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use lock_tests::Clustered;
use lock_tests::chaos::{
    self, Forms, FrozenPrimary, Interrupted, Kind, Lost, Outcome, Plan, Storm, Takeover, Unrelated,
    Violation, What,
};

const USAGE: &str = "usage: lock-torture faults SEED CYCLES [all|lock|shared|batches] [KIND...]
       lock-torture takeover KILLS
       lock-torture dead WAITERS
       lock-torture stall WAITERS LOCKS
       lock-torture interrupted KEYS
       lock-torture lost HOLDS
       lock-torture dropped SECONDS
       lock-torture frozen-primary MANY
       lock-torture storm NODES HANDSHAKE_MS
       lock-torture failovers FILE COUNT [KIND...] [--replicas=N] [--careful | --cluster]
       lock-torture failovers FILE --table
       lock-torture cluster ROUNDS HOLDS
       lock-torture quorum SEED GUARDS [FAULT...]
       lock-torture replays KEYS [SEED]";
/// The longest wait of the next live waiter behind dead waiters, by the server's clock.
const PAST_THE_DEAD: Duration = Duration::from_millis(5);
const DEAD_ROUNDS: usize = 9;
/// The longest time that a single script of a node may keep the server busy.
const BURST: Duration = Duration::from_millis(5);
/// The longest time that another caller may wait for a node's mutex.
const MUTEX: Duration = Duration::from_millis(10);
const ROUNDS: usize = 3;
/// How many kinds of faults run at the same time, each with its own servers and children: most of a
/// run is waiting.
const AT_ONCE: usize = 4;
/// How many violations of a kind are printed.
const MOST_SAID: usize = 5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["child", child, file, url, resource, seed, kind, forms] => {
            let child = child.parse().expect("a child is a number");
            let kind = kind.parse().expect("a kind of fault");
            let forms = forms.parse().expect("forms of locks");
            let seed = seed.parse().expect("a seed is a number");
            let life = chaos::live(url, resource, file.as_ref(), seed, child, (kind, forms));
            // Both runtime flavours, for different interleavings.
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
            let (forms, kinds) = match kinds.first().and_then(|word| word.parse().ok()) {
                Some(forms) => (forms, &kinds[1..]),
                None => (Forms::All, kinds),
            };
            let kinds: Vec<Kind> = match kinds {
                [] => Kind::ALL.to_vec(),
                kinds => kinds.iter().map(|kind| kind.parse().expect("a kind")).collect(),
            };
            main_loop(faults(seed, cycles, forms, &kinds))
        }
        ["hold", url, key, lease, sort] => {
            let lease = Duration::from_millis(lease.parse().expect("a lease in ms"));
            let held = chaos::hold(url, key, lease, *sort == "renewed");
            main_loop(async {
                held.await;
                ExitCode::SUCCESS
            })
        }
        ["crowd", url, key, counts @ ..] => {
            let counts: Vec<usize> =
                counts.iter().map(|count| count.parse().expect("a count")).collect();
            let waiting = chaos::crowd(url, key, &counts);
            main_loop(async {
                waiting.await;
                ExitCode::SUCCESS
            })
        }
        ["buy", seed, spare, primaries @ ..] => {
            let seed: u64 = seed.parse().expect("a seed is a number");
            let bought = chaos::buy_from_quorum(seed, spare.parse().expect("a count"), primaries);
            // Both runtime flavours, for different interleavings.
            let mut builder = match seed % 2 {
                0 => tokio::runtime::Builder::new_current_thread(),
                _ => tokio::runtime::Builder::new_multi_thread(),
            };
            let runtime = builder.worker_threads(2).enable_all().build();
            runtime.expect("a runtime starts").block_on(bought);
            ExitCode::SUCCESS
        }
        ["takeover", kills] => main_loop(takeover(kills.parse().expect("KILLS is a number"))),
        ["dead", waiters] => main_loop(dead(waiters.parse().expect("WAITERS is a number"))),
        ["stall", waiters, locks] => {
            let waiters = waiters.parse().expect("WAITERS is a number");
            main_loop(stall(waiters, locks.parse().expect("LOCKS is a number")))
        }
        ["interrupted", keys] => interrupted(keys.parse().expect("KEYS is a number")),
        ["failovers", file, words @ ..] => failovers::failovers(file, words),
        ["cluster", rounds, holds] => cluster::cluster(
            rounds.parse().expect("ROUNDS is a number"),
            holds.parse().expect("HOLDS is a number"),
        ),
        ["quorum", seed, guards, faults @ ..] => main_loop(quorum::quorum(
            seed.parse().expect("SEED is a number"),
            guards.parse().expect("GUARDS is a number"),
            faults,
        )),
        #[cfg(feature = "replays")]
        ["serve-replays", url, name] => main_loop(async {
            chaos::serve_replays(url, name).await;
            ExitCode::SUCCESS
        }),
        #[cfg(feature = "replays")]
        ["replays", keys] => main_loop(replays::replays(keys, &std::process::id().to_string())),
        #[cfg(feature = "replays")]
        ["replays", keys, seed] => main_loop(replays::replays(keys, seed)),
        ["lost", holds] => lost(holds.parse().expect("HOLDS is a number")),
        ["dropped", seconds] => dropped::dropped(seconds.parse().expect("SECONDS is a number")),
        ["frozen-primary", many] => {
            main_loop(frozen_primary(many.parse().expect("MANY is a number")))
        }
        ["storm", nodes, each] => {
            let nodes = nodes.parse().expect("NODES is a number");
            let each = each.parse().expect("HANDSHAKE_MS is a number");
            main_loop(storm(nodes, Duration::from_millis(each)))
        }
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

async fn faults(seed: u64, cycles: u64, forms: Forms, kinds: &[Kind]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    say(Outcome::HEAD);
    let share = cycles.div_ceil(kinds.len() as u64);
    let runs = kinds.iter().map(|kind| {
        let plan = Plan { kind: *kind, forms, seed, cycles: share };
        async move {
            let run = tokio::spawn(async move { chaos::run(&this_program(), &plan).await });
            (*kind, run.await.expect("the harness works"))
        }
    });
    let mut outcomes = stream::iter(runs).buffered(AT_ONCE);
    let mut ended = Vec::new();
    while let Some((kind, outcome)) = outcomes.next().await {
        say(&outcome.row(kind));
        say_violations(&outcome);
        if !outcome.violations.is_empty() {
            say(&format!("  again: lock-torture faults {seed} {share} {forms} {kind}"));
            code = ExitCode::FAILURE;
        }
        ended.push(outcome);
    }
    say(&Outcome::total(&ended));
    code
}

/// Prints the number of violations of each kind, and the first few.
fn say_violations(outcome: &Outcome) {
    let mut kinds: Vec<(What, Vec<&Violation>)> = Vec::new();
    for violation in &outcome.violations {
        match kinds.iter_mut().find(|(what, _)| *what == violation.what) {
            Some((_, found)) => found.push(violation),
            None => kinds.push((violation.what, vec![violation])),
        }
    }
    for (what, found) in kinds {
        say(&format!("  {what:?}, {} times", found.len()));
        for violation in found.iter().take(MOST_SAID) {
            say(&format!("    {violation}"));
        }
    }
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

/// Measures hand-offs past dead waiters. The median is judged: a busy processor prolongs single
/// hand-offs.
async fn dead(waiters: usize) -> ExitCode {
    let mut took = Vec::new();
    for _ in 0..DEAD_ROUNDS {
        took.push(chaos::hand_over_past_the_dead(&this_program(), waiters).await);
    }
    took.sort_unstable();
    let median = took[DEAD_ROUNDS / 2];
    let longest = took[DEAD_ROUNDS - 1];
    say(&format!(
        "{waiters} dead waiters ahead: {DEAD_ROUNDS} times, median {median:.1?}, longest {longest:.1?}, bound {PAST_THE_DEAD:?}"
    ));
    if median <= PAST_THE_DEAD { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Freezes each primary of a Cluster in turn.
async fn frozen_primary(many: usize) -> ExitCode {
    let mut clustered = Clustered::steady().await;
    let mut is_kept = true;
    for frozen in 0..3 {
        let FrozenPrimary { holds, lost, turns, longest } =
            chaos::frozen_primary(&mut clustered, frozen, many).await;
        say(&format!(
            "{many} of each kind on a primary that stands still: on the others {lost} of {holds} \
             holds lost, {turns} turns, the longest {longest:.1?}"
        ));
        is_kept &= lost == 0 && longest < FrozenPrimary::BOUND;
    }
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn storm(nodes: usize, each: Duration) -> ExitCode {
    let Storm { took, missing, longest_line, bound } = chaos::storm(nodes, each).await;
    say(&format!(
        "{nodes} nodes, {each:?} a handshake: {missing} missing after {took:.1?}, bound {bound:?}, \
         {longest_line} connections in line at most"
    ));
    if missing == 0 && took <= bound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs each round on a separate runtime: leftover tasks must not delay the next round.
fn round<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let measured = runtime.block_on(work);
    runtime.shutdown_background();
    measured
}

/// Measures the cost of a killed process for the live ones. For the scripts, the median of the
/// rounds is judged, as in `dead`.
async fn stall(waiters: usize, locks: usize) -> ExitCode {
    let turns = chaos::turns_past_the_dead(&this_program(), waiters).await;
    let later = &turns[turns.len() / 2..];
    let usual = later.iter().sum::<u64>() as f64 / later.len() as f64;
    let ratio = turns[0] as f64 / usual;
    say(&format!("{waiters} dead ahead: turns in each second {turns:?}, first / later {ratio:.2}"));
    let Unrelated { before, after, longest_script } =
        chaos::unrelated_past_the_dead(&this_program(), waiters, locks).await;
    say(&format!(
        "{locks} locks with {waiters} dead each: an unrelated pair's p99 {before:.1?} before, \
         {after:.1?} after; longest script {longest_script:.1?}"
    ));
    let is_kept = ratio >= 0.5 && after <= before + Duration::from_millis(2);
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn interrupted(keys: usize) -> ExitCode {
    let mut longest = Vec::new();
    let mut broken = 0;
    for _ in 0..ROUNDS {
        let measured = round(chaos::interrupted(keys));
        let Interrupted { breaks, passed, positions_lost, touched, watched, .. } = measured;
        let Interrupted { scripts, busy, longest: most, pings, .. } = measured;
        let part = busy.as_secs_f64() / watched.as_secs_f64() * 100.0;
        let mean = busy / u32::try_from(scripts).unwrap_or(u32::MAX).max(1);
        let most = most.unwrap_or_default();
        let ping = pings.get(pings.len() * 999 / 1_000).copied().unwrap_or_default();
        let slow = pings.last().copied().unwrap_or_default();
        say(&format!(
            "{keys} waiting keys, link cut once: {breaks} more breaks, {passed} deadlines passed, \
             {positions_lost} positions lost; all touched after {touched:.1?}; {scripts} scripts in \
             {watched:.1?}, {part:.1} % of a core, mean {mean:.1?}, longest {most:.1?}; a PING of \
             another {ping:.1?} (99.9 %), at the longest {slow:.1?}",
        ));
        broken += breaks + passed as u64 + positions_lost;
        longest.push(most);
    }
    longest.sort_unstable();
    let longest = longest[ROUNDS / 2];
    say(&format!("longest script, median of {ROUNDS} rounds: {longest:.1?}, bound {BURST:?}"));
    if broken == 0 && longest <= BURST { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures holds lost at once. For the mutex, the median of the rounds is judged: the longest call
/// of a round also includes other work of the processor.
fn lost(holds: usize) -> ExitCode {
    let mut longest = Vec::new();
    let mut too_late = 0;
    for _ in 0..ROUNDS {
        let Lost { late, early, spread, calls } = round(chaos::lost(holds));
        let least = early.first().copied().unwrap_or_default();
        let middle = early.get(early.len() / 2).copied().unwrap_or_default();
        let most = calls.last().copied().unwrap_or_default();
        let usual = calls.get(calls.len() * 999 / 1_000).copied().unwrap_or_default();
        say(&format!(
            "{holds} holds lost within {spread:.1?}: {late} told too late, the last {least:.1?} \
             before its deadline (median {middle:.1?}); {} calls of another meanwhile, 99.9 % \
             {usual:.1?}, longest {most:.1?}",
            calls.len(),
        ));
        too_late += late;
        longest.push(most);
    }
    longest.sort_unstable();
    let longest = longest[ROUNDS / 2];
    say(&format!("longest call, median of {ROUNDS} rounds: {longest:.1?}, bound {MUTEX:?}"));
    if too_late == 0 && longest <= MUTEX { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a line: the output lines are the result of the program.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}
