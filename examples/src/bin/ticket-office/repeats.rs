//! Repeats: a purchase sent again with the same `Idempotency-Key`, such as after a cut connection,
//! receives the first response, and nothing is sold twice.

use std::error::Error;
use std::time::Duration;

use client::read_url;
use deadpool_redis::{Manager, Pool, Runtime};
use http::request::Parts;
use lock_idempotency::{IdempotencyLayer, MemoryReplays, RedisReplays, Refusal, Scope};
use lockcore::Locks;

use crate::flags::{Flags, MAX_PAY};
use crate::order::MAX_BYTES;

/// The time for a purchase in addition to the longest wait and the longest payment.
const REST: Duration = Duration::from_secs(5);

/// Returns the layer that serves a purchase only once for each `Idempotency-Key`. With a `redis://`
/// URL, responses are stored on that Redis, for all processes. Otherwise each process stores the
/// responses to its own purchases.
pub(crate) fn layer(flags: &Flags, locks: &Locks) -> Result<IdempotencyLayer, Box<dyn Error>> {
    let once = match flags.redis() {
        None => IdempotencyLayer::new(locks.clone(), MemoryReplays::new(), scope),
        Some(url) if url.starts_with("redis://") => {
            // As the locks read it: redis-rs ignores `?db=`, `?user=` and `?pass=`, and a user
            // without a password.
            let manager = Manager::new(read_url(url)?)?;
            let pool = Pool::builder(manager).runtime(Runtime::Tokio1).build()?;
            let replays = RedisReplays::new(pool).prefix("ticket-office:replay");
            IdempotencyLayer::new(locks.clone(), replays, scope)
        }
        // The pool does not support these URLs: each process stores the responses to its own
        // purchases.
        Some(_) => IdempotencyLayer::new(Locks::in_memory(), MemoryReplays::new(), scope),
    };
    let longest = flags.max_wait + MAX_PAY + REST;
    let options = flags.options().wait(longest);
    Ok(once.locking(|line| line.options(options)).max_run(longest).body_limit(MAX_BYTES))
}

/// Returns the same scope for all requests, because the office has no logins: an idempotency key is
/// a random number known only to the buyer.
fn scope(_: &Parts) -> Result<Scope, Refusal> {
    Ok(Scope::new("buyers"))
}
