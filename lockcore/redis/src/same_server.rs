//! Checks that commands and messages reach the same server, because a server delivers messages only
//! to its own subscribers.

use std::time::Duration;

use redis::Cmd;

use crate::call::Packed;
use crate::error::{ClientError, ClientErrorKind};
use crate::failure;
use crate::link::CommandLink;
use crate::subscription::Subscription;

/// Maximum number of times that the subscribers are counted. The check fails if each count is zero:
/// a single zero may mean that the subscription has just broken.
const MAX_COUNTS: u32 = 3;
/// The pause after a count of zero subscribers.
const PAUSE: Duration = Duration::from_millis(50);

/// Checks that commands and the subscription reach the same server: the command server must count a
/// subscriber of `channel`. This fails if a pool and a URL lead to two servers, or if a load
/// balancer spreads connections over servers.
///
/// # Errors
/// The server counts no subscriber or does not reply, or the subscription is broken.
pub async fn check_same_server(
    link: &CommandLink,
    subscription: &Subscription,
    channel: &str,
) -> Result<(), ClientError> {
    let mut count: Cmd = redis::cmd("PUBSUB");
    count.arg("NUMSUB").arg(channel);
    for _ in 0..MAX_COUNTS {
        let answer = link
            .request(Packed::from(&count))
            .await?
            .map_err(|error| failure::of_command(&error))?;
        let (_, subscribers): (String, u64) = redis::from_redis_value(answer)
            .map_err(|error| ClientError::refused(ClientErrorKind::Protocol, error.to_string()))?;
        if subscribers > 0 {
            return Ok(());
        }
        if !subscription.is_up() {
            let detail = "the subscription broke right after it was opened";
            return Err(ClientError::refused(ClientErrorKind::Unavailable, detail));
        }
        tokio::time::sleep(PAUSE).await;
    }
    let detail = "commands and subscription reach different servers: the pool and the URL, or all \
        addresses of the URL, must lead to the same server";
    Err(ClientError::refused(ClientErrorKind::InvalidOption, detail))
}
