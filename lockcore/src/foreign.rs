//! Calls of foreign code: wakers, tracing subscribers and metrics recorders.
//!
//! # Implementation notes
//!
//! - A panic in such code does not propagate. The caller or the task that runs it has other work to
//!   do, and has seldom installed that code.
//! - By then, the panic hook has reported the panic; an event names the code that panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};

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

/// Emits an event. If a tracing subscriber panics, the panic does not propagate.
pub(crate) fn log(event: impl FnOnce()) {
    call("a tracing subscriber", event);
}

/// Calls `work` in a span. If the subscriber panics when the span is left, the panic does not
/// propagate: otherwise the result of `work`, such as a grant, would be lost.
pub(crate) fn in_span<T>(span: &Span, work: impl FnOnce() -> T) -> T {
    let entered = span.enter();
    let result = work();
    call("a tracing subscriber", || drop(entered));
    result
}

/// A caller's waker. If it panics when called, the panic does not propagate. Otherwise it would
/// keep a channel from waking the other tasks that wait for it.
struct Caught(Waker);

impl Wake for Caught {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        call("a waker", || self.0.wake_by_ref());
    }
}

/// The waker of the caller that polls a future: the caller's own, and the waker that catches its
/// panics. `None` before the first poll.
#[derive(Debug, Default)]
pub(crate) struct CallerWaker(Option<(Waker, Waker)>);

impl CallerWaker {
    /// Returns the waker to poll with, where the caller's own is `theirs`.
    pub(crate) fn catching(&mut self, theirs: &Waker) -> &Waker {
        let same = self.0.take().filter(|(last, _)| last.will_wake(theirs));
        let create = || (theirs.clone(), Waker::from(Arc::new(Caught(theirs.clone()))));
        &self.0.insert(same.unwrap_or_else(create)).1
    }
}

/// Wakers and subscribers of tests.
#[cfg(test)]
pub(crate) mod testing {
    use std::fmt;
    use std::panic::resume_unwind;
    use std::sync::{Arc, LazyLock};
    use std::task::{Wake, Waker};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Dispatch, Event, Metadata, Subscriber};

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

    /// A subscriber that calls a function at each event with this message.
    struct OnEvent<F>(&'static str, F);

    impl<F: Fn() + Send + Sync + 'static> Subscriber for OnEvent<F> {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.is_event()
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut message = Message(String::new());
            event.record(&mut message);
            if message.0 == self.0 {
                self.1();
            }
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    struct Message(String);

    impl Visit for Message {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "message" {
                self.0 = format!("{value:?}");
            }
        }
    }

    /// A subscriber that lives on: with a single subscriber, tracing consults the thread that first
    /// reaches an event, which may have none.
    static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(OnEvent("", || ())));

    /// Returns a subscriber that calls `then` at each event with this message.
    pub(crate) fn on_event(
        message: &'static str,
        then: impl Fn() + Send + Sync + 'static,
    ) -> Dispatch {
        LazyLock::force(&ANOTHER);
        Dispatch::new(OnEvent(message, then))
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
