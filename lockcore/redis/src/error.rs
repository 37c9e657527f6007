//! The client error and its kinds.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a command or a connection attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientErrorKind {
    /// A URL, a setting or a certificate cannot be used.
    InvalidOption,
    /// The server is unreachable, did not reply in time, or cannot serve for now.
    Unavailable,
    /// The server refuses writes: it is a replica, or cannot replicate or save.
    ReadOnly,
    /// The server refuses the credentials, or the Redis user lacks a right.
    Denied,
    /// The server's memory is full.
    OutOfMemory,
    /// A key holds a value of another type than the command needs.
    WrongType,
    /// The server lacks a command, or runs in a mode that is not supported here, such as a Cluster.
    Unsupported,
    /// The connection was closed by the client, or its runtime has ended.
    Closed,
    /// The server's reply cannot be parsed.
    Protocol,
}

/// The error of a command or of a connection attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientError {
    /// The kind of the error, by which a program decides what to do.
    pub kind: ClientErrorKind,
    /// The complete error for people, with the remedy if it is known.
    pub detail: Arc<str>,
    /// True if the command may have run, or may still run. False if it did not run.
    pub may_have_run: bool,
}

impl ClientError {
    /// Creates the error of a command that did not run.
    pub fn refused(kind: ClientErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: detail.into(), may_have_run: false }
    }

    /// Creates the error of a command that may have run, because its reply is missing. The kind is
    /// [`Unavailable`](ClientErrorKind::Unavailable).
    pub fn ambiguous(detail: impl Into<Arc<str>>) -> Self {
        let kind = ClientErrorKind::Unavailable;
        Self { kind, detail: detail.into(), may_have_run: true }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

// No source: `detail` is complete.
impl Error for ClientError {}
