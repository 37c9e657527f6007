//! Waiting for a server that has just been started.

use std::process::Child;
use std::time::{Duration, Instant};

/// Waits until this server replies, for 30 s at most.
pub(crate) fn until_ready(
    name: &str,
    server: &mut Child,
    mut is_ready: impl FnMut() -> Result<bool, String>,
) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if let Ok(Some(status)) = server.try_wait() {
            return Err(format!("{name} ended with {status}"));
        }
        if is_ready()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("{name} did not reply within 30 s"))
}
