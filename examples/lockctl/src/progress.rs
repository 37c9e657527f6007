//! The queue position, shown on a terminal during a wait.

use std::convert::Infallible;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use lockcore::operate::{LockInspection, Participant};
use lockcore::{LockError, Locks};
use rustix::termios::tcgetwinsize;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::{exit, text};

/// The delay before the queue is inspected first. Nothing is shown if the lock is granted sooner.
const FIRST: Duration = Duration::from_millis(250);
/// The interval between inspections of the queue.
const PERIOD: Duration = Duration::from_secs(1);
/// The maximum number of waiters and of holders read per inspection. If each waiter read the whole
/// queue, the server's work per second would grow with the square of the queue length.
const SEEN: u32 = 100;

/// A line on stderr that shows the queue position while `lockctl exec` waits, and is rewritten in
/// place. Shows nothing if stderr is not a terminal that can do this.
pub(crate) struct Progress {
    on: bool,
    shown: bool,
    /// The last write, if it has not ended.
    writing: Option<JoinHandle<()>>,
}

/// The state of the queue, as shown in the line.
struct Place<'a> {
    key: &'a str,
    /// Our position in the queue, from 1; `None` if we are not among the waiters that were read.
    place: Option<usize>,
    waiting: u64,
    holding: u64,
    holders: &'a [Participant],
}

impl Progress {
    pub(crate) fn on_stderr() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: io::stderr().is_terminal() && !dumb, shown: false, writing: None }
    }

    /// Shows the position and updates it every second. Never completes: the caller drops this
    /// future when the wait for the lock has ended.
    pub(crate) async fn follow(&mut self, locks: &Locks, key: &str) -> Infallible {
        if !self.on {
            return std::future::pending().await;
        }
        let mut looks = interval_at(Instant::now() + FIRST, PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let line = match locks.inspect_part(key, 0, SEEN).await {
                Ok(found) => Place::of(locks.node().as_str(), key, &found).line(),
                Err(error) => unavailable(key, &error),
            };
            self.show(&line).await;
        }
    }

    /// Erases the line, so that other output does not follow it on the same line. Gives up on a
    /// terminal that was stopped (Ctrl-S), because the lock is held already.
    pub(crate) async fn clear(&mut self) {
        if self.shown {
            self.shown = false;
            let _ = timeout(exit::UNREAD, self.write(String::new())).await;
        }
    }

    async fn show(&mut self, line: &str) {
        self.shown = true;
        let columns = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        self.write(fitted(line, columns)).await;
    }

    /// Writes in another thread, one line after the other: a stopped terminal then blocks neither
    /// the grant nor a signal.
    async fn write(&mut self, line: String) {
        if let Some(earlier) = &mut self.writing {
            let _ = earlier.await;
        }
        let writing = self.writing.insert(spawn_blocking(move || {
            let mut stderr = io::stderr().lock();
            // Return to the start of the line, and erase the text.
            let _ = write!(stderr, "\r\x1b[K{line}");
            let _ = stderr.flush();
        }));
        let _ = writing.await;
        self.writing = None;
    }
}

impl<'a> Place<'a> {
    fn of(node: &str, key: &'a str, found: &'a LockInspection) -> Self {
        let ours = |waiter: &Participant| waiter.node.as_ref().is_some_and(|of| of == node);
        Self {
            key,
            place: found.waiters.iter().position(ours).map(|ahead| ahead + 1),
            waiting: found.waiting,
            holding: found.holding,
            holders: &found.holders,
        }
    }

    fn line(&self) -> String {
        let mut line = format!("waiting for {}", self.key);
        match self.place {
            Some(place) => line.push_str(&format!(": position {place} of {}", self.waiting)),
            None if self.waiting > SEEN.into() => {
                line.push_str(&format!(": behind the first {SEEN} of {}", self.waiting));
            }
            None => {}
        }
        if let [first, ..] = self.holders {
            let seconds = first.lease_left.as_millis().div_ceil(1_000);
            let others = match self.holding.saturating_sub(1) {
                0 => String::new(),
                number => format!(" and {number} more"),
            };
            line.push_str(&format!(", held by {}{others}, lease {seconds} s", name(first)));
        }
        text::one_line(&line)
    }
}

/// Returns the label of a holder or waiter or, without a label, the text that stands for it in the
/// store.
pub(crate) fn name(participant: &Participant) -> &str {
    participant.label.as_deref().filter(|label| !label.is_empty()).unwrap_or(&participant.member)
}

fn unavailable(key: &str, error: &LockError) -> String {
    text::one_line(&format!("waiting for {key}: {error}"))
}

/// Cuts a line that is wider than the terminal, because a wrapped line could not be rewritten in
/// place. If the width is unknown, `columns` is 0 and the line stays whole.
fn fitted(line: &str, columns: usize) -> String {
    match columns {
        0 => line.to_owned(),
        // The last column stays free: some terminals wrap after writing it.
        columns => text::fitting(line.chars(), columns - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place<'a>(place: Option<usize>, waiting: u64) -> Place<'a> {
        Place { key: "order:42", place, waiting, holding: 0, holders: &[] }
    }

    #[test]
    fn the_position_is_told() {
        assert_eq!(place(Some(3), 5).line(), "waiting for order:42: position 3 of 5");
        assert_eq!(place(None, 0).line(), "waiting for order:42");
        let far = "waiting for order:42: behind the first 100 of 700";
        assert_eq!(place(None, 700).line(), far);
    }

    #[test]
    fn a_line_does_not_wrap() {
        assert_eq!(fitted("waiting", 5), "wait");
        assert_eq!(fitted("waiting", 80), "waiting");
        assert_eq!(fitted("waiting", 0), "waiting");
        assert_eq!(fitted("größe", 5), "größ");
        assert_eq!(fitted("座席の予約", 7), "座席の");
        assert_eq!(fitted("座席の予約", 6), "座席");
    }
}
