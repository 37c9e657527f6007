//! Calls of code that is not ours: wakers, tracing subscribers and metrics recorders.
//!
//! # Implementation notes
//!
//! - A panic of such code ends where it began. The caller of this crate or the task that runs it
//!   has more to do for others, and has seldom installed that code.
//! - The panic hook has reported the panic by then; an event names the code that it was in.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::error;

/// Calls `what`; a panic of it is reported, and goes no further.
pub(super) fn call(what: &'static str, call: impl FnOnce()) {
    // Nothing of ours is changed in `call`, so that nothing can be left half changed.
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { return };
    // The subscriber itself may panic, and so may a payload that is dropped.
    let _ = catch_unwind(AssertUnwindSafe(move || {
        error!(what, "a panic of code outside of this crate was caught");
        drop(panic);
    }));
}

#[cfg(test)]
mod tests {
    use std::panic::{panic_any, resume_unwind};

    use super::*;

    struct PanicsOnDrop;

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            resume_unwind(Box::new("dropped"));
        }
    }

    #[test]
    fn a_panic_goes_no_further_nor_does_that_of_its_payload() {
        call("a test", || resume_unwind(Box::new("called")));
        call("a test", || panic_any(PanicsOnDrop));
    }
}
