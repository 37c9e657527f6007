//! The connection to Redis.

use std::time::Duration;

use lockcore::{LockError, LockErrorKind, Locks, LocksBuilder};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::arguments::Server;
use crate::exit::{self, Failure};
use crate::text;

/// The pause between two attempts to connect to Redis.
const PAUSE: Duration = Duration::from_millis(200);

/// The minimum time for attempts to connect, even if the user's wait for the lock is shorter.
const LEAST: Duration = Duration::from_millis(500);

impl Server {
    /// Returns a builder for locks in the requested namespace.
    pub(crate) fn builder(&self) -> LocksBuilder {
        let builder = Locks::builder().redisson_peers(self.redisson);
        match &self.namespace {
            Some(namespace) => builder.namespace(namespace),
            None => builder,
        }
    }
}

/// Connects to Redis in a single attempt, for commands that do not wait for a lock.
pub(crate) async fn once(server: &Server) -> Result<Locks, Failure> {
    connect(&server.redis, server.builder()).await
}

async fn connect(url: &str, builder: LocksBuilder) -> Result<Locks, Failure> {
    builder.connect(url).await.map_err(|error| failure(url, &error))
}

/// Connects to Redis for `lockctl exec`. While Redis is unavailable, tries again until `wait` has
/// passed since `started`, and at least for [`LEAST`]. Makes a single attempt if `wait` is zero or
/// `None`.
pub(crate) async fn within(
    url: &str,
    builder: LocksBuilder,
    started: Instant,
    wait: Option<Duration>,
) -> Result<Locks, Failure> {
    let Some(wait) = wait.filter(|wait| !wait.is_zero()) else {
        return connect(url, builder).await;
    };
    let deadline = started + wait.max(LEAST);
    let mut last = None;
    loop {
        let error = match timeout_at(deadline, builder.clone().connect(url)).await {
            Ok(Ok(locks)) => return Ok(locks),
            Ok(Err(error)) if error.kind() != LockErrorKind::Unavailable => {
                return Err(failure(url, &error));
            }
            Ok(Err(error)) => failure(url, &error),
            // The previous attempt's error explains more than the timeout of this attempt.
            Err(_) => last.unwrap_or_else(|| unavailable(url, "no reply in time")),
        };
        let next = Instant::now() + PAUSE;
        if next >= deadline {
            return Err(error);
        }
        last = Some(error);
        sleep_until(next).await;
    }
}

fn unavailable(url: &str, reason: &str) -> Failure {
    Failure::new(exit::UNAVAILABLE, format!("--redis {}: {reason}", text::without_password(url)))
}

pub(crate) fn failure(url: &str, error: &LockError) -> Failure {
    let url = text::without_password(url);
    Failure::new(exit::code(error.kind()), format!("--redis {url}: {error}"))
}
