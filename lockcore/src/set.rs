//! Several locks at once: sorted, one after the other.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::{join_all, select_all};
use proto::{ConfigError, LockErrorKind};
use tokio::time::Instant;

use crate::error::LockError;
use crate::guard::LockGuard;
use crate::key::{IntoKey, LockKey};
use crate::locks::Locks;
use crate::options::{LockOptions, Wait};

/// Most locks of one set.
const MAX_KEYS: usize = 32;

impl Locks {
    /// Acquires all of these locks, and holds them together.
    ///
    /// They are acquired one after the other, in the sorted order of their names, in whichever
    /// order they are given. So two sets never wait for each other, and neither do a set and the
    /// layers of `lock-tower`. The first ones are held while the later ones are waited for. A task
    /// that already holds a lock can still block itself and others by asking for more: release it
    /// first.
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let both = locks.all(["account:1", "account:2"]).await?;
    /// let [from, to] = both.guards() else { unreachable!("as many as were asked for") };
    /// println!("{} under {}, {} under {}", from.key(), from.fencing_token(), to.key(), to.fencing_token());
    /// both.release().await?;
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock), and then none is held.
    /// [`InvalidOption`](LockErrorKind::InvalidOption) for no key, more than 32 keys, or two that
    /// name one lock; nothing is sent then. [`Lost`](LockErrorKind::Lost) if one was lost while the
    /// later ones were waited for.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue and releases the locks acquired so far.
    pub fn all(&self, keys: impl IntoIterator<Item: IntoKey>) -> AcquireAll {
        self.all_with(keys, LockOptions::new())
    }

    /// Acquires all of these locks with options, as [`all`](Self::all) does. The
    /// [wait](LockOptions::wait) is for all of them together. Errors, panics and cancel safety are
    /// those of [`all`](Self::all).
    pub fn all_with(
        &self,
        keys: impl IntoIterator<Item: IntoKey>,
        options: LockOptions,
    ) -> AcquireAll {
        let keys = keys.into_iter().map(|key| Ok(key.into_key()?)).collect();
        let options = options.or(self.node.settings.defaults);
        AcquireAll(Course::New { locks: self.clone(), keys: Some(keys), options, class: None })
    }

    /// The keys with their places in the call, sorted.
    fn sorted(&self, keys: Vec<LockKey>) -> Result<Vec<(LockKey, usize)>, LockError> {
        let namespace = self.node.settings.namespace.as_deref();
        let mut names: Vec<_> = keys.iter().map(|key| key.clone().resolve(namespace)).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        if keys.is_empty() || keys.len() > MAX_KEYS || twice.is_some() {
            let value = match twice {
                Some(pair) => {
                    format!("{} keys, {:?} twice among them", keys.len(), pair[0].as_str())
                }
                None => format!("{} keys", keys.len()),
            };
            return Err(ConfigError::new("keys", value, "1 to 32 keys of different locks").into());
        }
        // By the keys and not by the names, as lock-tower sorts them.
        let mut sorted: Vec<_> = keys.into_iter().zip(0..).collect();
        sorted.sort_unstable();
        Ok(sorted)
    }
}

async fn acquire(
    locks: Locks,
    keys: Result<Vec<LockKey>, LockError>,
    options: LockOptions,
    class: Option<Box<str>>,
) -> Result<LockSet, LockError> {
    let keys = locks.sorted(keys?)?;
    let began = Instant::now();
    let mut guards: Vec<LockGuard> = Vec::with_capacity(keys.len());
    let mut places = Vec::with_capacity(keys.len());
    for (key, place) in keys {
        let request = locks.key(key).options(remaining(options, began));
        let request = match &class {
            Some(class) => request.class(class),
            None => request,
        };
        let guard = tokio::select! {
            // The acquisition first: one that is dropped unpolled is warned of.
            biased;
            guard = request.lock() => guard?,
            () = any_lost(&guards) => return Err(LockError::new(LockErrorKind::Lost)),
        };
        guards.push(guard);
        places.push(place);
    }
    let mut placed: Vec<_> = places.into_iter().zip(guards).collect();
    placed.sort_unstable_by_key(|(place, _)| *place);
    Ok(LockSet { guards: placed.into_iter().map(|(_, guard)| guard).collect() })
}

/// Begins the next acquire, with the rest of the wait.
fn remaining(options: LockOptions, began: Instant) -> LockOptions {
    match options.get_wait() {
        Some(Wait::AtMost(wait)) => options.wait(wait.saturating_sub(began.elapsed())),
        _ => options,
    }
}

/// Completes when one of them is lost.
async fn any_lost(guards: &[LockGuard]) {
    if guards.is_empty() {
        return pending().await;
    }
    select_all(guards.iter().map(|guard| Box::pin(guard.lost()))).await;
}

/// Waits for several locks; made by [`Locks::all`], which has its errors, panics and cancel safety.
#[must_use = "an acquisition does nothing until it is awaited: write `.await`, and keep the set"]
pub struct AcquireAll(Course);

enum Course {
    /// Not polled yet.
    New {
        locks: Locks,
        /// Taken by the first poll.
        keys: Option<Result<Vec<LockKey>, LockError>>,
        options: LockOptions,
        class: Option<Box<str>>,
    },
    Running(Pin<Box<dyn Future<Output = Result<LockSet, LockError>> + Send>>),
}

impl AcquireAll {
    /// Sets the class of all these acquisitions, as
    /// [`LockRequest::class`](crate::LockRequest::class) does of one. Once it has been polled, this
    /// does nothing.
    pub fn class(mut self, new: impl AsRef<str>) -> Self {
        if let Course::New { class, .. } = &mut self.0 {
            *class = Some(new.as_ref().into());
        }
        self
    }
}

impl Future for AcquireAll {
    type Output = Result<LockSet, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Course::New { locks, keys, options, class } = &mut self.0
            && let Some(keys) = keys.take()
        {
            let (locks, class) = (locks.clone(), class.take());
            self.0 = Course::Running(Box::pin(acquire(locks, keys, *options, class)));
        }
        match &mut self.0 {
            Course::Running(running) => running.as_mut().poll(cx),
            Course::New { .. } => unreachable!("it has its keys until the first poll"),
        }
    }
}

impl fmt::Debug for AcquireAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireAll").finish_non_exhaustive()
    }
}

/// Several held locks; acquired by [`Locks::all`]. Dropping it releases them in the background.
#[must_use = "locks whose guards are dropped are released at once: write `let set = …`, since `_` drops it, too"]
#[derive(Debug)]
pub struct LockSet {
    guards: Vec<LockGuard>,
}

impl LockSet {
    /// The guards, in the order in which their keys were given.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The guards themselves: each is released when it is dropped.
    pub fn into_guards(self) -> Vec<LockGuard> {
        self.guards
    }

    /// Whether one of them [is lost](LockGuard::is_lost).
    pub fn is_lost(&self) -> bool {
        self.guards.iter().any(LockGuard::is_lost)
    }

    /// Completes when the first of them is lost.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        any_lost(&self.guards).await;
    }

    /// Releases all of them, and reports whether all were held until then.
    ///
    /// # Errors
    /// As [`LockGuard::release`]: [`Lost`](LockErrorKind::Lost) if one of them was lost, else the
    /// first other error. The others are released all the same.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Once polled, all of them are released even if the future is dropped.
    pub async fn release(self) -> Result<(), LockError> {
        let releases = join_all(self.guards.into_iter().map(LockGuard::release)).await;
        let mut errors: Vec<_> = releases.into_iter().filter_map(Result::err).collect();
        match errors.iter().position(|error| error.kind() == LockErrorKind::Lost) {
            Some(lost) => Err(errors.swap_remove(lost)),
            None => errors.into_iter().next().map_or(Ok(()), Err),
        }
    }
}
