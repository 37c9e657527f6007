//! `Log`: what is logged, for tests of what is worth a warning.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// A subscriber that keeps every event of lockcore as a line. For tests on one thread.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<(Level, String)>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("lockcore")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("no panic").push((*event.metadata().level(), line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Log {
    /// What this thread logs from now on, until the guard goes.
    #[must_use]
    pub fn listen() -> (Self, DefaultGuard) {
        // Alone, a subscriber of one thread misses events that another thread without one reaches
        // first: tracing asks only that thread then, and remembers that nobody is interested.
        static ANOTHER: OnceLock<Dispatch> = OnceLock::new();
        ANOTHER.get_or_init(|| Dispatch::new(Self::default()));
        let log = Self::default();
        let here = tracing::subscriber::set_default(log.clone());
        (log, here)
    }

    /// Everything so far, with its level.
    ///
    /// # Panics
    ///
    /// If another test that used it has panicked.
    #[must_use]
    pub fn lines(&self) -> Vec<(Level, String)> {
        self.0.lock().expect("no panic").clone()
    }

    /// The warnings and errors so far.
    ///
    /// # Panics
    ///
    /// If another test that used it has panicked.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let lines = self.0.lock().expect("no panic");
        let warnings = lines.iter().filter(|(level, _)| *level <= Level::WARN);
        warnings.map(|(_, line)| line.clone()).collect()
    }
}
