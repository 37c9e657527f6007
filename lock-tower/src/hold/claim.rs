//! One request's way to its locks: which it has acquired, which comes next, and how long it may
//! wait.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lockcore::{Acquire, LockGuard, LockKey};
use pin_project::pin_project;
use tokio::time::Instant;

use crate::config::Config;
use crate::hold::handle::LockHandle;
use crate::hold::holds::Holds;
use crate::key::{Resolved, Sorted};
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
    current: Option<LockKey>,
    #[pin]
    acquire: Option<Acquire>,
}

/// Keys with their guards, in the order in which they were acquired.
#[derive(Default)]
pub(crate) struct Taken {
    /// Most requests take one: it costs no allocation.
    first: Option<(LockKey, LockGuard)>,
    rest: VecDeque<(LockKey, LockGuard)>,
}

impl Taken {
    /// The token of the last hold.
    pub(crate) fn last_token(&self) -> Option<u64> {
        let (_, guard) = self.rest.back().or(self.first.as_ref())?;
        Some(guard.fencing_token().get())
    }
}

impl Iterator for Taken {
    type Item = (LockKey, LockGuard);

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
        }
    }

    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The list of the request's holds; a new one if it has none.
    pub(crate) fn holds(&self) -> Arc<Holds> {
        self.holds.clone().unwrap_or_default()
    }

    /// The guards of all keys, once they are acquired.
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Taken, LockError>> {
        let mut this = self.project();
        loop {
            if let Some(acquire) = this.acquire.as_mut().as_pin_mut() {
                let guard = ready!(acquire.poll(cx))?;
                this.acquire.set(None);
                push(this.taken, this.current.take().expect("set with the acquire"), guard);
            }
            let Some(key) = this.keys.next() else {
                return Poll::Ready(Ok(std::mem::take(this.taken)));
            };
            let locks = &this.config.locks;
            let is_held = |handle: &LockHandle| handle.held().is_of(locks, &key);
            let mut handles = this.holds.iter().flat_map(LockHandle::all);
            if let Some(held) = handles.find(is_held) {
                push(this.taken, key, held.reenter()?);
                continue;
            }
            let request = this.options.apply(locks.key(&key));
            let request = match this.options.wait() {
                Wait::Forever => request.wait_forever(),
                Wait::AtMost(wait) => request.wait(remaining(wait, this.began)),
            };
            let request = match this.label.as_ref().or(this.config.label.as_ref()) {
                Some(label) => request.label(label),
                None => request,
            };
            *this.current = Some(key);
            this.acquire.set(Some(request.lock()));
        }
    }
}

fn push(taken: &mut Taken, key: LockKey, guard: LockGuard) {
    match &taken.first {
        Some(_) => taken.rest.push_back((key, guard)),
        None => taken.first = Some((key, guard)),
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
