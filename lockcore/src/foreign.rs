//! Calls of foreign code: wakers, tracing subscribers and metrics recorders.
//!
//! # Implementation notes
//!
//! - A panic in such code does not propagate. The caller or the task that runs it has other work to
//!   do, and has seldom installed that code.
//! - By then, the panic hook has reported the panic; an event names the code that panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::{Span, error};

/// Calls code from outside this crate, such as a waker. If the code panics, the panic does not
/// propagate; it is logged with `what`, a name for the code.
pub(crate) fn call(what: &'static str, call: impl FnOnce()) {
    // `call` changes nothing of ours, so nothing can be left half changed.
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { return };
    // The subscriber may panic, too, and so may dropping the payload.
    let _ = catch_unwind(AssertUnwindSafe(move || {
        error!(what, "a panic of code outside of this crate was caught");
        drop(panic);
    }));
}

/// Calls `work` in a span. If the subscriber panics when the span is left, the panic does not
/// propagate: otherwise the result of `work`, such as a grant, would be lost.
pub(crate) fn in_span<T>(span: &Span, work: impl FnOnce() -> T) -> T {
    let entered = span.enter();
    let result = work();
    call("a tracing subscriber", || drop(entered));
    result
}

/// Wakers of tests.
#[cfg(test)]
pub(crate) mod testing {
    use std::panic::resume_unwind;
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            resume_unwind(Box::new("woken"));
        }
    }

    /// Returns a waker that panics.
    pub(crate) fn panics() -> Waker {
        Waker::from(Arc::new(Panics))
    }
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
