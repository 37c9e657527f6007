//! The board: a single task polls the seats and their queues for all watchers. The number of
//! requests does not depend on the number of watchers, and is zero while no page is open.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockcore::Locks;
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::office;
use crate::seats::Seats;
use crate::status::Line;

/// The delay before the page shows a change by another process; own changes show at once.
const INTERVAL: Duration = Duration::from_millis(500);

/// The delay between a change by this process and the poll, so that simultaneous changes are shown
/// together, and a buyer who just joined the queue is included.
const GATHER: Duration = Duration::from_millis(25);

/// The maximum duration of a poll: after it, the page shows that the server is unavailable.
const LOOK: Duration = Duration::from_secs(1);

/// The maximum number of queues per poll; further queues take turns.
const LINES: usize = 64;

/// The maximum number of watchers, each of which keeps a connection open.
const WATCHERS: usize = 1_000;

/// A seat with its queue, as the page shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct View {
    seat: u32,
    buyer: Option<String>,
    token: Option<i64>,
    #[serde(flatten)]
    line: Line,
}

/// All seats at a moment in time.
#[derive(Debug, Clone)]
struct Hall {
    seats: Vec<Arc<View>>,
    /// When the last poll of each queue began.
    looked: Vec<Instant>,
    /// Why no seat can be bought now, for people.
    trouble: Option<&'static str>,
    at: Instant,
}

/// The changes to send to a watcher.
#[derive(Debug, Serialize)]
pub(crate) struct Change {
    trouble: Option<&'static str>,
    seats: Vec<View>,
}

/// The board as requests see it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Board {
    shared: Arc<Shared>,
    hall: watch::Receiver<Arc<Hall>>,
    task: AbortHandle,
}

struct Shared {
    /// The seats just changed by this process, which the next poll reads.
    stirred: Mutex<BTreeSet<u32>>,
    wake: Notify,
    watchers: Arc<Semaphore>,
}

impl Board {
    pub(crate) fn start(locks: Locks, seats: Seats) -> Self {
        let shared = Arc::new(Shared {
            stirred: Mutex::default(),
            wake: Notify::new(),
            watchers: Arc::new(Semaphore::new(WATCHERS)),
        });
        let empty = (1..=seats.count()).map(|seat| Arc::new(View { seat, ..View::default() }));
        let looked = vec![long_ago(); seats.count() as usize];
        let hall = Hall { seats: empty.collect(), looked, trouble: None, at: long_ago() };
        let (sender, receiver) = watch::channel(Arc::new(hall));
        let watch = Watch { locks, seats, shared: Arc::clone(&shared), sender, turn: 0 };
        let task = tokio::spawn(watch.run()).abort_handle();
        Self { shared, hall: receiver, task }
    }

    /// Marks a seat as changing: the pages show it soon.
    pub(crate) fn stir(&self, seat: u32) {
        self.shared.stirred().insert(seat);
        self.shared.wake.notify_one();
    }

    /// Marks a seat as changing now, and again when the returned value is dropped.
    pub(crate) fn stirring(&self, seat: u32) -> Stirring {
        self.stir(seat);
        Stirring { board: self.clone(), seat }
    }

    /// Adds a watcher; `None` if there are too many.
    pub(crate) fn watch(&self) -> Option<Watcher> {
        let permit = Arc::clone(&self.shared.watchers).try_acquire_owned().ok()?;
        let mut hall = self.hall.clone();
        let is_old = hall.borrow_and_update().at.elapsed() > 2 * INTERVAL;
        if is_old {
            self.shared.wake.notify_one();
        }
        Some(Watcher { hall, known: None, waits: is_old, _permit: permit })
    }

    /// Adds a watcher for a seat's queue; `None` if there are too many.
    pub(crate) fn queue(&self, seat: u32) -> Option<Queue> {
        let permit = Arc::clone(&self.shared.watchers).try_acquire_owned().ok()?;
        Some(Queue { hall: self.hall.clone(), seat, _permit: permit })
    }

    /// Closes the board, and the streams of all watchers.
    pub(crate) fn close(&self) {
        self.task.abort();
    }
}

impl Shared {
    fn stirred(&self) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
        self.stirred.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a seat as changing when it is dropped, also when a buyer disconnects.
pub(crate) struct Stirring {
    board: Board,
    seat: u32,
}

impl Drop for Stirring {
    fn drop(&mut self) {
        self.board.stir(self.seat);
    }
}

/// A board watcher.
pub(crate) struct Watcher {
    hall: watch::Receiver<Arc<Hall>>,
    known: Option<Arc<Hall>>,
    /// True if the board is outdated, because the first poll has not happened yet.
    waits: bool,
    _permit: OwnedSemaphorePermit,
}

impl Watcher {
    /// Returns the changes since the last call, initially everything. `None` when the board has
    /// closed.
    pub(crate) async fn next(&mut self) -> Option<Change> {
        loop {
            if self.waits {
                self.hall.changed().await.ok()?;
            }
            self.waits = true;
            let hall = Arc::clone(&self.hall.borrow_and_update());
            let change = hall.since(self.known.as_deref());
            self.known = Some(hall);
            if change.is_some() {
                return change;
            }
        }
    }
}

/// A watcher for a seat's queue.
pub(crate) struct Queue {
    hall: watch::Receiver<Arc<Hall>>,
    seat: u32,
    _permit: OwnedSemaphorePermit,
}

impl Queue {
    /// Waits for the next poll. Returns false when the board has closed.
    pub(crate) async fn changed(&mut self) -> bool {
        self.hall.changed().await.is_ok()
    }

    /// Returns the number of waiters ahead of this waiter, from a poll that began after `since`;
    /// `None` if the waiter was not found. With several waiters of that name, the largest number.
    pub(crate) fn ahead(&self, waiter: &str, since: Instant) -> Option<u64> {
        let hall = self.hall.borrow();
        let index = self.seat as usize - 1;
        let view = hall.seats.get(index).filter(|_| hall.looked.get(index) > Some(&since))?;
        view.line.ahead(waiter)
    }
}

impl Hall {
    fn since(&self, known: Option<&Self>) -> Option<Change> {
        let trouble = self.trouble;
        let Some(known) = known else {
            let seats = self.seats.iter().map(|view| View::clone(view)).collect();
            return Some(Change { trouble, seats });
        };
        let pairs = self.seats.iter().zip(&known.seats);
        // An unchanged seat is the same allocation.
        let changed = pairs.filter(|(now, then)| !Arc::ptr_eq(now, then));
        let seats: Vec<_> = changed.map(|(now, _)| View::clone(now)).collect();
        let is_same = seats.is_empty() && trouble == known.trouble;
        (!is_same).then_some(Change { trouble, seats })
    }
}

/// The task that polls the seats.
struct Watch {
    locks: Locks,
    seats: Seats,
    shared: Arc<Shared>,
    sender: watch::Sender<Arc<Hall>>,
    /// The seat where the next round continues.
    turn: u32,
}

impl Watch {
    async fn run(mut self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round = long_ago();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.shared.wake.notified() => sleep(GATHER).await,
            }
            let unwatched = self.shared.watchers.available_permits() == WATCHERS;
            if unwatched {
                self.shared.stirred().clear();
                continue;
            }
            let mut lines = self.stirred();
            if round.elapsed() >= INTERVAL {
                round = Instant::now();
                self.others(&mut lines);
            }
            let hall = self.look(lines).await;
            self.sender.send_replace(Arc::new(hall));
        }
    }

    /// Returns the seats changed by this process, as many as fit into a poll.
    fn stirred(&self) -> BTreeSet<u32> {
        let mut stirred = self.shared.stirred();
        let mut lines = std::mem::take(&mut *stirred);
        if let Some(&first) = lines.iter().nth(LINES) {
            *stirred = lines.split_off(&first);
            self.shared.wake.notify_one();
        }
        lines
    }

    /// Adds seats that other processes may have changed: queues with waiters, and the rest in
    /// turns.
    fn others(&mut self, lines: &mut BTreeSet<u32>) {
        let hall = Arc::clone(&self.sender.borrow());
        let busy = hall.seats.iter().filter(|view| !view.line.is_empty()).map(|view| view.seat);
        lines.extend(busy.take(LINES - lines.len()));
        for _ in 0..self.seats.count() {
            if lines.len() >= LINES {
                return;
            }
            self.turn = self.turn % self.seats.count() + 1;
            lines.insert(self.turn);
        }
    }

    async fn look(&self, lines: BTreeSet<u32>) -> Hall {
        let mut hall = Hall::clone(&self.sender.borrow());
        hall.trouble = None;
        let began = Instant::now();
        match self.seats.all().await {
            Ok(seats) => {
                for (view, seat) in hall.seats.iter_mut().zip(seats) {
                    let line = view.line.clone();
                    change(
                        view,
                        View { seat: seat.seat, buyer: seat.buyer, token: seat.token, line },
                    );
                }
            }
            Err(_) => hall.trouble = Some("The database is unavailable now."),
        }
        let mut looks = JoinSet::new();
        for seat in lines {
            let locks = self.locks.clone();
            looks.spawn(async move { (seat, office::line(&locks, seat).await) });
        }
        let all = timeout(LOOK, async {
            while let Some(Ok((seat, inspection))) = looks.join_next().await {
                let line = Line::from(inspection.ok()?);
                if let Some(view) = hall.seats.get_mut(seat as usize - 1) {
                    change(view, View { line, ..View::clone(view) });
                    hall.looked[seat as usize - 1] = began;
                }
            }
            Some(())
        });
        if !matches!(all.await, Ok(Some(()))) {
            hall.trouble = Some("The lock service is unavailable: seats cannot be bought now.");
        }
        hall.at = Instant::now();
        hall
    }
}

/// Replaces a seat only if it has changed.
fn change(view: &mut Arc<View>, now: View) {
    if **view != now {
        *view = Arc::new(now);
    }
}

/// Returns a time before any poll.
fn long_ago() -> Instant {
    Instant::now().checked_sub(10 * INTERVAL).unwrap_or_else(Instant::now)
}
