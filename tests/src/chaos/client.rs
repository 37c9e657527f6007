//! A child process: clients that lock, work and give back, or do not, and write down what they see.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockcore::{LockError, LockErrorKind, LockGuard, LockRequest, Locks};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::clock::{at_us, now_us};
use super::dice::Dice;
use super::kind::{Habits, Kind};
use super::record::{End, Record};
use super::register::{Registers, Values};

/// Locks of a run, at most. More clients than locks: most grants are hand-overs.
pub(super) const LOCKS: u32 = 8;
/// The longest wait that a client allows.
const LONGEST_WAIT_MS: u64 = 2_000;

/// The name of a lock in the store.
pub(super) fn lock_name(lock: u32) -> String {
    format!("torture-{lock}")
}

/// The label of an attempt, by which it is found in what the server did.
pub(super) fn label(child: u32, attempt: u32) -> String {
    format!("c{child}-{attempt}")
}

/// Child and attempt of a label.
pub(super) fn read_label(label: &str) -> Option<(u32, u32)> {
    let (child, attempt) = label.strip_prefix('c')?.split_once('-')?;
    Some((child.parse().ok()?, attempt.parse().ok()?))
}

/// What a child is told at its start.
#[derive(Clone, Debug)]
struct Orders {
    child: u32,
    habits: Habits,
    locks: Locks,
    registers: Registers,
    stop: CancellationToken,
    journal: Journal,
    attempts: Arc<AtomicU32>,
}

/// Where the records go. Each is one write, so that a killed child leaves whole lines.
#[derive(Clone, Debug)]
struct Journal(Arc<Mutex<File>>);

impl Journal {
    fn write(&self, record: &Record) {
        let line = format!("{record}\n");
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).expect("a record is written");
    }
}

/// Lives as child number `child` of a run until its standard input ends.
///
/// # Panics
///
/// If it cannot write its records, or the resource does not answer.
pub async fn live(url: &str, resource: &str, file: &Path, seed: u64, child: u32, kind: Kind) {
    let stop = CancellationToken::new();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
            stop.cancel();
        }
    });
    let file = File::create(file).expect("the file for records can be made");
    let habits = kind.habits();
    // The faults may already be there.
    let locks = loop {
        if stop.is_cancelled() {
            return;
        }
        let builder = Locks::builder().request_timeout(habits.request_timeout);
        if let Ok(locks) = builder.connect(url).await {
            break locks;
        }
    };
    let orders = Orders {
        child,
        habits,
        locks: locks.clone(),
        registers: Registers::connect(resource).await,
        stop,
        journal: Journal(Arc::new(Mutex::new(file))),
        attempts: Arc::default(),
    };
    let mut clients = JoinSet::new();
    for client in 0..orders.habits.clients {
        let dice = Dice::part(seed, u64::from(child) << 16 | client);
        clients.spawn(run(orders.clone(), dice));
    }
    while let Some(ended) = clients.join_next().await {
        ended.expect("no client panics");
    }
    locks.shutdown(Duration::from_secs(5)).await;
}

async fn run(mut orders: Orders, mut dice: Dice) {
    while !orders.stop.is_cancelled() {
        let attempt = orders.attempts.fetch_add(1, Ordering::Relaxed);
        let lock = dice.below(orders.habits.locks) as u32;
        let lease = Duration::from_millis(dice.of(orders.habits.lease_ms.clone()));
        let request =
            orders.locks.key(lock_name(lock)).label(label(orders.child, attempt)).lease(lease);
        let is_fixed = dice.percent(orders.habits.fixed);
        let request = if is_fixed { request.fixed_lease(lease) } else { request };
        let Some(guard) = acquire(&orders, &mut dice, request, attempt, lock).await else {
            continue;
        };
        orders.journal.write(&Record::Granted {
            at: now_us(),
            attempt,
            token: guard.fencing_token().get(),
            until: at_us(guard.deadline()),
        });
        work(&mut orders, &mut dice, &guard, attempt, lock).await;
        if is_fixed && dice.percent(orders.habits.overstay) {
            guard.lost().await;
        } else if !is_fixed && dice.percent(orders.habits.overstay) {
            // Long enough to be renewed.
            sleep(lease.mul_f64(1.5)).await;
        }
        give_back(&orders, &mut dice, guard, attempt).await;
    }
}

/// An attempt of any sort. Its outcome is on record, unless it is a guard.
async fn acquire(
    orders: &Orders,
    dice: &mut Dice,
    request: LockRequest,
    attempt: u32,
    lock: u32,
) -> Option<LockGuard> {
    let invoked = |bound: Duration| {
        let bound = bound.as_micros() as i64;
        orders.journal.write(&Record::Invoked { at: now_us(), attempt, lock, bound });
    };
    let outcome = if dice.percent(10) {
        invoked(orders.habits.request_timeout);
        request.try_lock().await
    } else {
        // Most are patient: those who give up at once leave nothing to hand over.
        let shortest = if dice.percent(10) { 0 } else { LONGEST_WAIT_MS / 2 };
        let wait = Duration::from_millis(dice.of(shortest..=LONGEST_WAIT_MS));
        let acquire = request.wait(wait).lock();
        let patience = dice.percent(orders.habits.cancel).then(|| dice.of(0..=20));
        // A wait of zero asks once.
        invoked(wait.max(orders.habits.request_timeout));
        match patience {
            None => acquire.await.map(Some),
            Some(ms) => match timeout(Duration::from_millis(ms), acquire).await {
                Ok(outcome) => outcome.map(Some),
                Err(_) => {
                    orders.journal.write(&Record::Dropped { at: now_us(), attempt });
                    return None;
                }
            },
        }
    };
    let end = match outcome {
        Ok(Some(guard)) => return Some(guard),
        Ok(None) => End::Refused,
        Err(error) => ended(&error),
    };
    orders.journal.write(&Record::Failed { at: now_us(), attempt, end });
    if end == End::Unknown {
        // Without a server, clients would only count errors.
        sleep(Duration::from_millis(dice.of(1..=20))).await;
    }
    None
}

fn ended(error: &LockError) -> End {
    match error.kind() {
        LockErrorKind::Lost => End::Lost,
        LockErrorKind::Timeout | LockErrorKind::QueueFull | LockErrorKind::OutOfMemory => {
            End::Refused
        }
        LockErrorKind::Unavailable | LockErrorKind::Closed => End::Unknown,
        kind => panic!("an error that no fault explains: {kind:?}, {error}"),
    }
}

/// The critical section. It checks its hold at the beginning only, as most programs do: what comes
/// between that and its write is what fencing is for.
async fn work(orders: &mut Orders, dice: &mut Dice, guard: &LockGuard, attempt: u32, lock: u32) {
    let token = guard.fencing_token().get();
    let pause = dice.percent(orders.habits.slow).then(|| Duration::from_micros(dice.of(0..=4_000)));
    let mut read: Option<Values> = None;
    if dice.below(orders.habits.works) == 0 && !guard.is_lost() {
        read = Some(orders.registers.read(lock, token).await);
    }
    if let Some(pause) = pause {
        sleep(pause).await;
    }
    if let Some(values) = read {
        let accepted = orders.registers.write(lock, token, values).await;
        orders.journal.write(&Record::Wrote { attempt, accepted });
    }
}

async fn give_back(orders: &Orders, dice: &mut Dice, guard: LockGuard, attempt: u32) {
    // The deadline first: what is written is then never later than what was believed.
    let until = at_us(guard.deadline());
    // A request, and once more if the server has forgotten the script.
    let bound = 2 * orders.habits.request_timeout.as_micros() as i64;
    orders.journal.write(&Record::Ending { at: now_us(), attempt, until, bound });
    if dice.percent(10) {
        drop(guard);
        return;
    }
    let end = match guard.release().await {
        Ok(()) => End::Ok,
        Err(error) => ended(&error),
    };
    orders.journal.write(&Record::Released { at: now_us(), attempt, end });
}
