//! Lines for the operator of the office. A closed pipe is no reason to end.

use std::fmt;
use std::io::{self, Write as _};

use tracing_subscriber::filter::LevelFilter;

/// Prints news on stdout.
pub(crate) fn news(text: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "ticket-office: {text}");
}

/// Prints an error on stderr.
pub(crate) fn trouble(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "ticket-office: {text}");
}

/// Prints events on stderr from now on: among them outages of Redis, their ends, and lost holds.
pub(crate) fn events() {
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::INFO);
    log.with_writer(io::stderr).log_internal_errors(false).init();
}
