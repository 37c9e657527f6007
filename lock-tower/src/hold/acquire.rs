//! The future that acquires a request's locks.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lockcore::{Acquire, LockGuard, Locks};
use pin_project::pin_project;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::config::{Config, OnLost};
use crate::hold::guard::Granted;
use crate::hold::handle::LockHandle;
use crate::hold::place::Place;
use crate::hold::registry::HoldRegistry;
use crate::key::{KeyDemand, KeyError, Resolved, Sorted};
use crate::options::{Options, Wait};
use crate::refusal::LockError;

/// Acquires the locks one after the other. Dropping the future leaves the queue and releases the
/// locks acquired so far.
#[pin_project]
pub(crate) struct AcquireKeys {
    config: Arc<Config>,
    keys: Sorted,
    options: Options,
    /// The request's own label; without it, the layer's is used.
    label: Option<Box<str>>,
    /// The request's own class; without it, the layer's is used.
    class: Option<Box<str>>,
    /// Whether to refuse a request whose wait would be too long.
    refuses_early: bool,
    /// When the wait ends, regardless of the options.
    deadline: Option<Instant>,
    /// When the first acquire began: the wait covers all keys together.
    began: Option<Instant>,
    /// The request's existing holds.
    holds: Option<Arc<HoldRegistry>>,
    /// The slot among waiting requests on the same connection.
    place: Option<Place>,
    acquired: AcquiredKeys,
    current: Option<KeyDemand>,
    #[pin]
    acquire: Option<Acquire>,
    /// The longest queue ahead when the request was queued.
    position: Option<u64>,
    /// The losses of the acquired locks, during the wait for the next lock.
    losses: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// Keys with their guards, in the order of acquisition.
#[derive(Default)]
pub(crate) struct AcquiredKeys {
    /// Most requests acquire a single lock, which needs no allocation here.
    first: Option<Granted>,
    rest: VecDeque<Granted>,
}

impl AcquiredKeys {
    /// Returns the last hold's token.
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
    /// Acquires the keys of `asked`. Options unset in the request come from the layer.
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
            holds,
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

    /// The number of waiters ahead when the request was queued. For several locks, the longest
    /// queue counts.
    pub(crate) fn position(&self) -> Option<u64> {
        self.position
    }

    /// Returns the request's hold registry; a new registry if none exists.
    pub(crate) fn holds(&self) -> Arc<HoldRegistry> {
        self.holds.clone().unwrap_or_default()
    }

    /// Returns the guards of all keys, once acquired. Earlier locks are held while later locks are
    /// awaited; if a lock is lost meanwhile, the request is refused, unless the layer lets work
    /// continue.
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<AcquiredKeys, LockError>> {
        let mut this = self.project();
        let stops = this.config.on_lost == OnLost::Stop;
        loop {
            if let Some(mut acquire) = this.acquire.as_mut().as_pin_mut() {
                let polled = acquire.as_mut().poll(cx);
                *this.position = acquire.position().max(*this.position);
                let Poll::Ready(guard) = polled? else {
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
                this.acquire.set(None);
                this.place.as_mut().map(Place::end_acquire);
                // Also if this lock was granted before the loss was noticed: no work begins then.
                if stops && this.acquired.granted().any(|granted| granted.guard.is_lost()) {
                    return Poll::Ready(Err(LockError::lost_before()));
                }
                let want = this.current.take().expect("set with the acquire");
                this.acquired.push(Granted { want, guard });
            }
            let Some(want) = this.keys.next() else {
                return Poll::Ready(Ok(std::mem::take(this.acquired)));
            };
            let locks = &this.config.locks;
            if let Some(guard) = shared(this.holds.as_ref(), locks, &want)? {
                this.acquired.push(Granted { want, guard });
                continue;
            }
            let request = this.options.apply(locks.key(&want.key));
            let left = this.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let request = match (this.options.wait(), left) {
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

/// Whether an acquired lock is lost; watches the locks if not.
fn is_one_lost(
    acquired: &AcquiredKeys,
    losses: &mut Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
    cx: &mut Context<'_>,
) -> bool {
    let unwatched = acquired.granted().skip(losses.len());
    losses.extend(unwatched.map(|granted| Box::pin(granted.guard.lost_owned())));
    losses.iter_mut().any(|lost| lost.as_mut().poll(cx).is_ready())
}

/// Returns a guard on an existing hold of the request that covers the demand.
///
/// # Errors
/// A clash if the request would wait for its own holds, now or under load: ten requests that each
/// hold one of ten permits, and each need one more, wait for each other.
fn shared(
    holds: Option<&Arc<HoldRegistry>>,
    locks: &Locks,
    want: &KeyDemand,
) -> Result<Option<LockGuard>, LockError> {
    let mut clash = None;
    for handle in holds.into_iter().flat_map(LockHandle::all) {
        let held = handle.held();
        if !held.is_of(locks, &want.key) {
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

fn remaining(wait: Duration, began: &mut Option<Instant>) -> Duration {
    match began {
        Some(began) => wait.saturating_sub(began.elapsed()),
        None => {
            *began = Some(Instant::now());
            wait
        }
    }
}
