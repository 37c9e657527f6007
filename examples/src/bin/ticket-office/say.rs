//! Output for the office's operator. A closed pipe does not end the process.

use std::fmt;
use std::io::{self, Write as _};

use tracing_subscriber::filter::LevelFilter;

/// Prints a message on stdout.
pub(crate) fn news(text: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "ticket-office: {text}");
}

/// Prints an error on stderr.
pub(crate) fn trouble(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "ticket-office: {text}");
}

/// Starts to log events on stderr: among them Redis outages, their ends, and lost holds.
pub(crate) fn events() {
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::INFO);
    log.with_writer(io::stderr).log_internal_errors(false).init();
}
