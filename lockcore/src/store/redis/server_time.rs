//! The token floor: a new token must be above everything that this node has received from servers,
//! tokens and times. Each command carries the floor, because after a failover the new primary may
//! neither have the last tokens nor a clock ahead of them.
//!
//! A token is the next number of the server's counter, so replies rarely contain the server's time,
//! and a token floor above the counter requires a longer path of the script. So only some times
//! raise the token floor. The first is the server's time at each connect, before any command is
//! sent there, so that the token floor is above everything issued by previous servers. The others
//! are each time received from a previous server, and a time received from the present server if it
//! is at least a second above the token floor.
//!
//! A read may share the token of an earlier read. But a previous server may have granted a lock
//! with a greater token, and the failover may have lost this lock. So a script shares a token only
//! if it is above everything seen on previous servers (`elsewhere`).
//!
//! A clock may have been wrong by years. So a time is discarded if two later replies in a row are
//! more than a day behind it. A token more than a day ahead of all clocks is ignored, because only
//! a forged message contains such a token, or a reply of a server whose clock or counter was wrong.
//!
//! All of this is kept for each token counter, because in a Redis Cluster each slot has a counter.
//! A token floor from another slot's tokens would stay above this slot's counter for ever, and each
//! command would take the longer path.
//!
//! Each quorum primary has a counter, and its token floor includes the tokens of all primaries. The
//! clocks of primaries may differ, so the times of a primary do not apply to another. A primary's
//! counter may have begun with a clock that was days ahead. The other primaries must follow it, so
//! tokens in replies count however far ahead they are.
//!
//! Leases end by the server's own clock only. If they followed the tokens, time would stand still
//! until the clock catches up with them, and a dead waiter would keep its position.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::FencingToken;
use proto::wire::TokenFloors;
use tokio::time::Instant;
use tracing::warn;

use crate::foreign;
use crate::store::seen::SeenTokens;

/// How far a server's time may be ahead of its later times, in µs, before it counts as wrong: a
/// day. Maintained clocks differ by less.
const WRONG_BY: u64 = 24 * 60 * 60 * 1_000_000;
/// How far a time of the present server must be above the token floor, in µs, to raise the floor: a
/// second. A raised floor makes the next script take a longer path.
const STEP: u64 = 1_000_000;
/// The bound of the tokens that a primary's replies add to the floors of the other primaries: half
/// of all tokens. The clock reaches it in the year 2112, so a greater token comes from a counter
/// that another program has written, and the other primaries would soon run out of tokens.
const MOST_AHEAD: u64 = 1 << 52;
/// The text of the warning about a time that is discarded.
const WRONG: &str = "a server's clock was more than a day ahead: its time is discarded, and tokens \
    follow the current clock";
/// Bit that is set in `ServerTime::epoch` once that epoch has ended.
const OVER: u64 = 1 << 63;

/// The times and tokens received from a server and from the servers it has replaced, for each token
/// counter. New tokens must be above them.
#[derive(Debug, Default)]
pub(crate) struct ServerTime {
    counters: Mutex<Counters>,
    /// The greatest token seen on all primaries; `None` if the server is not a quorum primary.
    seen: Option<Arc<SeenTokens>>,
    /// Start of a quorum primary's epoch as far as known, in µs since 1970; 0 if unknown. An epoch
    /// ends when the server loses its data, and then the bit [`OVER`] is set here.
    epoch: AtomicU64,
}

#[derive(Debug, Default)]
struct Counters {
    /// The initial values for a slot, before a reply about the slot has arrived. Each connect
    /// updates them.
    first: Times,
    /// When the node last connected to the server.
    connected: Option<Instant>,
    /// The values for each token counter, by slot. A server with a single counter uses slot 0.
    by_slot: BTreeMap<u16, Times>,
    /// The time that was last discarded; `None` once this was logged.
    discarded: Option<Discarded>,
}

impl Counters {
    fn of(&mut self, slot: u16) -> &mut Times {
        self.by_slot.entry(slot).or_insert(self.first)
    }

    fn now_us(&self) -> u64 {
        let passed = self.connected.map_or(Duration::ZERO, |connected| connected.elapsed());
        self.first.latest.saturating_add(passed.as_micros() as u64)
    }
}

/// A time that was discarded because it was wrong, and the later time that showed it.
#[derive(Debug, Clone, Copy)]
struct Discarded {
    wrong_us: u64,
    now_us: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Times {
    /// Greatest fencing token received from a server.
    token: u64,
    /// The greatest time that the token floor takes into account, in µs since the epoch.
    taken: u64,
    /// Latest time received, in µs since the epoch.
    latest: u64,
    /// The greatest token or time received from previous servers; 0 without a previous server.
    elsewhere: u64,
    /// Number of the server that commands are sent to.
    server: u64,
    /// True if the time in the previous reply was more than a day behind `latest`.
    was_behind: bool,
}

impl Times {
    /// Records that commands are sent to this server from now on. If the server is new, everything
    /// received so far counts as received from previous servers.
    fn arrive(&mut self, server: u64) {
        if server > self.server {
            // For a slot that was taken over, this may be above any time of this server.
            self.elsewhere = self.elsewhere.max(self.latest).max(self.token);
            self.taken = self.taken.max(self.latest);
            self.server = server;
        }
    }

    /// Records a time received from a server. If this is the second time in a row that is more than
    /// a day behind the latest time, the latest time was wrong: it is discarded, and returned.
    fn tick(&mut self, now_us: u64) -> Option<Discarded> {
        let is_behind = now_us.saturating_add(WRONG_BY) < self.latest;
        let is_wrong = is_behind && self.was_behind;
        let discarded = is_wrong.then_some(Discarded { wrong_us: self.latest, now_us });
        if is_wrong {
            self.latest = now_us;
            self.taken = self.taken.min(now_us);
            self.elsewhere = self.elsewhere.min(now_us);
        }
        self.was_behind = is_behind && self.latest > now_us;
        self.latest = self.latest.max(now_us);
        if now_us >= self.taken.max(self.token).saturating_add(STEP) {
            self.taken = now_us;
        }
        discarded
    }
}

impl ServerTime {
    /// Creates the times and tokens of a quorum primary. The primary's token floor also includes
    /// `seen`, the tokens of all primaries.
    pub(crate) fn of_quorum(seen: Arc<SeenTokens>) -> Self {
        Self { seen: Some(seen), ..Self::default() }
    }

    /// Returns the token floors for a lock in this slot, on the server with this number. Scripts
    /// draw only tokens above them.
    pub(crate) fn floors(&self, slot: u16, server: u64) -> TokenFloors {
        let mut counters = self.counters();
        let times = counters.of(slot);
        times.arrive(server);
        let seen = self.seen.as_ref().map_or(0, |seen| seen.greatest());
        TokenFloors {
            floor_us: times.taken.max(times.token).max(seen),
            elsewhere_us: times.elsewhere,
            latest_us: times.latest.max(times.token),
            epoch_us: self.epoch_us(),
        }
    }

    /// Returns when a quorum primary's known epoch began, in µs since 1970; 0 if no epoch is known.
    pub(crate) fn epoch_us(&self) -> u64 {
        self.epoch.load(Ordering::Acquire) & !OVER
    }

    /// Records when a quorum primary's present epoch began, in µs since 1970.
    pub(crate) fn begin_epoch(&self, epoch_us: u64) {
        self.epoch.store(epoch_us, Ordering::Release);
    }

    /// Records that an epoch has ended. Returns true if this was the known epoch, and its end is
    /// recorded for the first time.
    pub(crate) fn end_epoch(&self, epoch_us: u64) -> bool {
        let over = epoch_us | OVER;
        let ended =
            self.epoch.compare_exchange(epoch_us, over, Ordering::AcqRel, Ordering::Acquire);
        epoch_us != 0 && ended.is_ok()
    }

    /// Records the current time of the server with this number. Called at each connect, before any
    /// command is sent there. Logs nothing, because the caller may have locked a mutex: call
    /// [`log`](Self::log) afterwards.
    pub(crate) fn note_first(&self, now_us: u64, server: u64) {
        let mut counters = self.counters();
        counters.connected = Some(Instant::now());
        let Counters { first, by_slot, discarded, .. } = &mut *counters;
        for times in by_slot.values_mut().chain([first]) {
            times.arrive(server);
            *discarded = times.tick(now_us).or(*discarded);
            times.taken = times.taken.max(now_us);
        }
    }

    /// Raises a slot's token floor above everything received from `other`, the primary that served
    /// the slot before. Called when the slot moves, and again for each late reply from `other`.
    pub(crate) fn take_over(&self, slot: u16, other: &Self) {
        let before = {
            let times = *other.counters().of(slot);
            times.latest.max(times.token).max(times.elsewhere)
        };
        let mut counters = self.counters();
        let times = counters.of(slot);
        times.elsewhere = times.elsewhere.max(before);
        times.taken = times.taken.max(before);
    }

    /// Returns the server's current time, in µs since the epoch: its time at the last connect, plus
    /// the time since then.
    pub(crate) fn now_us(&self) -> u64 {
        self.counters().now_us()
    }

    /// Records a time received from a server, in µs since the epoch, with the lock's slot and the
    /// server's number.
    pub(crate) fn note(&self, now_us: u64, (slot, server): (u16, u64)) {
        let mut counters = self.counters();
        let times = counters.of(slot);
        let discarded = times.tick(now_us);
        // An answer may be read after the next server was found.
        if server < times.server {
            times.elsewhere = times.elsewhere.max(now_us);
            times.taken = times.taken.max(now_us);
        }
        if discarded.is_some() {
            counters.discarded = discarded;
            drop(counters);
            self.log();
        }
    }

    /// Logs a warning if a time was discarded since the last call. This runs code from outside this
    /// crate, so no mutex may be locked during this call.
    pub(crate) fn log(&self) {
        let discarded = self.counters().discarded.take();
        if let Some(Discarded { wrong_us, now_us }) = discarded {
            foreign::log(|| warn!(wrong_us, now_us, "{WRONG}"));
        }
    }

    /// Records a fencing token received from a server, with the lock's slot and the server's
    /// number. Ignores a token more than a day ahead of all clocks, because it must be forged.
    pub(crate) fn note_token(&self, token: FencingToken, (slot, server): (u16, u64)) {
        let mut counters = self.counters();
        // The latest time may be old, because replies may lack the time for days.
        let is_plausible = |time_us: u64| token.get() <= time_us.saturating_add(WRONG_BY);
        if !is_plausible(counters.of(slot).latest) && !is_plausible(counters.now_us()) {
            return;
        }
        if let Some(seen) = &self.seen {
            seen.note(token);
        }
        let (times, token) = (counters.of(slot), token.get());
        times.token = times.token.max(token);
        if server < times.server {
            times.elsewhere = times.elsewhere.max(token);
        }
    }

    /// Records a fencing token from a reply, as [`note_token`](Self::note_token) does. A reply
    /// cannot be forged, so the token is also part of the floors of all primaries, however far
    /// ahead of the clocks it is. Otherwise no other primary would issue a greater token, and no
    /// lock could use this primary.
    pub(crate) fn note_reply_token(&self, token: FencingToken, at: (u16, u64)) {
        if let Some(seen) = &self.seen
            && token.get() < MOST_AHEAD
        {
            seen.note(token);
        }
        self.note_token(token, at);
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::foreign::testing::on_event;

    const NOW: u64 = 1_795_000_000_000_000;

    fn token(token: u64) -> FencingToken {
        FencingToken::try_from(token).unwrap()
    }

    fn floors(floor_us: u64, elsewhere_us: u64) -> TokenFloors {
        TokenFloors { floor_us, elsewhere_us, latest_us: floor_us, epoch_us: 0 }
    }

    fn floor(server_time: &ServerTime, server: u64) -> u64 {
        server_time.floors(0, server).floor_us
    }

    #[test]
    fn the_floor_is_the_greatest_token_and_never_falls() {
        let server_time = ServerTime::default();
        server_time.note_first(NOW, 0);
        for (noted, expected) in [(NOW - 1, NOW), (NOW + 1, NOW + 1), (NOW, NOW + 1)] {
            server_time.note_token(token(noted), (0, 0));
            assert_eq!(floor(&server_time, 0), expected);
        }
    }

    // Each time above the counter sends the next acquire on a longer path.
    #[test]
    fn the_floor_takes_over_a_time_that_is_a_second_ahead_of_it() {
        let server_time = ServerTime::default();
        server_time.note_first(NOW, 0);
        server_time.note(NOW + STEP - 1, (0, 0));
        assert_eq!(floor(&server_time, 0), NOW);
        server_time.note(NOW + STEP, (0, 0));
        assert_eq!(floor(&server_time, 0), NOW + STEP);
    }

    #[test]
    fn the_floor_of_another_server_is_its_clock_and_all_that_was_seen_before() {
        let server_time = ServerTime::default();
        server_time.note_first(NOW, 0);
        server_time.note(NOW + 7, (0, 0));
        server_time.note_first(NOW + 3, 1);
        assert_eq!(server_time.floors(0, 1).floor_us, NOW + 7, "its clock is behind");
        assert_eq!(server_time.floors(0, 1).elsewhere_us, NOW + 7);
        server_time.note_first(NOW + 20, 2);
        assert_eq!(server_time.floors(0, 2).floor_us, NOW + 20);
        assert_eq!(server_time.floors(0, 2).elsewhere_us, NOW + 7);
    }

    #[test]
    fn a_second_connect_to_the_same_server_is_nothing_from_elsewhere() {
        let server_time = ServerTime::default();
        server_time.note_first(NOW, 0);
        server_time.note_first(NOW + 5, 0);
        assert_eq!(server_time.floors(0, 0), floors(NOW + 5, 0));
    }

    #[test]
    fn an_answer_of_the_first_server_that_is_read_late_is_elsewhere() {
        let server_time = ServerTime::default();
        server_time.note_first(NOW, 0);
        server_time.note_first(NOW, 1);
        server_time.note(NOW + 7, (0, 0));
        assert_eq!(server_time.floors(0, 1).elsewhere_us, NOW + 7);
        server_time.note_token(token(NOW + 9), (0, 0));
        assert_eq!(server_time.floors(0, 1), floors(NOW + 9, NOW + 9));
    }

    // L9: a clock that was years ahead raised all later tokens of the process.
    #[test]
    fn a_time_that_two_later_answers_contradict_by_a_day_is_forgotten() {
        let years = 4_000_000_000_000_000;
        let server_time = ServerTime::default();
        server_time.note_first(NOW, 0);
        server_time.note(years, (0, 0));
        server_time.note(NOW + 1, (0, 0));
        assert_eq!(floor(&server_time, 0), years, "one answer may itself be wrong");
        server_time.note(NOW + 2, (0, 0));
        assert_eq!(server_time.floors(0, 0), floors(NOW + 2, 0));
    }

    // On another thread: a thread that waits for itself would hang the test.
    #[test]
    fn a_subscriber_may_read_the_time_when_a_time_is_discarded() {
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            let server_time = Arc::new(ServerTime::default());
            let read = Arc::clone(&server_time);
            let subscriber = on_event(WRONG, move || {
                ended.send(read.now_us()).expect("the test waits");
            });
            tracing::dispatcher::with_default(&subscriber, || {
                server_time.note(2 * NOW, (0, 0));
                server_time.note(NOW, (0, 0));
                server_time.note(NOW, (0, 0));
            });
        });
        end.recv_timeout(Duration::from_secs(20)).expect("the subscriber hangs");
    }

    #[test]
    fn a_clock_that_is_less_than_a_day_behind_changes_nothing() {
        let server_time = ServerTime::default();
        server_time.note_first(2 * WRONG_BY, 0);
        for _ in 0..9 {
            server_time.note(WRONG_BY, (0, 0));
        }
        // Two replies too far behind, but not consecutive.
        for now in [WRONG_BY - 1, 2 * WRONG_BY, WRONG_BY - 1] {
            server_time.note(now, (0, 0));
        }
        assert_eq!(floor(&server_time, 0), 2 * WRONG_BY);
    }

    // Paused, because a microsecond between the two lines would make the token plausible.
    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_a_day_ahead_of_all_clocks_is_a_forged_one() {
        let server_time = ServerTime::default();
        server_time.note_first(NOW, 0);
        server_time.note_token(token(NOW + WRONG_BY + 1), (0, 0));
        assert_eq!(floor(&server_time, 0), NOW);
    }

    // Most replies lack the time: there may be none with it for days, while another process draws
    // numbers by the server's clock.
    #[tokio::test(start_paused = true)]
    async fn a_token_of_days_later_is_none_in_advance_although_no_answer_has_told_the_time() {
        let server_time = ServerTime::default();
        server_time.note_first(NOW, 0);
        tokio::time::advance(Duration::from_secs(2 * 24 * 60 * 60)).await;
        server_time.note_token(token(NOW + 2 * WRONG_BY), (0, 0));
        assert_eq!(floor(&server_time, 0), NOW + 2 * WRONG_BY);
        server_time.note_token(token(NOW + 3 * WRONG_BY + STEP), (0, 0));
        assert_eq!(floor(&server_time, 0), NOW + 2 * WRONG_BY);
    }

    #[test]
    fn each_slot_has_a_floor_of_its_own() {
        let server_time = ServerTime::default();
        server_time.note_first(NOW, 0);
        server_time.note_token(token(NOW + 9), (1, 0));
        server_time.note(NOW + STEP, (2, 0));
        let floors = [0, 1, 2].map(|slot| server_time.floors(slot, 0).floor_us);
        assert_eq!(floors, [NOW, NOW + 9, NOW + STEP]);
    }

    #[test]
    fn all_that_was_seen_of_a_slot_is_elsewhere_once_it_is_on_another_server() {
        let [before, now] = [(); 2].map(|()| ServerTime::default());
        before.note_first(NOW + 5, 0);
        now.note_first(NOW, 0);
        for (slot, seen) in [(1, NOW + 9), (2, NOW + 5), (3, NOW + 7)] {
            match slot {
                1 => before.note_token(token(seen), (slot, 0)),
                3 => before.note(seen, (slot, 0)),
                _ => {}
            }
            now.take_over(slot, &before);
            let TokenFloors { floor_us, elsewhere_us, .. } = now.floors(slot, 0);
            assert_eq!((floor_us, elsewhere_us), (seen, seen), "slot {slot}");
        }
        assert_eq!(now.floors(4, 0).floor_us, NOW);
    }

    #[test]
    fn the_floor_of_a_primary_has_the_tokens_of_all_and_the_times_of_none() {
        let seen = Arc::new(SeenTokens::default());
        let [one, other] = [(); 2].map(|()| ServerTime::of_quorum(Arc::clone(&seen)));
        one.note_first(NOW + 50, 0);
        other.note_first(NOW, 0);
        assert_eq!(floor(&other, 0), NOW);
        one.note_token(token(NOW + 9), (0, 0));
        assert_eq!(floor(&other, 0), NOW + 9);
        // A shared part depends only on the servers before this server.
        assert_eq!(other.floors(0, 0).elsewhere_us, 0);
        assert_eq!(floor(&ServerTime::default(), 0), 0);
    }

    // The counter of a primary begins with a clock that may have been days ahead.
    #[test]
    fn the_floor_of_a_primary_has_the_tokens_of_replies_that_are_days_ahead_but_not_of_messages() {
        let seen = Arc::new(SeenTokens::default());
        let [one, other] = [(); 2].map(|()| ServerTime::of_quorum(Arc::clone(&seen)));
        one.note_first(NOW, 0);
        other.note_first(NOW, 0);
        one.note_token(token(NOW + 3 * WRONG_BY), (0, 0));
        assert_eq!(floor(&other, 0), NOW, "a message may be forged");
        one.note_reply_token(token(NOW + 2 * WRONG_BY), (0, 0));
        assert_eq!(floor(&other, 0), NOW + 2 * WRONG_BY);
        one.note_reply_token(token(MOST_AHEAD), (0, 0));
        assert_eq!(floor(&other, 0), NOW + 2 * WRONG_BY, "few tokens are above a foreign number");
    }

    #[test]
    fn a_slot_that_was_taken_over_is_not_forgotten_with_the_server() {
        let [before, now, last] = [(); 3].map(|()| ServerTime::default());
        before.note_first(NOW, 0);
        before.note_token(token(NOW + 9), (1, 0));
        now.note_first(NOW + 1, 0);
        now.take_over(1, &before);
        now.note_first(NOW + 2, 1);
        assert_eq!(now.floors(1, 1).elsewhere_us, NOW + 9);
        last.note_first(NOW + 3, 0);
        last.take_over(1, &now);
        assert_eq!(last.floors(1, 0).floor_us, NOW + 9);
    }
}
