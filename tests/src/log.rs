//! `Log`: all log lines, for tests of warnings and of secrets.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// A subscriber that keeps every event and span, of all crates and levels. For tests on a single
/// thread.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// All lines, as text.
    text: String,
    /// The fields of each event of lockcore, with its level.
    events: Vec<(Level, String)>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(format!("span {}", span.metadata().name()));
        span.record(&mut line);
        self.note(&line.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = Line("record".to_owned());
        values.record(&mut line);
        self.note(&line.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = Line(String::new());
        event.record(&mut line);
        self.note(&format!("event {}{}", metadata.target(), line.0));
        if metadata.target().starts_with("lockcore") {
            self.kept().events.push((*metadata.level(), line.0));
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Log {
    /// Keeps everything that this thread logs, until the guard is dropped.
    #[must_use]
    pub fn listen() -> (Self, DefaultGuard) {
        // Without a second subscriber, the subscriber of one thread misses events that another
        // thread reaches first: tracing consults only that thread then, and caches that nobody is
        // interested.
        static ANOTHER: OnceLock<Dispatch> = OnceLock::new();
        ANOTHER.get_or_init(|| Dispatch::new(Self::default()));
        let log = Self::default();
        let here = tracing::subscriber::set_default(log.clone());
        (log, here)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("no panic")
    }

    /// Adds a line to the text.
    ///
    /// # Panics
    ///
    /// If another test that used the log has panicked.
    pub fn note(&self, text: &str) {
        let mut kept = self.kept();
        kept.text.push_str(text);
        kept.text.push('\n');
    }

    /// Returns all events, spans and added lines so far.
    ///
    /// # Panics
    ///
    /// If another test that used the log has panicked.
    #[must_use]
    pub fn text(&self) -> String {
        self.kept().text.clone()
    }

    /// Returns the events of lockcore so far, with their levels.
    ///
    /// # Panics
    ///
    /// If another test that used the log has panicked.
    #[must_use]
    pub fn lines(&self) -> Vec<(Level, String)> {
        self.kept().events.clone()
    }

    /// Returns the warnings and errors of lockcore so far.
    ///
    /// # Panics
    ///
    /// If another test that used the log has panicked.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let kept = self.kept();
        let warnings = kept.events.iter().filter(|(level, _)| *level <= Level::WARN);
        warnings.map(|(_, line)| line.clone()).collect()
    }
}
