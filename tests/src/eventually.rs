//! `eventually`: waits for a condition, for a bounded time.

use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// The pause between two checks of the condition. It only saves work.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until the condition is true.
///
/// `what` is the fact waited for, as in "the queue is empty".
///
/// # Panics
///
/// If the condition has not become true within `limit`, even when the condition itself hangs.
#[track_caller]
pub fn eventually<C>(what: &str, limit: Duration, mut condition: C) -> impl Future<Output = ()>
where
    C: AsyncFnMut() -> bool,
{
    eventually_some(what, limit, async move || condition().await.then_some(()))
}

/// Waits until the condition returns a value, and returns it.
///
/// # Panics
///
/// As [`eventually`].
#[track_caller]
pub fn eventually_some<T, C>(
    what: &str,
    limit: Duration,
    mut condition: C,
) -> impl Future<Output = T>
where
    C: AsyncFnMut() -> Option<T>,
{
    let caller = Location::caller(); // the test's line: a poll's line is useless
    async move {
        let deadline = Instant::now() + limit;
        loop {
            match timeout_at(deadline, condition()).await {
                Ok(Some(value)) => return value,
                Ok(None) if Instant::now() < deadline => sleep(PAUSE).await,
                Ok(None) => panic!("{caller}: not within {limit:?}: {what}"),
                Err(_) => panic!("{caller}: not within {limit:?}: {what} (no answer in time)"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_comes_true_ends_the_wait() {
        let mut looks = 0;
        let seen = eventually_some("the third look", Duration::from_secs(5), async || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(seen.await, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "not within 20ms: pigs fly")]
    async fn a_condition_that_never_comes_true_is_named() {
        eventually("pigs fly", Duration::from_millis(20), async || false).await;
    }

    #[tokio::test]
    #[should_panic(expected = "not within 20ms: an answer (no answer in time)")]
    async fn a_condition_that_never_answers_is_named() {
        eventually("an answer", Duration::from_millis(20), std::future::pending).await;
    }
}
