//! Zones under sustained load while links between them stay cut. The law: each request that reaches
//! a majority is served within the turns of all requests ahead, plus a hop per primary. While the
//! zones learn of each other it may take longer, but no request is refused.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto::LockErrorKind;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::network::{MAX_LEASE, Network};
use crate::api::locks::Locks;
use crate::types::error::LockError;

/// How long each zone sends requests.
const LOAD: Duration = Duration::from_secs(60);
/// The time after which the zones have learned of each other. Earlier waits are not checked.
const LEARNED: Duration = Duration::from_secs(15);
/// The wait limit of each request, far above any bound here.
const WAIT: Duration = Duration::from_secs(40);
/// The longest time from one guard to the next, beside the hold: a few trips over the network.
const HAND_OVER: Duration = Duration::from_millis(40);
/// The pause of a caller that finds the queue full, before it sends the request again.
const RETRY: Duration = Duration::from_millis(50);
/// The longest hop.
const HOP: Duration = Duration::from_secs(1);

/// A zone: the primaries that its processes reach, and the number of concurrent requests.
type Zone = (&'static [usize], usize);

/// The results of the requests from one zone.
#[derive(Debug, Default, Clone, Copy)]
struct Served {
    guards: usize,
    refused: usize,
    longest: Duration,
}

async fn ask(load: Load, locks: Locks, end: Instant, served: Arc<Mutex<Served>>) {
    let Load { hold, readers_of_four, queue_limit } = load;
    for turn in 0.. {
        let began = Instant::now();
        if began >= end {
            break;
        }
        let is_read = turn % 4 < readers_of_four;
        let acquire = || {
            let request = locks.key("k").lease(MAX_LEASE).wait(WAIT).queue_limit(queue_limit);
            if is_read { request.read() } else { request.lock() }
        };
        let is_full = |error: &LockError| error.kind() == LockErrorKind::QueueFull;
        let mut guard = acquire().await;
        while guard.as_ref().is_err_and(is_full) {
            sleep(RETRY).await;
            guard = acquire().await;
        }
        let is_judged = began + LOAD >= end + LEARNED;
        let waited = if is_judged { began.elapsed() } else { Duration::ZERO };
        note(&served, waited, guard.as_ref().err());
        if let Ok(guard) = guard {
            sleep(hold).await;
            drop(guard);
        }
    }
}

fn note(served: &Mutex<Served>, waited: Duration, error: Option<&LockError>) {
    let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
    served.longest = served.longest.max(waited);
    match error {
        None => served.guards += 1,
        Some(error) => {
            assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
            served.refused += 1;
        }
    }
}

/// The requests of each caller, sent one after the other: how long each holds the lock, how many of
/// four are reads, and the queue limit of each.
#[derive(Debug, Clone, Copy)]
struct Load {
    hold: Duration,
    readers_of_four: usize,
    queue_limit: u32,
}

impl Load {
    fn of_writers(hold: Duration) -> Self {
        Self { hold, readers_of_four: 0, queue_limit: u32::MAX }
    }
}

/// Runs the load of these zones on one lock; each zone has two processes. Returns the results by
/// zone, and true if any process has a lead.
fn run(n: usize, zones: &[Zone], load: Load, seed: u64) -> (Vec<Served>, bool) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let mut network = Network::new(n, seed);
        let mut processes = Vec::new();
        for (reached, requests) in zones {
            for half in [requests - requests / 2, requests / 2] {
                let process = network.start();
                let cut = (0..n).filter(|primary| !reached.contains(primary));
                cut.for_each(|primary| network.cut(process, primary, true));
                processes.push((process, half));
            }
        }
        sleep(Duration::from_secs(2)).await;
        let (end, mut tasks) = (Instant::now() + LOAD, JoinSet::new());
        let served: Vec<Arc<Mutex<Served>>> = zones.iter().map(|_| Arc::default()).collect();
        for (place, (process, requests)) in processes.into_iter().enumerate() {
            for _ in 0..requests {
                let locks = network.locks(process).clone();
                tasks.spawn(ask(load, locks, end, Arc::clone(&served[place / 2])));
            }
        }
        let leads: Vec<_> = (0..2 * zones.len())
            .map(|process| network.locks(process).backend.primaries().leads.subscribe())
            .collect();
        tasks.join_all().await;
        let has_led = leads.iter().any(|leads| leads.has_changed().expect("it stands"));
        let served = served.iter().map(|one| *one.lock().unwrap_or_else(PoisonError::into_inner));
        (served.collect(), has_led)
    })
}

/// Loads these zones with writers, and checks how long each request waited.
fn judge(n: usize, zones: &[Zone], hold: Duration) {
    judge_load(n, zones, Load::of_writers(hold));
}

fn judge_load(n: usize, zones: &[Zone], load: Load) {
    let hold = load.hold;
    for seed in 0..3 {
        let (served, has_led) = run(n, zones, load, seed);
        // Only a crowd in a cut-off zone leads others to its primary.
        let is_led = zones.iter().any(|(reached, requests)| reached.len() < n && *requests > n);
        assert_eq!(has_led, is_led, "seed {seed}: {zones:?}, {load:?}: whether a primary leads");
        let ahead = zones.iter().map(|(_, requests)| *requests as u32).sum::<u32>();
        let bound = ahead * (hold + HAND_OVER) + n as u32 * HOP;
        for (zone, served) in zones.iter().zip(&served) {
            assert!(
                served.refused == 0 && served.longest <= bound,
                "seed {seed}: {zone:?} of {zones:?}, {hold:?} each: {served:?}, not {bound:?}"
            );
        }
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const ALL: &[usize] = &[0, 1, 2];
const LOW: &[usize] = &[0, 1];
const HIGH: &[usize] = &[1, 2];

#[test]
fn zones_without_a_cut_are_served_in_turn() {
    judge(3, &[(ALL, 16), (ALL, 16), (ALL, 16)], ms(100));
    for readers_of_four in 1..=4 {
        let load = Load { readers_of_four, ..Load::of_writers(ms(100)) };
        judge_load(3, &[(ALL, 16), (ALL, 16)], load);
    }
}

#[test]
fn both_ends_of_a_cut_link_are_served_in_turn() {
    judge(3, &[(LOW, 16), (HIGH, 16)], ms(100));
    judge(3, &[(LOW, 16), (HIGH, 16)], ms(10));
    judge(3, &[(LOW, 16), (ALL, 16), (HIGH, 16)], ms(100));
}

#[test]
fn one_request_of_a_cut_zone_is_served_and_stops_nobody() {
    judge(3, &[(LOW, 1), (HIGH, 16)], ms(100));
    judge(3, &[(LOW, 1), (HIGH, 12)], ms(100));
    judge(3, &[(ALL, 16), (HIGH, 16)], ms(100));
    judge(3, &[(LOW, 1), (ALL, 16), (HIGH, 16)], ms(100));
    judge(3, &[(LOW, 1), (ALL, 16), (HIGH, 1)], ms(100));
    judge(3, &[(LOW, 16), (ALL, 1), (HIGH, 16)], ms(100));
}

// The queue limit is reached at the second primary, by requests that never wait at the first.
#[test]
fn a_request_that_has_waited_at_its_first_primary_finds_no_full_queue_at_the_next() {
    let load = Load { queue_limit: 8, ..Load::of_writers(ms(100)) };
    let (served, _) = run(3, &[(LOW, 4), (HIGH, 16)], load, 0);
    let bound = 20 * (load.hold + HAND_OVER) + 3 * HOP;
    let low = &served[0];
    assert!(low.refused == 0 && low.longest <= bound, "{low:?}, not {bound:?}");
}

#[test]
fn zones_of_five_primaries_are_served_in_turn() {
    judge(5, &[(&[0, 1, 2], 16), (&[2, 3, 4], 16)], ms(100));
    judge(5, &[(&[0, 1, 2], 16), (&[0, 1, 2, 3, 4], 16), (&[2, 3, 4], 16)], ms(100));
    // The fourth primary is away.
    judge(5, &[(&[0, 1, 2], 16), (&[1, 2, 4], 16)], ms(100));
}

#[test]
fn zones_of_five_primaries_with_two_cuts_are_served_in_turn() {
    let zones: [Zone; 5] = [
        (&[0, 1, 2, 4], 6),
        (&[0, 1, 2, 3], 6),
        (&[0, 1, 2, 3, 4], 6),
        (&[1, 2, 3, 4], 6),
        (&[0, 2, 3, 4], 6),
    ];
    judge(5, &zones, ms(100));
}
