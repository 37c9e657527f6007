//! Calls of foreign code: recipients of replies, which may wake a caller's task, and tracing
//! subscribers.
//!
//! A panic in such code does not propagate: the task that runs it serves all requests of a
//! connection, or is the only task that replaces a connection. By then, the panic hook has reported
//! the panic; an event names the code that panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::error;

/// Calls code from outside this crate. If the code panics, the panic does not propagate; it is
/// logged with `what`, a name for the code.
pub(crate) fn call(what: &'static str, call: impl FnOnce()) {
    // `call` changes nothing of ours, so nothing can be left half changed.
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { return };
    // The subscriber may panic, too, and so may dropping the payload.
    let _ = catch_unwind(AssertUnwindSafe(move || {
        error!(what, "a panic of code outside of this crate was caught");
        drop(panic);
    }));
}

/// Emits an event. If a tracing subscriber panics, the panic does not propagate.
pub(crate) fn log(event: impl FnOnce()) {
    call("a tracing subscriber", event);
}
