//! Runs single commands and scripts on a command connection, and converts errors to store errors.

use client::{CommandLink, Packed, Sender};
use proto::StoreError;
use proto::layout::Layout;
use redis::{Cmd, RedisError, Value};

use super::call::Scripted;
use super::failure;

/// A server's response to a command. The inner error is the server's own error. The outer error
/// means that no response arrived, or that it was discarded.
pub(crate) type Judged = Result<Result<Value, RedisError>, StoreError>;

/// Methods of the command connection that return store errors.
pub(crate) trait Run {
    /// Runs a command and returns the reply.
    async fn run(&self, command: Cmd) -> Result<Value, StoreError>;

    /// Runs a command on this connection only. Fails if the connection was replaced in the
    /// meantime.
    async fn run_on(&self, sender: Sender, command: Cmd) -> Result<Value, StoreError>;

    /// Runs a script of this layout and returns the reply.
    async fn run_script(&self, call: Scripted, layout: &dyn Layout) -> Result<Value, StoreError>;
}

impl Run for CommandLink {
    async fn run(&self, command: Cmd) -> Result<Value, StoreError> {
        finished(judged(self.request(Packed::from(&command)).await))
    }

    async fn run_on(&self, sender: Sender, command: Cmd) -> Result<Value, StoreError> {
        finished(judged(self.request_on(sender, &Packed::from(&command)).await))
    }

    async fn run_script(&self, call: Scripted, layout: &dyn Layout) -> Result<Value, StoreError> {
        finished_script(judged(self.request_script(call.0).await), layout)
    }
}

/// Converts the client's error to a store error.
pub(crate) fn judged(answer: client::Judged) -> Judged {
    answer.map_err(failure::of_client)
}

/// Returns the response to a command that is not a script, or the server's error as a store error.
fn finished(answer: Judged) -> Result<Value, StoreError> {
    answer?.map_err(|error| failure::of_command(&error))
}

/// Returns the response to a script of this layout, or the server's error as a store error.
pub(crate) fn finished_script(answer: Judged, layout: &dyn Layout) -> Result<Value, StoreError> {
    answer?.map_err(|error| failure::of_script(&error, layout))
}
