//! The future that acquires a request's locks.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lockcore::{Acquire, Demand, LockGuard, Locks, LostOwned};
use pin_project::pin_project;
use tokio::time::Instant;

use crate::config::{Config, OnLost};
use crate::hold::guard::Granted;
use crate::hold::handle::LockHandle;
use crate::hold::new_holds::NewHolds;
use crate::hold::place::Place;
use crate::hold::registry::HoldRegistry;
use crate::key::{KeyDemand, KeyError, Resolved, Sorted};
use crate::options::{Options, Wait, wait_of};
use crate::refusal::LockError;

/// Acquires the locks of a request one after the other, in sorted order of the keys, so that
/// requests cannot deadlock. Dropping the future leaves the queue and releases the locks acquired
/// so far.
#[pin_project]
pub(crate) struct AcquireKeys {
    config: Arc<Config>,
    keys: Sorted,
    options: Options,
    /// The label that the key extractor set, by which operators recognize the request; `None` if
    /// the layer's label applies.
    label: Option<Box<str>>,
    /// The class that the key extractor set, by which metrics group the request; `None` if the
    /// layer's class applies.
    class: Option<Box<str>>,
    /// True if the request is refused at once when its wait would probably be too long.
    refuses_early: bool,
    /// The latest time at which the wait for the keys ends, even if `options` allow a longer wait;
    /// `None` without a deadline.
    deadline: Option<Instant>,
    /// When the wait for the first key began; `None` before. The maximum wait is measured from this
    /// time, because all keys share it.
    began: Option<Instant>,
    /// The locks that the request has acquired before, or acquires meanwhile. Such a lock is shared
    /// instead of acquired again. `None` if the request has no registry yet.
    holds: Option<NewHolds>,
    /// Counts this request among the waiting requests on the same connection, whose number is
    /// limited. `None` if the connection is unknown, or carries a single request at a time
    /// (HTTP/1).
    place: Option<Place>,
    acquired: AcquiredKeys,
    /// The key that `acquire` waits for, with the demand; `None` if no acquire is running.
    current: Option<KeyDemand>,
    #[pin]
    acquire: Option<Acquire>,
    /// The largest number of waiters ahead when the request was queued for one of the locks in
    /// `acquired`. `None` if it was not queued for any of them.
    position: Option<u64>,
    /// For each lock in `acquired`, a future that completes when this lock is lost. Added and
    /// polled only while the request waits for a further lock.
    losses: Vec<Pin<Box<LostOwned>>>,
}

/// The locks that an [`AcquireKeys`] has acquired so far. Iterating takes the locks out in order.
#[derive(Default)]
pub(crate) struct AcquiredKeys {
    /// The first lock. It has a separate field because most requests acquire a single lock, which
    /// then needs no allocation here.
    first: Option<Granted>,
    rest: VecDeque<Granted>,
}

impl AcquiredKeys {
    /// Sorts the locks by demand: permits first, then reads, then exclusive locks. The order of
    /// acquisition decides between equal demands. So the last lock, whose handle and token are
    /// shown for all of them, is the lock that protects writes, whatever the names are.
    fn by_demand(mut self) -> Self {
        if !self.rest.is_empty() {
            self.first.take().into_iter().for_each(|first| self.rest.push_front(first));
            self.rest.make_contiguous().sort_by_key(|granted| {
                [Demand::EXCLUSIVE, Demand::READ].map(|other| granted.want.demand.covers(other))
            });
        }
        self
    }

    /// Returns the last lock's fencing token; `None` if there is none.
    pub(crate) fn last_token(&self) -> Option<u64> {
        let last = self.rest.back().or(self.first.as_ref())?;
        Some(last.guard.fencing_token().get())
    }

    fn granted(&self) -> impl Iterator<Item = &Granted> {
        self.first.iter().chain(&self.rest)
    }

    fn push(&mut self, granted: Granted) {
        match &self.first {
            Some(_) => self.rest.push_back(granted),
            None => self.first = Some(granted),
        }
    }
}

impl Iterator for AcquiredKeys {
    type Item = Granted;

    fn next(&mut self) -> Option<Self::Item> {
        self.first.take().or_else(|| self.rest.pop_front())
    }
}

impl AcquireKeys {
    /// Creates the future that acquires the keys of `asked`. Options that are unset there come from
    /// the layer's `config`. `holds` contains the locks that the request has acquired before, to be
    /// shared instead of acquired again. `place` limits the waiting requests on the connection.
    pub(crate) fn new(
        asked: Resolved,
        config: &Arc<Config>,
        holds: Option<Arc<HoldRegistry>>,
        place: Option<Place>,
    ) -> Self {
        let Resolved { keys, options, label, class, refuses_early, deadline } = asked;
        Self {
            refuses_early: refuses_early.unwrap_or(config.refuses_early),
            options: options.or(config.options),
            config: Arc::clone(config),
            keys,
            label,
            class,
            deadline,
            began: None,
            holds: holds.map(NewHolds::new),
            place,
            acquired: AcquiredKeys::default(),
            current: None,
            acquire: None,
            position: None,
            losses: Vec::new(),
        }
    }

    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Returns the number of waiters ahead when the request was queued; for several locks, the
    /// largest. Returns `None` if the request was never queued.
    pub(crate) fn position(&self) -> Option<u64> {
        // The position of the last acquire is read only here, because the request may be refused or
        // dropped without a poll after it was queued.
        self.acquire.as_ref().and_then(Acquire::position).max(self.position)
    }

    /// Returns the registry of the request's locks: the registry passed to [`new`](Self::new), or a
    /// new registry if there was none.
    pub(crate) fn holds(&self) -> Arc<HoldRegistry> {
        self.holds.as_ref().map(|holds| Arc::clone(holds.registry())).unwrap_or_default()
    }

    /// Acquires the keys in order, and returns all locks, sorted [by
    /// demand](AcquiredKeys::by_demand), once the last is granted. Earlier locks are held while the
    /// request waits for later locks. If an earlier lock is lost meanwhile, the request is refused,
    /// unless the layer is set to [`OnLost::Continue`]. If the request acquires the same lock
    /// elsewhere meanwhile, that lock is shared.
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<AcquiredKeys, LockError>> {
        let mut this = self.project();
        let stops = this.config.on_lost == OnLost::Stop;
        loop {
            if let Some(mut acquire) = this.acquire.as_mut().as_pin_mut() {
                let want = this.current.as_ref().expect("set with the acquire");
                // Before the acquire is polled: it may wait for that lock, or be refused because of
                // that lock.
                let added = this.holds.iter_mut().flat_map(NewHolds::added);
                let polled = match shared(added, &this.config.locks, want)? {
                    Some(guard) => Poll::Ready(guard),
                    None => acquire.as_mut().poll(cx)?,
                };
                let Poll::Ready(guard) = polled else {
                    if this.holds.as_mut().is_some_and(|holds| !holds.wakes(cx)) {
                        continue;
                    }
                    if let Some(place) = this.place
                        && let Poll::Ready(error) = place.poll(&acquire, cx)
                    {
                        return Poll::Ready(Err(error));
                    }
                    return match stops && is_one_lost(this.acquired, this.losses, cx) {
                        true => Poll::Ready(Err(LockError::lost_before())),
                        false => Poll::Pending,
                    };
                };
                *this.position = acquire.position().max(*this.position);
                this.acquire.set(None);
                this.place.as_mut().map(Place::end_acquire);
                // An earlier lock may be lost although this lock has just been granted. Then no
                // work begins.
                if stops && this.acquired.granted().any(|granted| granted.guard.is_lost()) {
                    return Poll::Ready(Err(LockError::lost_before()));
                }
                let want = this.current.take().expect("set with the acquire");
                this.acquired.push(Granted { want, guard });
            }
            let Some(want) = this.keys.next() else {
                return Poll::Ready(Ok(std::mem::take(this.acquired).by_demand()));
            };
            let locks = &this.config.locks;
            let all = this.holds.iter_mut().flat_map(NewHolds::all);
            if let Some(guard) = shared(all, locks, &want)? {
                this.acquired.push(Granted { want, guard });
                continue;
            }
            let request = this.options.apply(locks.key(&want.key));
            let left = this.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let request = match (wait_of(&request), left) {
                (Wait::Forever, None) => request.wait_forever(),
                (Wait::Forever, Some(left)) => request.wait(left),
                (Wait::AtMost(wait), left) => {
                    let wait = remaining(wait, this.began);
                    request.wait(left.map_or(wait, |left| left.min(wait)))
                }
            };
            let request = request.refuse_early(*this.refuses_early);
            let request = request.leave_in_outage(this.config.fail_open);
            let request = match this.config.records_holders {
                true => request.record_holders(true),
                // Otherwise the setting of the `Locks` applies.
                false => request,
            };
            let request = match this.label.as_ref().or(this.config.label.as_ref()) {
                Some(label) => request.label(label),
                None => request,
            };
            let request = match this.class.as_ref().or(this.config.class.as_ref()) {
                Some(class) => request.class(class),
                None => request,
            };
            this.acquire.set(Some(request.acquire(want.demand)));
            *this.current = Some(want);
        }
    }
}

/// Returns true if any of the `acquired` locks is lost. Otherwise wakes the task of `cx` at the
/// next loss. For this, adds a future to `losses` for each lock that is not watched yet.
fn is_one_lost(
    acquired: &AcquiredKeys,
    losses: &mut Vec<Pin<Box<LostOwned>>>,
    cx: &mut Context<'_>,
) -> bool {
    let unwatched = acquired.granted().skip(losses.len());
    losses.extend(unwatched.map(|granted| Box::pin(granted.guard.lost_owned())));
    losses.iter_mut().any(|lost| lost.as_mut().poll(cx).is_ready())
}

/// Returns another guard on a lock that the request already holds, if one of its `handles` has the
/// key of `want` and covers the demand of `want`. Returns `Ok(None)` if none has the key.
///
/// # Errors
/// A clash if the request holds the key with a demand that does not cover the demand of `want`, for
/// example a read when `want` is exclusive. Without this error the request would wait for itself,
/// or similar requests for each other: ten requests that each hold a permit, out of ten, and each
/// need another. `Lost` if the lock was lost.
fn shared(
    handles: impl Iterator<Item = LockHandle>,
    locks: &Locks,
    want: &KeyDemand,
) -> Result<Option<LockGuard>, LockError> {
    let mut handles = handles.peekable();
    // If the key is refused, the acquire reports the error.
    let name = handles.peek().and_then(|_| locks.name_of(&want.key).ok());
    let Some(name) = name else { return Ok(None) };
    let mut clash = None;
    for handle in handles {
        let held = handle.held();
        if !held.is_of(locks, &name) {
            continue;
        }
        if held.demand.covers(want.demand) {
            return handle.reenter().map(Some);
        }
        clash.get_or_insert(held.demand);
    }
    match clash {
        Some(held) => Err(KeyError::clash(held, want.demand).into()),
        None => Ok(None),
    }
}

/// Returns how much of the maximum `wait` is left for the next key. `began` is the time at which
/// the wait for the first key began. The first call sets it, and returns the whole `wait`.
fn remaining(wait: Duration, began: &mut Option<Instant>) -> Duration {
    match began {
        Some(began) => wait.saturating_sub(began.elapsed()),
        None => {
            *began = Some(Instant::now());
            wait
        }
    }
}
