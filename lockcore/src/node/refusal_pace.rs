//! Limits the rate at which refusals are returned to attempts that would have waited.
//!
//! Without the limit, callers that retry at once, however many, would keep the process busy with
//! attempts and refusals, because all ready tasks are polled before a holder whose timer has fired.
//! A delayed caller is no worse off than without a queue limit or a store wait: it would have
//! waited until then.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time between two refusals, once [`BURST`] is used up. The resulting 5 000 refusals a second cost
/// some hundredths of a core.
const EACH: Duration = Duration::from_micros(200);
/// Number of refusals that are returned without a delay after a quiet time.
const BURST: u32 = 500;

/// The limit on a node's rate of refusals.
#[derive(Debug, Default)]
pub(crate) struct RefusalPace {
    /// The instant at which the next refusal may be returned. In the past after a quiet time, and
    /// `None` before the first refusal.
    next: Mutex<Option<Instant>>,
}

impl RefusalPace {
    /// Returns the instant until which a refusal made now is kept back, at most until `latest`.
    /// `None` if it is returned at once.
    pub(crate) fn turn(&self, latest: Instant) -> Option<Instant> {
        let now = Instant::now();
        let at = self.next(now, latest);
        (at > now).then_some(at)
    }

    /// Returns when to return a refusal made at `now`. Each refusal takes a turn, but not if the
    /// turn would come after `latest`: then it is returned at `latest`. So turns are never further
    /// ahead than the longest wait.
    fn next(&self, now: Instant, latest: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // The instant may be in the past, by the time of a burst at most.
        let ahead = now.checked_sub(EACH * (BURST - 1)).unwrap_or(now);
        let at = next.map_or(ahead, |next| next.max(ahead));
        if at > latest {
            return latest;
        }
        *next = Some(at + EACH);
        at.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(pace: &RefusalPace, now: Instant, wait: u64, count: usize) -> Vec<u128> {
        let latest = now + Duration::from_millis(wait);
        (0..count).map(|_| (pace.next(now, latest) - now).as_millis()).collect()
    }

    #[test]
    fn a_few_are_told_at_once() {
        let (pace, now) = (RefusalPace::default(), Instant::now());
        assert_eq!(millis(&pace, now, 1_000, 500), [0; 500]);
        // And again after a quiet time.
        assert_eq!(millis(&pace, now + EACH * 501, 1_000, 500), [0; 500]);
    }

    #[test]
    fn many_are_told_at_a_pace_and_none_after_its_wait() {
        let (pace, now) = (RefusalPace::default(), Instant::now());
        let times = millis(&pace, now, 100, 500 + 2_000);
        assert!(times.is_sorted());
        assert_eq!(times.iter().filter(|at| **at < 50).count(), 500 + 249);
        assert_eq!(times.iter().filter(|at| **at == 100).count(), 2_000 - 500 + 1);
    }

    #[test]
    fn those_that_are_told_at_the_end_of_their_waits_delay_no_other() {
        let (pace, now) = (RefusalPace::default(), Instant::now());
        let _ = millis(&pace, now, 100, 1_000_000);
        let times = millis(&pace, now + Duration::from_millis(101), 1_000, 1);
        assert!(times[0] <= 1, "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_tells_many_callers_at_a_pace_and_a_dropped_one_nothing() {
        let locks = crate::Locks::in_memory();
        let _held = locks.lock("hot").await.expect("free");
        let request = |wait| locks.key("hot").queue_limit(1).wait(Duration::from_millis(wait));
        let _waiting = tokio::spawn(request(60_000).lock());
        tokio::task::yield_now().await;
        let start = Instant::now();
        let ask = |wait| async move {
            let error = request(wait).lock().await.expect_err("full");
            assert_eq!(error.kind(), proto::LockErrorKind::QueueFull);
            start.elapsed().as_millis()
        };
        let times = futures_util::future::join_all((0..750).map(|_| ask(1_000))).await;
        assert_eq!(times.iter().filter(|at| **at == 0).count(), 500);
        assert!((45..=55).contains(times.iter().max().expect("some")), "{times:?}");
        // Refusals whose waits end before their turn are returned then.
        let times = futures_util::future::join_all((0..750).map(|_| ask(10))).await;
        assert!(times.iter().all(|at| *at <= 65), "{times:?}");
        let many = futures_util::future::join_all((0..750).map(|_| ask(1_000)));
        let dropped = tokio::time::timeout(Duration::from_millis(5), many).await;
        assert!(dropped.is_err());
        assert_eq!(locks.status().waiting, 1);
    }

    // Such callers continue without the lock only in an outage; after another refusal they retry.
    #[tokio::test(start_paused = true)]
    async fn a_full_locks_refuses_at_a_pace_even_requests_that_leave_in_an_outage() {
        let locks = crate::Locks::builder().max_waiting(1);
        let locks = locks.on_memory(&crate::MemoryStore::new()).expect("options");
        let _held = locks.lock("hot").await.expect("free");
        let _waiting = tokio::spawn(locks.lock("hot"));
        tokio::task::yield_now().await;
        let start = Instant::now();
        let ask = async || {
            let request = locks.key("hot").wait(Duration::from_secs(1)).leave_in_outage(true);
            let error = request.lock().await.expect_err("full");
            assert_eq!(error.kind(), proto::LockErrorKind::QueueFull);
            start.elapsed()
        };
        let times = futures_util::future::join_all((0..750).map(|_| ask())).await;
        assert_eq!(times.iter().filter(|at| at.is_zero()).count(), 500);
    }
}
