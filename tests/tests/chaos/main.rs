//! Chaos, as much of it as fits into every run of the tests: hundreds of lock cycles under each
//! kind of fault, or as many as `LOCK_CHAOS_CYCLES` says: 1 300 in `scripts/test --all`, many
//! thousands in `scripts/torture`.
//!
//! A failure prints the seed and the command that repeats its schedule.

#[cfg(feature = "replays")]
use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use lock_tests::chaos::{FailoverPlan, Fault, Forms, Kind, Outcome, Plan, run};
use tokio::sync::Mutex;

/// The cycles of each kind. Of eighteen kinds, they are cycles of locks, reads, writes and
/// permits.
const CYCLES: u64 = 300;

/// The number of kinds at a time, of which one for each processor is played. Each ends with 15 s in
/// which nothing happens: the patience of its nodes.
const AT_ONCE: usize = 12;

/// The lock of the tests, each of which loads the whole machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is '{text}', which is no number")))
}

/// The seed: `$LOCK_CHAOS_SEED` repeats a schedule; without it, every run has another.
fn seed() -> u64 {
    number("LOCK_CHAOS_SEED").unwrap_or_else(|| std::process::id().into())
}

fn cycles_of_a_kind() -> u64 {
    number("LOCK_CHAOS_CYCLES").unwrap_or(CYCLES)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cycles_under_every_kind_of_fault_break_no_promise() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let seed = seed();
    let each = cycles_of_a_kind();
    let mut cycles = 0;
    let mut shared = 0;
    let mut report = format!("seed {seed}\n{}\n", Outcome::HEAD);
    let mut violations = Vec::new();
    let outcomes = stream::iter(Kind::ALL).map(async |kind| {
        let plan = Plan { kind, forms: Forms::All, seed, cycles: each };
        (kind, run(env!("CARGO_BIN_EXE_lock-torture").as_ref(), &plan).await)
    });
    let mut outcomes = pin!(outcomes.buffered(AT_ONCE));
    while let Some((kind, outcome)) = outcomes.next().await {
        report += &format!("{}\n", outcome.row(kind));
        cycles += outcome.cycles;
        shared += outcome.shared;
        violations.extend(outcome.violations.iter().map(|found| format!("{kind}: {found}")));
        let strikes = outcome.faults.values().sum::<u64>();
        let has_faults = ![Kind::Calm, Kind::Cancel, Kind::ShortLease].contains(&kind);
        assert!(strikes > 0 || !has_faults, "no fault struck in {kind}\n{report}");
    }
    violations.truncate(50);
    assert!(
        violations.is_empty(),
        "{}\n{report}again: LOCK_CHAOS_SEED={seed} cargo test -p lock-tests --test chaos",
        violations.join("\n")
    );
    // A grant to a process that is killed before it has recorded it is none of its cycles.
    assert!(cycles >= each * Kind::ALL.len() as u64 * 10 / 11, "{cycles} cycles\n{report}");
    assert!((cycles / 3..=cycles * 2 / 3).contains(&shared), "{shared} of them shared\n{report}");
}

/// Clients that are served in batches, under the faults that meet a batch in its midst.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cycles_in_batches_under_faults_in_their_midst_break_no_promise() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let seed = seed();
    let each = cycles_of_a_kind();
    let mut report = format!("seed {seed}\n{}\n", Outcome::HEAD);
    let mut violations = Vec::new();
    let kinds =
        [Kind::Kill, Kind::Stop, Kind::CutReply, Kind::Lost, Kind::ServerStop, Kind::Cancel];
    let outcomes = stream::iter(kinds).map(async |kind| {
        let plan = Plan { kind, forms: Forms::Batches, seed, cycles: each };
        (kind, run(env!("CARGO_BIN_EXE_lock-torture").as_ref(), &plan).await)
    });
    let mut outcomes = pin!(outcomes.buffered(AT_ONCE));
    while let Some((kind, outcome)) = outcomes.next().await {
        report += &format!("{}\n", outcome.row(kind));
        violations.extend(outcome.violations.iter().map(|found| format!("{kind}: {found}")));
        assert!(outcome.batches > 0, "no batch was formed in {kind}\n{report}");
    }
    violations.truncate(50);
    assert!(violations.is_empty(), "{}\n{report}", violations.join("\n"));
}

/// Runs one failover of each kind, side by side. `lock-torture failovers` counts them by the
/// hundred.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_break_no_promise_where_grants_wait_for_all_replicas() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let runs = Fault::ALL.map(async |fault| {
        let plan = FailoverPlan {
            faults: vec![fault],
            count: 1,
            replicas: 2,
            careful: false,
            cluster: false,
        };
        let mut found = Vec::new();
        plan.run(|failover| {
            let violations = failover.violations().into_iter();
            found.extend(violations.map(|violation| format!("{violation}: {failover}")));
        })
        .await;
        found
    });
    let found: Vec<_> = join_all(runs).await.into_iter().flatten().collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Requests that are sent more than once, to processes that are killed and paused. `lock-torture
/// replays` counts them by the thousand.
#[cfg(feature = "replays")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_sent_again_to_processes_that_die_is_served_once() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (first, keys) = (seed(), cycles_of_a_kind() / 5);
    let (mut faults, mut hung_up, mut overtaken) = (BTreeSet::new(), 0, 0);
    // A few keys may miss one of the faults, or a client that stays to be told of it.
    for seed in first..first + 5 {
        let torture = env!("CARGO_BIN_EXE_lock-torture").as_ref();
        let outcome = lock_tests::chaos::replays(torture, seed, keys).await;
        let again = format!("{outcome}\nagain: scripts/torture replays {keys} {seed}");
        assert!(outcome.violations.is_empty(), "{}\n{again}", outcome.violations.join("\n"));
        faults.extend(outcome.faults.keys().copied());
        (hung_up, overtaken) = (hung_up + outcome.hung_up, overtaken + outcome.overtaken);
        if faults.len() == lock_tests::chaos::ReplayFault::ALL.len() && hung_up > 0 && overtaken > 0
        {
            return;
        }
    }
    panic!(
        "{faults:?} struck, {hung_up} clients hung up, {overtaken} were overtaken: from {first}"
    );
}
