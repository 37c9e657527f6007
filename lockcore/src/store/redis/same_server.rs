//! Commands and messages have to reach one server: scripts reach a node only by its subscription
//! there.

use std::time::Duration;

use proto::wire::keys::grants_channel;
use proto::{LockErrorKind, NodeId};

use super::link::CommandLink;
use super::subscription::Subscription;
use crate::error::LockError;

/// The number of times that a count of zero is asked for, and the pause between: the subscription
/// may just have broken.
const ASKED: u32 = 3;
const PAUSE: Duration = Duration::from_millis(50);

/// Refuses a pool and a URL that lead to two servers, and a balancer that sends each connection
/// elsewhere.
pub(crate) async fn check(
    link: &CommandLink,
    subscription: &Subscription,
    prefix: &str,
    node: &NodeId,
) -> Result<(), LockError> {
    let mut count = redis::cmd("PUBSUB");
    count.arg("NUMSUB").arg(grants_channel(prefix, node.as_str()));
    for _ in 0..ASKED {
        let answer = link.run(count.clone()).await.map_err(LockError::of_store)?;
        let (_, subscribers): (String, u64) = redis::from_redis_value(answer)
            .map_err(|error| LockError::with_detail(LockErrorKind::Protocol, error.to_string()))?;
        if subscribers > 0 {
            return Ok(());
        }
        if !subscription.state().borrow().is_up() {
            let detail = "the subscription broke right after it was opened";
            return Err(LockError::with_detail(LockErrorKind::Unavailable, detail));
        }
        tokio::time::sleep(PAUSE).await;
    }
    let detail = "commands and subscription reach two servers: the pool and the URL, or the addresses \
                  behind the URL, must lead to one";
    Err(LockError::with_detail(LockErrorKind::InvalidOption, detail))
}
