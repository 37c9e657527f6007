//! One request's way to its locks: which it has acquired, which comes next, and how long it may
//! wait.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lockcore::{LockGuard, Locks};
use pin_project::pin_project;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::config::{Config, OnLost};
use crate::hold::guard::{Acquiring, Granted, Guard};
use crate::hold::handle::LockHandle;
use crate::hold::holds::Holds;
use crate::key::{KeyError, Resolved, Sorted, Want};
use crate::options::{Options, Wait};
use crate::refusal::LockError;

/// Acquires the locks one after the other. Dropping it leaves the queue and releases what it has
/// acquired.
#[pin_project]
pub(crate) struct Claim {
    config: Arc<Config>,
    keys: Sorted,
    options: Options,
    /// The request's own; the layer's, if it has none.
    label: Option<Box<str>>,
    /// When the first key was asked for: the wait is for all keys together.
    began: Option<Instant>,
    /// What the request holds already, if anything.
    holds: Option<Arc<Holds>>,
    taken: Taken,
    current: Option<Want>,
    #[pin]
    acquire: Option<Acquiring>,
    /// The losses of those it has acquired, while it waits for the next.
    losses: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// Keys with their guards, in the order in which they were acquired.
#[derive(Default)]
pub(crate) struct Taken {
    /// Most requests take one: it costs no allocation.
    first: Option<Granted>,
    rest: VecDeque<Granted>,
}

impl Taken {
    /// The token of the last hold.
    pub(crate) fn last_token(&self) -> Option<u64> {
        let last = self.rest.back().or(self.first.as_ref())?;
        Some(last.guard.token().get())
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

impl Iterator for Taken {
    type Item = Granted;

    fn next(&mut self) -> Option<Self::Item> {
        self.first.take().or_else(|| self.rest.pop_front())
    }
}

impl Claim {
    /// What the request asks for, and where it sets no option, the layer's.
    pub(crate) fn new(asked: Resolved, config: &Arc<Config>, holds: Option<Arc<Holds>>) -> Self {
        let Resolved { keys, options, label } = asked;
        Self {
            options: options.or(config.options),
            config: Arc::clone(config),
            keys,
            label,
            began: None,
            holds,
            taken: Taken::default(),
            current: None,
            acquire: None,
            losses: Vec::new(),
        }
    }

    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The list of the request's holds; a new one if it has none.
    pub(crate) fn holds(&self) -> Arc<Holds> {
        self.holds.clone().unwrap_or_default()
    }

    /// The guards of all keys, once they are acquired. The first ones are held while the later ones
    /// are waited for; if one is lost meanwhile, the request is refused, unless its layer lets work
    /// go on.
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Taken, LockError>> {
        let mut this = self.project();
        let stops = this.config.on_lost == OnLost::Stop;
        loop {
            if let Some(acquire) = this.acquire.as_mut().as_pin_mut() {
                let Poll::Ready(guard) = acquire.poll(cx)? else {
                    return match stops && is_one_lost(this.taken, this.losses, cx) {
                        true => Poll::Ready(Err(LockError::lost())),
                        false => Poll::Pending,
                    };
                };
                this.acquire.set(None);
                let want = this.current.take().expect("set with the acquire");
                this.taken.push(Granted { want, guard });
            }
            // Also if the next was granted before the loss was noticed: no work begins under it.
            if stops && this.taken.granted().any(|granted| granted.guard.is_lost()) {
                return Poll::Ready(Err(LockError::lost()));
            }
            let Some(want) = this.keys.next() else {
                return Poll::Ready(Ok(std::mem::take(this.taken)));
            };
            let locks = &this.config.locks;
            if let Some(guard) = shared(this.holds.as_ref(), locks, &want)? {
                this.taken.push(Granted { want, guard: Guard::Lock(guard) });
                continue;
            }
            let request = this.options.apply(locks.key(&want.key));
            let request = match this.options.wait() {
                Wait::Forever => request.wait_forever(),
                Wait::AtMost(wait) => request.wait(remaining(wait, this.began)),
            };
            let request = match this.label.as_ref().or(this.config.label.as_ref()) {
                Some(label) => request.label(label),
                None => request,
            };
            this.acquire.set(Some(Acquiring::new(request, want.form)));
            *this.current = Some(want);
        }
    }
}

/// Whether one of these is lost; watches them if not.
fn is_one_lost(
    taken: &Taken,
    losses: &mut Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
    cx: &mut Context<'_>,
) -> bool {
    let unwatched = taken.granted().skip(losses.len());
    losses.extend(
        unwatched.map(|granted| Box::pin(granted.guard.cancellation_token().cancelled_owned())),
    );
    losses.iter_mut().any(|lost| lost.as_mut().poll(cx).is_ready())
}

/// A guard on a hold of the request that does for the present demand.
///
/// # Errors
/// If the request would wait for its own holds, now or under load: ten requests that have one of
/// ten permits each, and ask for one more each, wait for each other.
fn shared(
    holds: Option<&Arc<Holds>>,
    locks: &Locks,
    want: &Want,
) -> Result<Option<LockGuard>, LockError> {
    let mut clash = None;
    for handle in holds.into_iter().flat_map(LockHandle::all) {
        let held = handle.held();
        if !held.is_of(locks, &want.key) {
            continue;
        }
        if held.form.covers(want.form) {
            return handle.reenter().map(Some);
        }
        clash.get_or_insert(held.form);
    }
    match clash {
        Some(held) => Err(KeyError::clash(held, want.form).into()),
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
