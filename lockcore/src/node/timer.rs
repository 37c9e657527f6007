//! A timer that needs no runtime, for callers that are polled by another executor than the node's.
//!
//! The node's runtime may not be driven, and the executor that polls may have no timers: tokio says
//! so by a panic and in no other way, which ends the process where panics abort. One thread wakes
//! all of them. It begins with the first, and ends when it finds that nothing is waited for.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

use super::foreign;

/// Ready at its time. Wakes the task that polled it last.
#[derive(Debug)]
pub(crate) struct Timer {
    at: Instant,
    /// Where its waker is, once it was polled.
    place: Option<Place>,
}

/// When, and a number that tells those of one instant apart.
type Place = (Instant, u64);

static TIMERS: Timers = Timers {
    state: Mutex::new(State { wakers: BTreeMap::new(), next: 0, is_running: false }),
    sooner: Condvar::new(),
};

struct Timers {
    state: Mutex<State>,
    /// There is one before all that the thread knows of.
    sooner: Condvar,
}

struct State {
    wakers: BTreeMap<Place, Waker>,
    next: u64,
    is_running: bool,
}

impl Timer {
    pub(super) fn new(at: Instant) -> Self {
        Self { at, place: None }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.at {
            return Poll::Ready(());
        }
        let at = self.at;
        let place = *self.place.get_or_insert_with(|| TIMERS.place(at));
        TIMERS.set(place, cx.waker());
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            TIMERS.remove(place);
        }
    }
}

impl Timers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, at: Instant) -> Place {
        let mut state = self.state();
        state.next += 1;
        (at, state.next)
    }

    fn set(&'static self, place: Place, waker: &Waker) {
        let waker = waker.clone();
        let mut state = self.state();
        let before = state.wakers.insert(place, waker);
        let is_first = state.wakers.first_key_value().is_some_and(|(first, _)| *first == place);
        if !state.is_running {
            let spawned = thread::Builder::new().name("lockcore-timers".to_owned());
            // Without a thread it is late: what is polled for another reason looks at the clock.
            state.is_running = spawned.spawn(|| self.run()).is_ok();
        } else if is_first {
            self.sooner.notify_one();
        }
        // A waker is not ours: it may do anything when it is dropped.
        drop(state);
        drop(before);
    }

    fn remove(&self, place: Place) {
        let waker = self.state().wakers.remove(&place);
        drop(waker);
    }

    fn run(&self) {
        let mut state = self.state();
        while let Some(((at, _), _)) = state.wakers.first_key_value() {
            let left = at.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                let woken = self.sooner.wait_timeout(state, left);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let due = state.wakers.pop_first();
            drop(state);
            if let Some((_, waker)) = due {
                foreign::call("a waker", || waker.wake());
            }
            state = self.state();
        }
        state.is_running = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    struct Says(&'static str, Sender<&'static str>);

    impl Wake for Says {
        fn wake(self: Arc<Self>) {
            let _ = self.1.send(self.0);
        }
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("a waker")); // without its message on stderr
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_no_other_timer_from_waking() {
        let (says, said) = channel();
        let now = Instant::now();
        let after = |ms| Timer::new(now + Duration::from_millis(ms));
        let (mut first, mut second) = (after(100), after(200));
        let panics = poll(&mut first, &Waker::from(Arc::new(Panics)));
        let pending = poll(&mut second, &Waker::from(Arc::new(Says("second", says))));
        if panics.is_pending() && pending.is_pending() {
            assert_eq!(said.recv_timeout(SOON), Ok("second"));
        }
    }

    fn poll(timer: &mut Timer, waker: &Waker) -> Poll<()> {
        Pin::new(timer).poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn timers_wake_in_their_order_the_last_that_polled_and_not_once_they_are_dropped() {
        let (says, said) = channel();
        let waker = |name| Waker::from(Arc::new(Says(name, says.clone())));
        let now = Instant::now();
        let after = |ms| Timer::new(now + Duration::from_millis(ms));
        // The thread sleeps until the later of these, if nothing wakes it.
        let (mut far, mut near) = (after(3_600_000), after(50));
        assert!(poll(&mut far, &waker("far")).is_pending());
        if poll(&mut near, &waker("near")).is_pending() {
            assert_eq!(said.recv_timeout(SOON), Ok("near"));
        }
        let (mut late, mut soon, mut dropped) = (after(400), after(300), after(200));
        assert!(poll(&mut late, &waker("late")).is_pending());
        assert!(poll(&mut soon, &waker("before it moved")).is_pending());
        assert!(poll(&mut soon, &waker("soon")).is_pending());
        assert!(poll(&mut dropped, &waker("dropped")).is_pending());
        drop(dropped);
        for (name, mut timer) in [("soon", soon), ("late", late)] {
            assert_eq!(said.recv_timeout(SOON), Ok(name));
            assert!(Instant::now() >= timer.at);
            assert_eq!(poll(&mut timer, &waker("again")), Poll::Ready(()));
        }
        assert!(said.try_recv().is_err());
    }
}
