//! Exit codes, with `sysexits.h` names, and the error line on stderr.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use lockcore::LockErrorKind;

use crate::text;

pub(crate) const OK: u8 = 0;
/// The lock to be released was free, or a failure has no specific code.
pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 64;
/// Redis is unavailable or refuses to serve, or the key belongs to another program or another
/// version of lockcore.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The hold was lost while the command ran.
pub(crate) const LOST: u8 = 74;
/// Timed out waiting for the lock, or the queue is full.
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// The command was found but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// How long something that matters more than a line on stderr waits for the line to be written,
/// which takes for ever if nobody reads stderr.
pub(crate) const UNREAD: Duration = Duration::from_secs(1);

/// Returns the exit code for a process killed by signal `number`, as in shells.
pub(crate) fn by_signal(number: i32) -> u8 {
    u8::try_from(number).map_or(u8::MAX, |number| number.saturating_add(128))
}

/// Returns the exit code for a lock error.
pub(crate) fn code(kind: LockErrorKind) -> u8 {
    match kind {
        LockErrorKind::InvalidKey | LockErrorKind::InvalidOption => USAGE,
        LockErrorKind::Timeout | LockErrorKind::QueueFull => NOT_ACQUIRED,
        LockErrorKind::Lost => LOST,
        _ => UNAVAILABLE,
    }
}

/// A failure that ends `lockctl`, with an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Prints the failure after this text, where it does not end `lockctl`.
    pub(crate) fn warn(&self, before: &str) {
        warn(&format!("{before}{}", self.message));
    }

    /// Prints the failure, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        warn(&self.message);
        ExitCode::from(self.code)
    }
}

/// Prints a line on stderr, with control characters escaped and passwords removed.
pub(crate) fn warn(message: &str) {
    let line = text::one_line(&text::without_passwords(message));
    // A caller that closed stderr does not want to read the message.
    let _ = writeln!(io::stderr().lock(), "lockctl: {line}");
}
