//! A child process: clients lock, work and release (or fail to release), and record each step.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::TryFutureExt;
use lockcore::{Demand, LockError, LockErrorKind, LockGuard, LockRequest, Locks};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::clock::{at_us, now_us, wall_ahead_us};
use super::dice::Dice;
use super::form::{Form, Forms};
use super::gauge::Gauge;
use super::kind::{Habits, Kind};
use super::record::{End, Record};
use super::register::{Half, Registers};

/// The maximum number of locks in a run. There are more clients, so most grants are hand-offs.
pub(super) const LOCKS: u32 = 8;
/// The longest wait that a client allows.
const LONGEST_WAIT_MS: u64 = 2_000;
/// How long all clients use the same lock, in µs, if they use one lock at a time.
const TOGETHER_US: i64 = 500_000;

/// Returns the lock name in Redis.
pub(super) fn lock_name(lock: u32) -> String {
    format!("torture-{lock}")
}

/// Returns the label of an attempt, carried by its commands.
pub(super) fn label(child: u32, attempt: u32) -> String {
    format!("c{child}-{attempt}")
}

/// Returns the child and the attempt encoded in a label.
pub(super) fn read_label(label: &str) -> Option<(u32, u32)> {
    let (child, attempt) = label.strip_prefix('c')?.split_once('-')?;
    Some((child.parse().ok()?, attempt.parse().ok()?))
}

/// What a child process does, and with which connections.
#[derive(Clone, Debug)]
struct Orders {
    child: u32,
    habits: Habits,
    forms: Forms,
    locks: Locks,
    registers: Registers,
    gauge: Gauge,
    /// How far the wall clock is ahead of the records' clock, in µs.
    wall_ahead: i64,
    stop: CancellationToken,
    journal: Journal,
    attempts: Arc<AtomicU32>,
}

impl Orders {
    /// Returns the number of the next lock of this client.
    fn lock(&self, dice: &mut Dice) -> u32 {
        match self.habits.together {
            true => (now_us() / TOGETHER_US % i64::from(self.forms.locks())) as u32,
            false => dice.below(self.forms.locks() as usize) as u32,
        }
    }

    /// Returns how a call that failed ended, by its error.
    fn ended(&self, error: &LockError) -> End {
        match error.kind() {
            LockErrorKind::Lost => End::Lost,
            LockErrorKind::Timeout | LockErrorKind::QueueFull | LockErrorKind::OutOfMemory => {
                End::Refused
            }
            LockErrorKind::Unavailable | LockErrorKind::Closed => End::Unknown,
            LockErrorKind::Protocol if self.habits.out_of_step => End::Unknown,
            kind => panic!("an error that no fault explains: {kind:?}, {error}"),
        }
    }

    /// Returns the time in which a request must end, doubled if the server may have lost the
    /// script.
    fn bound(&self) -> i64 {
        2 * self.habits.request_timeout.as_micros() as i64
    }
}

/// An attempt in progress.
#[derive(Clone, Copy, Debug)]
struct Asked {
    attempt: u32,
    lock: u32,
    form: Form,
    demand: Demand,
}

/// The file of records. Each record is a single write, so that a killed child leaves whole lines.
#[derive(Clone, Debug)]
struct Journal(Arc<Mutex<File>>);

impl Journal {
    fn write(&self, record: &Record) {
        let line = format!("{record}\n");
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).expect("a record is written");
    }
}

/// Runs as child number `child` until standard input ends.
///
/// # Panics
///
/// If the child cannot write its records, or the resource does not respond.
pub async fn live(
    url: &str,
    resource: &str,
    file: &Path,
    seed: u64,
    child: u32,
    (kind, forms): (Kind, Forms),
) {
    let stop = CancellationToken::new();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
            stop.cancel();
        }
    });
    let file = File::create(file).expect("the file for records can be made");
    let habits = match forms {
        // Waiters of the same node, and few holds that end by themselves: such holds are never in a
        // batch.
        Forms::Batches => Habits { clients: 8, together: false, fixed: 5, ..kind.habits() },
        _ => kind.habits(),
    };
    // The faults may already be active.
    let locks = loop {
        if stop.is_cancelled() {
            return;
        }
        // A client that gives up because the store is away leaves a grant that it never received.
        let builder =
            Locks::builder().request_timeout(habits.request_timeout).store_wait(Duration::MAX);
        let builder = builder.batch_limit(forms.batch_limit());
        if let Ok(locks) = builder.connect(url).await {
            break locks;
        }
    };
    let orders = Orders {
        child,
        habits,
        forms,
        locks: locks.clone(),
        registers: Registers::connect(resource).await,
        gauge: Gauge::connect(resource).await,
        wall_ahead: wall_ahead_us(),
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
        let lock = orders.lock(&mut dice);
        let form = Form::of(orders.forms, lock);
        let asked = Asked { attempt, lock, form, demand: form.demand(&mut dice) };
        // Batch members differ only in their ids.
        let (of, leases) = match orders.forms {
            Forms::Batches => (0, *orders.habits.lease_ms.end()..=*orders.habits.lease_ms.end()),
            _ => (attempt, orders.habits.lease_ms.clone()),
        };
        let lease = Duration::from_millis(dice.of(leases));
        let request = orders.locks.key(lock_name(lock)).label(label(orders.child, of)).lease(lease);
        let is_fixed = dice.percent(orders.habits.fixed);
        let request = if is_fixed { request.fixed_lease(lease) } else { request };
        let Some(held) = acquire(&orders, &mut dice, request, asked).await else {
            continue;
        };
        orders.journal.write(&Record::Granted {
            at: now_us(),
            attempt,
            token: held.fencing_token().get(),
            until: at_us(held.deadline()),
        });
        work(&mut orders, &mut dice, &held, asked).await;
        let is_read = form == Form::Read && held.demand() == Demand::EXCLUSIVE;
        let held = match is_read && dice.below(4) == 0 {
            true => read_on(&mut orders, &mut dice, held, asked).await,
            false => held,
        };
        if is_fixed && dice.percent(orders.habits.overstay) {
            held.lost().await;
        } else if !is_fixed && dice.percent(orders.habits.overstay) {
            // The hold is long enough to be renewed.
            sleep(lease.mul_f64(1.5)).await;
        }
        give_back(&orders, &mut dice, held, attempt).await;
    }
}

/// Begins an attempt of any kind. The outcome is recorded, unless the attempt holds the lock.
async fn acquire(
    orders: &Orders,
    dice: &mut Dice,
    request: LockRequest,
    Asked { attempt, lock, demand, .. }: Asked,
) -> Option<LockGuard> {
    let invoked = |bound: Duration| {
        orders.journal.write(&Record::Invoked {
            at: now_us(),
            attempt,
            lock,
            weight: demand.weight() as u32,
            limit: demand.limit() as u32,
            bound: bound.as_micros() as i64,
        });
    };
    let outcome = if dice.percent(10) {
        invoked(orders.habits.request_timeout);
        request.try_acquire(demand).await
    } else {
        // Most clients wait: an attempt cancelled at once leaves nothing to hand off.
        let shortest = if dice.percent(10) { 0 } else { LONGEST_WAIT_MS / 2 };
        let wait = Duration::from_millis(dice.of(shortest..=LONGEST_WAIT_MS));
        let acquire = request.wait(wait).acquire(demand).map_ok(Some);
        let patience = dice.percent(orders.habits.cancel).then(|| dice.of(0..=20));
        // A wait of zero sends a single request.
        invoked(wait.max(orders.habits.request_timeout));
        match patience {
            None => acquire.await,
            Some(ms) => match timeout(Duration::from_millis(ms), acquire).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    orders.journal.write(&Record::Dropped { at: now_us(), attempt });
                    return None;
                }
            },
        }
    };
    let end = match outcome {
        Ok(Some(held)) => return Some(held),
        Ok(None) => End::Refused,
        Err(error) => orders.ended(&error),
    };
    orders.journal.write(&Record::Failed { at: now_us(), attempt, end });
    if end == End::Unknown {
        // Without a server, clients would only count errors.
        sleep(Duration::from_millis(dice.of(1..=20))).await;
    }
    None
}

/// Works in the critical section. The hold is checked at the beginning only, as in most programs:
/// fencing covers the rest.
async fn work(orders: &mut Orders, dice: &mut Dice, held: &LockGuard, asked: Asked) {
    let pause = dice.percent(orders.habits.slow).then(|| dice.of(0..=orders.habits.slow_us));
    let works = dice.below(orders.habits.works) == 0 && !held.is_lost();
    let pause = async {
        if let Some(pause) = pause {
            sleep(Duration::from_micros(pause)).await;
        }
    };
    let token = held.fencing_token().get();
    match (asked.form, held.demand(), works) {
        (_, _, false) => pause.await,
        (Form::Permits(_), ..) => use_some(orders, held, asked, pause).await,
        (_, Demand::READ, _) => read(orders, token, asked, pause).await,
        _ => write(orders, token, asked, pause).await,
    }
}

/// Reads the registers, and writes them back incremented.
async fn write(orders: &mut Orders, token: u64, asked: Asked, pause: impl Future<Output = ()>) {
    let Asked { attempt, lock, .. } = asked;
    let values = orders.registers.read(lock, Half::First, token).await;
    pause.await;
    let accepted = orders.registers.write(lock, token, values).await;
    orders.journal.write(&Record::Wrote { attempt, accepted });
}

/// Reads both registers of each pair.
async fn read(orders: &mut Orders, token: u64, asked: Asked, pause: impl Future<Output = ()>) {
    let Asked { attempt, lock, .. } = asked;
    let first = orders.registers.read(lock, Half::First, token).await;
    pause.await;
    let second = orders.registers.read(lock, Half::Second, token).await;
    let [fenced, plain] = first.pairs(second);
    orders.journal.write(&Record::Read { attempt, fenced, plain });
}

/// Enters the gauge, and leaves it again.
async fn use_some(
    orders: &mut Orders,
    held: &LockGuard,
    asked: Asked,
    pause: impl Future<Output = ()>,
) {
    let Asked { attempt, lock, demand, .. } = asked;
    let who = label(orders.child, attempt);
    let weight = demand.weight();
    let until = at_us(held.deadline()) + orders.wall_ahead;
    let [valid, all] = orders.gauge.enter(lock, &who, weight, until).await;
    orders.journal.write(&Record::Counted { attempt, valid, all });
    pause.await;
    orders.gauge.leave(lock, &who, weight).await;
}

/// Downgrades to a read if possible, and works as a reader.
async fn read_on(
    orders: &mut Orders,
    dice: &mut Dice,
    guard: LockGuard,
    asked: Asked,
) -> LockGuard {
    let attempt = asked.attempt;
    let until = at_us(guard.deadline());
    let bound = orders.bound();
    orders.journal.write(&Record::Reducing { at: now_us(), attempt, until, bound });
    let (held, end, token) = match guard.downgrade().await {
        Ok(guard) => {
            let token = guard.fencing_token().get();
            (guard, End::Ok, token)
        }
        Err(error) => {
            let end = orders.ended(error.error());
            (error.into_guard(), end, 0)
        }
    };
    orders.journal.write(&Record::Reduced { at: now_us(), attempt, end, token });
    if end == End::Ok {
        work(orders, dice, &held, asked).await;
    }
    held
}

async fn give_back(orders: &Orders, dice: &mut Dice, held: LockGuard, attempt: u32) {
    // The deadline is read first: the recorded deadline is then never later than the client's
    // belief.
    let until = at_us(held.deadline());
    let bound = orders.bound();
    orders.journal.write(&Record::Ending { at: now_us(), attempt, until, bound });
    if dice.percent(10) {
        drop(held);
        return;
    }
    let end = match held.release().await {
        Ok(()) => End::Ok,
        Err(error) => orders.ended(&error),
    };
    orders.journal.write(&Record::Released { at: now_us(), attempt, end });
}
