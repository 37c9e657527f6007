//! The answers of a server that does not serve a slot, or not now. None of these commands ran.

use std::time::Duration;

use proto::StoreError;
use tokio::time::Instant;

use super::topology::Place;

/// The first pause before a command is sent again to a slot that moves, and the longest. A slot
/// moves in some milliseconds.
const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(100);
/// The time for which a command is sent again here. A slot that moves for longer is left to the
/// node, which asks again by itself: the places of requests on their way are for all locks.
const LIMIT: Duration = Duration::from_millis(250);
/// Most servers that are followed one after the other.
const MAX_MOVES: u32 = 5;

/// The meaning of a refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another server has the slot; none is named if its place cannot be read.
    Moved(Option<Place>),
    /// The slot moves, and none of the keys is here: they are at that place, or nowhere.
    Ask(Option<Place>),
    /// The slot moves, and some of the keys are here.
    Moving,
    /// The server knows that the Cluster does not serve the slot.
    Down,
}

impl Redirect {
    /// The meaning of this error of the server at `asked`; nothing if it is another error.
    pub(super) fn read(error: &StoreError, asked: &str) -> Option<Self> {
        let (code, rest) = error.detail.split_once(' ')?;
        let place = || rest.split(' ').nth(1).and_then(|at| Place::read(at, asked));
        Some(match code {
            "MOVED" => Self::Moved(place()),
            "ASK" => Self::Ask(place()),
            "TRYAGAIN" => Self::Moving,
            "CLUSTERDOWN" => Self::Down,
            _ => return None,
        })
    }
}

/// Bounds the sending of one command.
pub(super) struct Attempts {
    until: Instant,
    pause: Duration,
    moves: u32,
}

impl Attempts {
    /// Those of one command, which may take this long.
    pub(super) fn new(request_timeout: Duration) -> Self {
        Self { until: Instant::now() + LIMIT.min(request_timeout), pause: FIRST, moves: 0 }
    }

    /// Whether one more server may be followed.
    pub(super) fn may_follow(&mut self) -> bool {
        self.moves += 1;
        self.moves <= MAX_MOVES
    }

    /// Waits before the next attempt. Returns whether there is time for one.
    pub(super) async fn pause(&mut self) -> bool {
        let pause = self.pause.mul_f64(rand::random_range(0.5..1.5));
        self.pause = (2 * self.pause).min(LONGEST);
        let is_in_time = Instant::now() + pause < self.until;
        if is_in_time {
            tokio::time::sleep(pause).await;
        }
        is_in_time
    }
}

#[cfg(test)]
mod tests {
    use proto::LockErrorKind;

    use super::*;

    #[test]
    fn a_refusal_says_where_the_slot_is() {
        let read = |detail: &str| {
            Redirect::read(&StoreError::refused(LockErrorKind::Unsupported, detail), "asked")
        };
        let place = |host: &str| Place { host: host.to_owned(), port: 7 };
        assert_eq!(read("MOVED 3999 host:7"), Some(Redirect::Moved(Some(place("host")))));
        assert_eq!(read("MOVED 3999 :7"), Some(Redirect::Moved(Some(place("asked")))));
        assert_eq!(read("MOVED 3999"), Some(Redirect::Moved(None)));
        assert_eq!(read("ASK 3999 host:7"), Some(Redirect::Ask(Some(place("host")))));
        assert_eq!(read("TRYAGAIN Multiple keys"), Some(Redirect::Moving));
        assert_eq!(read("CLUSTERDOWN Hash slot not served"), Some(Redirect::Down));
        assert_eq!(read("LOADING it is"), None);
        assert_eq!(read("MOVED"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_is_sent_again_for_a_bounded_time_and_follows_a_bounded_number_of_servers() {
        for (timeout, least) in [(2_000, 100), (50, 15)] {
            let started = Instant::now();
            let mut attempts = Attempts::new(Duration::from_millis(timeout));
            while attempts.pause().await {}
            let took = started.elapsed().as_millis();
            assert!((least..250.min(u128::from(timeout))).contains(&took), "{took} ms");
        }
        let mut attempts = Attempts::new(Duration::from_secs(1));
        assert_eq!((0..9).filter(|_| attempts.may_follow()).count(), 5);
    }
}
