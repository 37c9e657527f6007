//! Commands of a store by its link, with the errors of a store.

use client::{CommandLink, Packed, Sender};
use proto::StoreError;
use proto::layout::Layout;
use redis::{Cmd, RedisError, Value};

use super::call::Scripted;
use super::failure;

/// An answer of the server. The outer error: it does not count.
pub(crate) type Judged = Result<Result<Value, RedisError>, StoreError>;

/// Runs commands.
pub(crate) trait Run {
    /// Runs a command.
    async fn run(&self, command: Cmd) -> Result<Value, StoreError>;

    /// Runs a command on this very connection.
    async fn run_on(&self, sender: Sender, command: Cmd) -> Result<Value, StoreError>;

    /// Runs a script of this layout.
    async fn run_script(&self, call: Scripted, layout: &dyn Layout) -> Result<Value, StoreError>;
}

impl Run for CommandLink {
    async fn run(&self, command: Cmd) -> Result<Value, StoreError> {
        finished(judged(self.ask(Packed::from(&command)).await))
    }

    async fn run_on(&self, sender: Sender, command: Cmd) -> Result<Value, StoreError> {
        finished(judged(self.ask_on(sender, &Packed::from(&command)).await))
    }

    async fn run_script(&self, call: Scripted, layout: &dyn Layout) -> Result<Value, StoreError> {
        finished_script(judged(self.ask_script(call.0).await), layout)
    }
}

/// The answer with the error of a store.
pub(crate) fn judged(answer: client::Judged) -> Judged {
    answer.map_err(failure::of_client)
}

/// The answer to a command that is no script, or the error of the server as a store tells it.
fn finished(answer: Judged) -> Result<Value, StoreError> {
    answer?.map_err(|error| failure::of_command(&error))
}

/// The answer of a script of this layout, or the error of the server as a store tells it.
pub(crate) fn finished_script(answer: Judged, layout: &dyn Layout) -> Result<Value, StoreError> {
    answer?.map_err(|error| failure::of_script(&error, layout))
}
