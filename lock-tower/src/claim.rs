//! One request's way to its locks: which are taken, which comes next, and how long it may take.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use lockcore::{Acquire, LockGuard, LockKey};
use pin_project::pin_project;
use tokio::time::Instant;

use crate::config::Config;
use crate::error::LockError;
use crate::handle::LockHandle;
use crate::hold::Hold;
use crate::key::{Resolved, Sorted};
use crate::options::{Options, Wait};

/// Takes the locks one after the other. Dropping it leaves the queue and gives back what was taken.
#[pin_project]
pub(crate) struct Claim {
    keys: Sorted,
    options: Options,
    /// The request's own; the layer's, if it has none.
    label: Option<Box<str>>,
    /// When the first key was asked for: the wait is for all keys together.
    began: Option<Instant>,
    /// What the request holds from outer layers.
    outer: Option<LockHandle>,
    /// What else it holds.
    beside: Vec<LockHandle>,
    hold: Option<Hold>,
    current: Option<LockKey>,
    #[pin]
    acquire: Option<Acquire>,
}

impl Claim {
    /// What the request asks for, and where that is silent, what `defaults` say.
    pub(crate) fn new(asked: Resolved, defaults: Options, outer: Option<LockHandle>) -> Self {
        let Resolved { keys, options, label } = asked;
        Self {
            keys,
            options: options.or(defaults),
            label,
            began: None,
            outer,
            beside: Vec::new(),
            hold: None,
            current: None,
            acquire: None,
        }
    }

    /// Shares these, too.
    #[cfg(feature = "http")]
    pub(crate) fn beside(self, beside: Vec<LockHandle>) -> Self {
        Self { beside, ..self }
    }

    /// The hold of all keys, once it is had.
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        config: &Config,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Hold, LockError>> {
        let mut this = self.project();
        loop {
            if let Some(acquire) = this.acquire.as_mut().as_pin_mut() {
                let guard = match acquire.poll(cx) {
                    Poll::Ready(guard) => guard?,
                    Poll::Pending => return Poll::Pending,
                };
                this.acquire.set(None);
                let key = this.current.take().expect("set with the acquire");
                push(this.hold, this.outer, config, key, guard);
            }
            let Some(key) = this.keys.next() else {
                return Poll::Ready(Ok(this.hold.take().expect("there is at least one key")));
            };
            let have = this.hold.as_ref().map(Hold::handle).or(this.outer.as_ref());
            let mut have = have.into_iter().chain(this.beside.iter());
            if let Some(held) = have.find_map(|have| have.find(&config.locks, &key)) {
                let guard = held.reenter()?;
                push(this.hold, this.outer, config, key, guard);
                continue;
            }
            let request = this.options.apply(config.locks.key(&key));
            let request = match this.options.wait() {
                Wait::Forever => request.wait_forever(),
                Wait::AtMost(wait) => request.wait(remaining(wait, this.began)),
            };
            let request = match this.label.as_ref().or(config.label.as_ref()) {
                Some(label) => request.label(label),
                None => request,
            };
            *this.current = Some(key);
            this.acquire.set(Some(request.lock()));
        }
    }
}

fn push(
    hold: &mut Option<Hold>,
    outer: &mut Option<LockHandle>,
    config: &Config,
    key: LockKey,
    guard: LockGuard,
) {
    let handle = |outer| LockHandle::new(&config.locks, key, guard, config.on_lost, outer);
    match hold {
        Some(hold) => hold.push(handle(Some(hold.handle().clone()))),
        None => *hold = Some(Hold::new(handle(outer.take()))),
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
