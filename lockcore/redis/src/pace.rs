//! Connection attempts: the timeout of each, and the pause before the next.
//!
//! # Implementation notes
//!
//! - A server also spends time on abandoned attempts: with TLS it reads the beginning of a
//!   handshake, signs, and only then notices that the client is gone. Where attempts time out
//!   sooner than the server gets to them, it does nothing else, for ever. So after an attempt that
//!   was accepted and timed out, the next attempt has a longer timeout, after a random pause.
//! - An attempt that was refused, or not accepted by any server, costs servers nothing. The next
//!   attempt comes soon, with the same timeout: a packet may be lost again, and the kernel
//!   retransmits the first packet after ever longer pauses.
//! - redis-rs does not report the steps of its attempts, so an attempt of redis-rs that timed out
//!   counts as accepted: without a longer timeout, a server with slow logins would never be reached
//!   again. At an unreachable server it costs only time: up to 16 s for each attempt. An attempt of
//!   the application's pool counts as not accepted: the pool has a timeout of its own, and so a
//!   longer timeout here has no effect.
//! - Name lookups have a timeout of their own. A name server that does not reply costs 5 s before
//!   the next one is tried (`resolv.conf(5)`), at each lookup of each program.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::sentinel_primary::Primary;

/// The timeouts of connections and requests, as set by the application.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// The timeout for each name lookup, and for the first connection to a server.
    pub connect: Duration,
    /// The timeout of each request.
    pub request: Duration,
}

/// Maximum timeout of the first attempt to reconnect, and of a [`brief`](ConnectAttempt::brief)
/// attempt. It is short because another server may have taken over, and the next attempt may reach
/// that server.
const FIRST: Duration = Duration::from_secs(1);
/// Factor by which the timeout grows after an attempt that timed out. A smaller factor leads to
/// more abandoned attempts, and each costs the server time: with 2, a server that needs 10 s to
/// accept all clients would be done only after 45 s.
const GROWTH: u32 = 4;
/// Maximum timeout of an attempt, unless the application's connection timeout is longer: a server
/// that could be reached at first can be reached again. Without a maximum, a proxy that accepts
/// connections for a dead server would make timeouts grow without end.
const LONGEST: Duration = Duration::from_secs(16);

/// Maximum pause after the first refused attempt. The maximum doubles with each further refusal, up
/// to [`MAX_REFUSED_PAUSE`]. The actual pause is random, from half of the maximum to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Maximum pause after any number of refused attempts.
const MAX_REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause after an attempt that timed out. The actual pause is random, from zero.
const MAX_LATE_PAUSE: Duration = Duration::from_secs(4);

/// A step of opening a connection, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    LookUp,
    /// All steps of an attempt by the application's pool.
    #[cfg(feature = "deadpool")]
    Pool,
    Tcp,
    #[cfg(feature = "tls")]
    Tls,
    /// The login, with AUTH and SELECT.
    Login,
    /// All steps of an attempt by redis-rs, which does not report them.
    RedisRs,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LookUp => "the DNS lookup",
            #[cfg(feature = "deadpool")]
            Self::Pool => "the attempt of the pool",
            Self::Tcp => "the TCP connection",
            #[cfg(feature = "tls")]
            Self::Tls => "the TLS handshake",
            Self::Login => "the login",
            Self::RedisRs => "the attempt of redis-rs",
        })
    }
}

/// The timeouts of a connection attempt, and the current step, named in the error after a timeout.
#[derive(Debug)]
pub struct ConnectAttempt {
    /// The timeout of the DNS lookup.
    pub(crate) look_up: Duration,
    /// The timeout of all other steps together.
    pub(crate) limit: Duration,
    /// The primary that the attempt is for, once the sentinels have named it.
    pub(crate) primary: OnceLock<Primary>,
    progress: Mutex<Progress>,
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy)]
struct Progress {
    step: Step,
    /// When the current step began.
    began: Instant,
    /// When the first of the steps began that [`ConnectAttempt::limit`] bounds together.
    limited_since: Instant,
}

impl ConnectAttempt {
    /// Creates the first connection attempt to a server. Its timeout is the application's
    /// connection timeout.
    pub fn first(timeouts: Timeouts) -> Self {
        Self::new(timeouts.connect, timeouts.connect)
    }

    /// Creates an attempt with a timeout of at most 1 s. Used for a server in whose place another
    /// can be tried, such as a Cluster node that is asked for the primaries.
    pub fn brief(timeouts: Timeouts) -> Self {
        Self::new(timeouts.connect, timeouts.connect.min(FIRST))
    }

    fn new(look_up: Duration, limit: Duration) -> Self {
        let now = Instant::now();
        let progress = Progress { step: Step::LookUp, began: now, limited_since: now };
        Self { look_up, limit, primary: OnceLock::new(), progress: Mutex::new(progress) }
    }

    /// Records that `step` begins now. All earlier steps are then complete.
    pub(crate) fn begins(&self, step: Step) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_limited = progress.step > Step::LookUp;
        let limited_since = if is_limited { progress.limited_since } else { now };
        *progress = Progress { step, began: now, limited_since };
    }

    fn progress(&self) -> Progress {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Describes which step was not complete when the attempt timed out, and how long it had
    /// lasted. For the error.
    pub(crate) fn why_late(&self) -> String {
        let Progress { step, began, .. } = self.progress();
        format!("no connection in time: {step} was not complete after {:.1?}", began.elapsed())
    }
}

/// The timeout of the next connection attempt to a server, and the pause before it.
#[derive(Debug, Clone)]
pub struct Pace {
    timeouts: Timeouts,
    /// The timeout of the first attempt after a successful connection.
    first: Duration,
    /// The next attempt's timeout. It grows after each attempt that the server accepted but did not
    /// complete in time.
    limit: Duration,
    /// The longest pause after the next refused attempt. It doubles with each refusal.
    pause: Duration,
}

impl Pace {
    /// Creates the pace for reconnecting to a server. The first timeout is at most 1 s: if another
    /// server has taken over, the next attempt may reach that server.
    pub fn new(timeouts: Timeouts) -> Self {
        Self::starting(timeouts, timeouts.connect.min(FIRST))
    }

    /// Creates the pace for a server that is tried concurrently with others, such as a sentinel.
    /// The first timeout is the application's connection timeout, because a slow attempt does not
    /// delay the others.
    pub(crate) fn among_others(timeouts: Timeouts) -> Self {
        Self::starting(timeouts, timeouts.connect)
    }

    fn starting(timeouts: Timeouts, first: Duration) -> Self {
        Self { timeouts, first, limit: first, pause: FIRST_PAUSE }
    }

    /// Returns a pace that starts over, with the first timeout and the shortest pause. Used after a
    /// successful attempt.
    pub(crate) fn anew(&self) -> Self {
        Self::starting(self.timeouts, self.first)
    }

    /// Creates the next attempt, with the timeout that has grown after earlier attempts.
    pub(crate) fn attempt(&self) -> ConnectAttempt {
        ConnectAttempt::new(self.timeouts.connect, self.limit)
    }

    /// Pauses after a failed attempt. The next timeout is longer if the server accepted the
    /// attempt, but was too slow.
    pub(crate) async fn after(&mut self, attempt: &ConnectAttempt) {
        let Progress { step, limited_since, .. } = attempt.progress();
        let was_let_in = step > Step::Tcp;
        let is_slow = limited_since.elapsed() >= attempt.limit.min(self.timeouts.request);
        let is_late = was_let_in && is_slow;
        let pause = self.pause_after(is_late, rand::random());
        tokio::time::sleep(pause).await;
    }

    /// Pauses as after a refused attempt. Called if a connection broke right after it was opened,
    /// because the server refuses every write, or closes connections.
    pub(crate) async fn after_refusal(&mut self) {
        let pause = self.refused();
        tokio::time::sleep(pause).await;
    }

    /// Returns the pause after a refused attempt, which is random. It becomes longer with each
    /// call, up to a second.
    pub fn refused(&mut self) -> Duration {
        self.pause_after(false, rand::random())
    }

    /// Returns the pause before the next attempt, and sets the timeout of the next attempt.
    /// `is_late` is true if the server accepted the attempt, but was too slow. `drawn` is a random
    /// number from 0 to 1, so that clients do not retry all at once.
    fn pause_after(&mut self, is_late: bool, drawn: f64) -> Duration {
        if is_late {
            self.limit = (self.limit * GROWTH).min(LONGEST.max(self.timeouts.connect));
            self.pause = FIRST_PAUSE;
            return self.limit.min(MAX_LATE_PAUSE).mul_f64(drawn);
        }
        let pause = self.pause.mul_f64(0.5 + drawn / 2.0);
        self.pause = (self.pause * 2).min(MAX_REFUSED_PAUSE);
        pause
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    const TIMEOUTS: Timeouts =
        Timeouts { connect: Duration::from_secs(5), request: Duration::from_secs(2) };

    /// Returns the time until all `clients` are reconnected to a server that handles handshakes one
    /// by one, including handshakes of abandoned attempts.
    fn all_back_after(clients: usize, handshake: Duration, seed: u64) -> Duration {
        let mut dice = StdRng::seed_from_u64(seed);
        let mut paces: Vec<_> = (0..clients).map(|_| Pace::new(TIMEOUTS)).collect();
        // All connections broke at the same time.
        let mut attempts: BinaryHeap<_> =
            (0..clients).map(|client| Reverse((Duration::ZERO, client))).collect();
        let mut server_is_free = Duration::ZERO;
        let mut last = Duration::ZERO;
        while let Some(Reverse((at, client))) = attempts.pop() {
            let answered = server_is_free.max(at) + handshake;
            server_is_free = answered;
            let pace = &mut paces[client];
            let given_up = at + pace.limit;
            if answered <= given_up {
                last = last.max(answered);
            } else {
                let next = given_up + pace.pause_after(true, dice.random());
                assert!(next < Duration::from_secs(3_600), "they never come back");
                attempts.push(Reverse((next, client)));
            }
        }
        last
    }

    #[test]
    fn a_crowd_is_back_soon_whatever_a_handshake_costs() {
        for seed in 0..20 {
            for clients in [50, 150, 300, 1_000] {
                for all in [0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.5, 8.0, 10.0] {
                    let handshake = Duration::from_secs_f64(all / clients as f64);
                    let took = all_back_after(clients, handshake, seed).as_secs_f64();
                    let bound = 4.0 * all + 5.0;
                    assert!(took <= bound, "{clients} of {all} s: {took} s, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn a_refusal_is_followed_by_a_probe_within_two_seconds() {
        let mut pace = Pace::new(TIMEOUTS);
        for _ in 0..3 {
            pace.pause_after(true, 0.5);
        }
        let limit = pace.limit;
        for _ in 0..30 {
            assert!(pace.pause_after(false, 1.0) <= Duration::from_secs(2));
        }
        assert_eq!(pace.limit, limit, "the server may still be slow");
        assert_eq!(Pace::new(TIMEOUTS).pause_after(false, 0.0), FIRST_PAUSE / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_no_server_let_in_has_no_more_time_than_the_one_before() {
        let mut pace = Pace::new(TIMEOUTS);
        let attempt = pace.attempt();
        attempt.begins(Step::Tcp);
        tokio::time::sleep(attempt.limit).await;
        pace.after(&attempt).await;
        assert_eq!(pace.limit, FIRST);
        attempt.begins(Step::Login);
        tokio::time::sleep(attempt.limit).await;
        let expected = "no connection in time: the login was not complete after 1.0s";
        assert_eq!(attempt.why_late(), expected);
        pace.after(&attempt).await;
        assert_eq!(pace.limit, FIRST * GROWTH);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_is_late_if_its_steps_took_too_long_together() {
        let mut pace = Pace::new(TIMEOUTS);
        let attempt = pace.attempt();
        // The time before the limit begins does not count.
        tokio::time::sleep(FIRST).await;
        attempt.begins(Step::Tcp);
        tokio::time::sleep(attempt.limit.mul_f64(0.3)).await;
        attempt.begins(Step::Login);
        tokio::time::sleep(attempt.limit.mul_f64(0.6)).await;
        pace.after(&attempt).await;
        assert_eq!(pace.limit, FIRST, "it was refused in time");
        let attempt = pace.attempt();
        attempt.begins(Step::Tcp);
        tokio::time::sleep(attempt.limit.mul_f64(0.6)).await;
        attempt.begins(Step::Login);
        tokio::time::sleep(attempt.limit.mul_f64(0.4)).await;
        pace.after(&attempt).await;
        assert_eq!(pace.limit, FIRST * GROWTH);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_of_redis_rs_that_was_late_is_followed_by_one_with_more_time() {
        let mut pace = Pace::new(TIMEOUTS);
        let attempt = pace.attempt();
        attempt.begins(Step::RedisRs);
        tokio::time::sleep(attempt.limit).await;
        let expected = "no connection in time: the attempt of redis-rs was not complete after 1.0s";
        assert_eq!(attempt.why_late(), expected);
        pace.after(&attempt).await;
        assert_eq!(pace.limit, FIRST * GROWTH);
    }

    #[cfg(feature = "deadpool")]
    #[tokio::test(start_paused = true)]
    async fn an_attempt_of_a_pool_that_was_late_is_followed_by_another_soon() {
        let mut pace = Pace::new(TIMEOUTS);
        let attempt = pace.attempt();
        attempt.begins(Step::Pool);
        tokio::time::sleep(attempt.limit).await;
        let expected = "no connection in time: the attempt of the pool was not complete after 1.0s";
        assert_eq!(attempt.why_late(), expected);
        let ended = Instant::now();
        pace.after(&attempt).await;
        assert!(ended.elapsed() <= 2 * FIRST_PAUSE);
        assert_eq!(pace.limit, FIRST);
    }

    #[test]
    fn the_time_for_an_attempt_grows_at_least_to_the_first_s() {
        let timeouts = Timeouts { connect: LONGEST * 3, ..TIMEOUTS };
        for (timeouts, longest) in [(TIMEOUTS, LONGEST), (timeouts, timeouts.connect)] {
            let mut pace = Pace::new(timeouts);
            for _ in 0..5 {
                pace.pause_after(true, 0.0);
            }
            assert_eq!(pace.limit, longest);
        }
    }

    #[test]
    fn nobody_has_less_time_than_was_asked_for() {
        let timeouts = Timeouts { connect: Duration::from_millis(300), ..TIMEOUTS };
        assert_eq!(Pace::new(timeouts).limit, timeouts.connect);
        assert_eq!(ConnectAttempt::first(timeouts).limit, timeouts.connect);
    }
}
