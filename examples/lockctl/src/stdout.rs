//! Lines on stdout.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::exit::{self, Failure};
use crate::text;

/// Prints a text and a line break on stdout. Returns false if the reader has closed the pipe, as
/// `head` does: the caller has nothing more to print.
pub(crate) fn print(lines: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{lines}").and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(exit::FAILED, format!("writing to stdout failed: {error}"))),
    }
}

/// Serializes the value as a line of JSON. Foreign text in it cannot control a terminal.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value)
        .map(|line| text::printable_json(&line))
        .map_err(|error| Failure::new(exit::FAILED, format!("writing JSON failed: {error}")))
}
