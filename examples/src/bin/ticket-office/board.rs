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

/// The interval between polls, by which the page shows changes by other processes. Changes by this
/// process are polled sooner: see [`GATHER`].
const INTERVAL: Duration = Duration::from_millis(500);

/// The delay between a change by this process and the next poll, so that simultaneous changes are
/// polled together, and a buyer who is just joining the queue is included.
const GATHER: Duration = Duration::from_millis(25);

/// The maximum time of a poll for the requests to the lock servers. If it is exceeded, the page
/// shows that the lock service is unavailable.
const LOOK: Duration = Duration::from_secs(1);

/// The maximum number of seats whose queues are inspected in a poll. Further seats take turns.
const LINES: usize = 64;

/// The maximum number of watchers of the board. Each of them keeps an HTTP connection open.
const WATCHERS: usize = 1_000;

/// A seat with the buyer and the queue, as the page shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct View {
    seat: u32,
    buyer: Option<String>,
    token: Option<i64>,
    #[serde(flatten)]
    line: Line,
}

/// The state of all seats, as of the last polls.
#[derive(Debug, Clone)]
struct Hall {
    seats: Vec<Arc<View>>,
    /// For each seat, when the last poll that inspected the queue began.
    looked: Vec<Instant>,
    /// A sentence that says why no seat can be bought now; `None` if the last poll was successful.
    trouble: Option<&'static str>,
    at: Instant,
}

/// What has changed on the board since a watcher's previous change. The first has all seats.
#[derive(Debug, Serialize)]
pub(crate) struct Change {
    trouble: Option<&'static str>,
    seats: Vec<View>,
}

/// A handle to the board, for requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Board {
    shared: Arc<Shared>,
    hall: watch::Receiver<Arc<Hall>>,
    task: AbortHandle,
}

struct Shared {
    /// The seats marked by [`Board::stir`] since the last poll. The next poll inspects their
    /// queues.
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

    /// Marks a seat, because a buyer joins or leaves the queue, or buys it. A poll soon inspects
    /// the queue, so that the page shows the change.
    pub(crate) fn stir(&self, seat: u32) {
        self.shared.stirred().insert(seat);
        self.shared.wake.notify_one();
    }

    /// Marks a seat as [`stir`](Self::stir) does, now and again when the returned value is dropped.
    pub(crate) fn stirring(&self, seat: u32) -> Stirring {
        self.stir(seat);
        Stirring { board: self.clone(), seat }
    }

    /// Adds a watcher of all seats. Returns `None` if there are [`WATCHERS`] already.
    pub(crate) fn watch(&self) -> Option<Watcher> {
        let permit = Arc::clone(&self.shared.watchers).try_acquire_owned().ok()?;
        let mut hall = self.hall.clone();
        let is_old = hall.borrow_and_update().at.elapsed() > 2 * INTERVAL;
        if is_old {
            self.shared.wake.notify_one();
        }
        Some(Watcher { hall, known: None, waits: is_old, _permit: permit })
    }

    /// Adds a watcher of a seat's queue. Returns `None` if there are [`WATCHERS`] already.
    pub(crate) fn queue(&self, seat: u32) -> Option<Queue> {
        let permit = Arc::clone(&self.shared.watchers).try_acquire_owned().ok()?;
        Some(Queue { hall: self.hall.clone(), seat, _permit: permit })
    }

    /// Stops the polls, and ends the event streams of all watchers. Called at shutdown.
    pub(crate) fn close(&self) {
        self.task.abort();
    }
}

impl Shared {
    fn stirred(&self) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
        self.stirred.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a seat as [`Board::stir`] does when it is dropped: when a purchase has ended, or the buyer
/// has disconnected.
pub(crate) struct Stirring {
    board: Board,
    seat: u32,
}

impl Drop for Stirring {
    fn drop(&mut self) {
        self.board.stir(self.seat);
    }
}

/// A watcher of all seats, for the event stream of an open page.
pub(crate) struct Watcher {
    hall: watch::Receiver<Arc<Hall>>,
    known: Option<Arc<Hall>>,
    /// Whether [`next`](Self::next) waits for a poll before it returns. At first this is true only
    /// if the last poll is too old to be shown, because nobody watched.
    waits: bool,
    _permit: OwnedSemaphorePermit,
}

impl Watcher {
    /// Waits for a change, and returns what has changed since the last call. The first call returns
    /// all seats. Returns `None` when the board has closed.
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

/// A watcher of a seat's queue, for a buyer who waits there.
pub(crate) struct Queue {
    hall: watch::Receiver<Arc<Hall>>,
    seat: u32,
    _permit: OwnedSemaphorePermit,
}

impl Queue {
    /// Waits for the next poll of the board. Returns false when the board has closed.
    pub(crate) async fn changed(&mut self) -> bool {
        self.hall.changed().await.is_ok()
    }

    /// Returns the number of waiters ahead of the buyer with the name `waiter`; if several waiters
    /// have this name, of the last. Returns `None` if there is no such waiter, or if the last poll
    /// of the queue began before `since`, when the buyer may not have been queued.
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

/// The task that polls the seats and their queues while the board has watchers.
struct Watch {
    locks: Locks,
    seats: Seats,
    shared: Arc<Shared>,
    sender: watch::Sender<Arc<Hall>>,
    /// The last seat that was inspected in turns. The next poll continues after it.
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

    /// Takes the seats marked by [`Board::stir`], at most [`LINES`]. Further marked seats wait for
    /// the next poll.
    fn stirred(&self) -> BTreeSet<u32> {
        let mut stirred = self.shared.stirred();
        let mut lines = std::mem::take(&mut *stirred);
        if let Some(&first) = lines.iter().nth(LINES) {
            *stirred = lines.split_off(&first);
            self.shared.wake.notify_one();
        }
        lines
    }

    /// Adds seats that other processes may have changed, until there are [`LINES`]: at first seats
    /// that are held or awaited, then all seats in turns.
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

/// Replaces the view of a seat only if it differs, because watchers recognize an unchanged seat by
/// the same allocation.
fn change(view: &mut Arc<View>, now: View) {
    if **view != now {
        *view = Arc::new(now);
    }
}

/// Returns a time before any poll, for a board that was never polled.
fn long_ago() -> Instant {
    Instant::now().checked_sub(10 * INTERVAL).unwrap_or_else(Instant::now)
}
