//! Lines for the operator of the office. A closed pipe is no reason to end.

use std::fmt;
use std::io::{self, Write as _};

/// Prints news on stdout.
pub(crate) fn news(text: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "ticket-office: {text}");
}

/// Prints an error on stderr.
pub(crate) fn trouble(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "ticket-office: {text}");
}
