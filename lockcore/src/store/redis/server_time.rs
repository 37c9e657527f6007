//! The token floor: the tokens and times received by this node from servers. Each
//! command carries it, and every new token is above it: after a failover the new primary may
//! neither have the last tokens nor a clock that is ahead of them.
//!
//! A token is the next number of the server's counter, so replies rarely contain the server's time,
//! and a token floor above the counter requires a longer path. So only some times raise the token
//! floor: the server's own at each connect, before any command is sent there, so that it is above
//! everything issued by previous servers; each time received from a previous server; and each time
//! received from the present server that is a second or more above the token floor.
//!
//! A read shares a token issued earlier. So the scripts also receive the latest token or time seen
//! on previous servers (`elsewhere`), and share a token only if it is above: a lower token may be
//! below the token of a lock lost by the failover.
//!
//! A clock may have been wrong by years. A time more than a day ahead of two later replies is
//! discarded, and so is a token in advance of all clocks, which only a forged message contains.
//!
//! All of this is kept per counter: in a Redis Cluster each slot has a counter. A token floor from
//! another slot's tokens would stay above this slot's counter for ever, and each command would take
//! the longer path.
//!
//! Each quorum primary has a counter, and its token floor includes the tokens of all primaries.
//! Primaries' clocks may differ, so a primary's times do not apply to another.
//!
//! Leases end by the server's own clock only. If they followed the tokens, time would stand still
//! until the clock catches up, and a dead waiter would keep its position.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::FencingToken;
use proto::wire::TokenFloors;
use tokio::time::Instant;
use tracing::warn;

use crate::store::seen::SeenTokens;

/// A day in µs. Maintained clocks differ by less.
const WRONG_BY: u64 = 24 * 60 * 60 * 1_000_000;
/// A second in µs.
const STEP: u64 = 1_000_000;
/// Set in the epoch once it has ended.
const OVER: u64 = 1 << 63;

/// The times and tokens of all servers so far, per token counter.
#[derive(Debug, Default)]
pub(crate) struct ServerTime {
    counters: Mutex<Counters>,
    /// The tokens of all primaries, if the server is a quorum primary.
    seen: Option<Arc<SeenTokens>>,
    /// When the known epoch of a quorum primary began, µs since 1970, or 0. The bit [`OVER`] is set
    /// once the epoch is known to have ended.
    epoch: AtomicU64,
}

#[derive(Debug, Default)]
struct Counters {
    /// The initial values for a counter without any reply yet.
    first: Times,
    /// When the node last connected.
    connected: Option<Instant>,
    /// By slot; a server with a single counter has slot 0.
    by_slot: BTreeMap<u16, Times>,
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

#[derive(Debug, Default, Clone, Copy)]
struct Times {
    /// The greatest token.
    token: u64,
    /// The greatest time that has raised the token floor.
    taken: u64,
    /// The latest time.
    latest: u64,
    /// The latest token or time from previous servers.
    elsewhere: u64,
    /// The present server's number.
    server: u64,
    /// Whether the previous reply was a day behind the latest time.
    was_behind: bool,
}

impl Times {
    /// Notes that commands are sent to this server from now on.
    fn arrive(&mut self, server: u64) {
        if server > self.server {
            // For a slot that was taken over, this may be above any time of this server.
            self.elsewhere = self.elsewhere.max(self.latest).max(self.token);
            self.taken = self.taken.max(self.latest);
            self.server = server;
        }
    }

    fn tick(&mut self, now_us: u64) {
        let is_behind = now_us.saturating_add(WRONG_BY) < self.latest;
        if is_behind && self.was_behind {
            warn!(
                wrong_us = self.latest,
                now_us,
                "a server's clock was more than a day ahead: its time is discarded, and tokens \
                 follow the current clock"
            );
            self.latest = now_us;
            self.taken = self.taken.min(now_us);
            self.elsewhere = self.elsewhere.min(now_us);
        }
        self.was_behind = is_behind && self.latest > now_us;
        self.latest = self.latest.max(now_us);
        if now_us >= self.taken.max(self.token).saturating_add(STEP) {
            self.taken = now_us;
        }
    }
}

impl ServerTime {
    /// The times of a quorum primary, which share the tokens `seen` on all primaries.
    pub(crate) fn of_quorum(seen: Arc<SeenTokens>) -> Self {
        Self { seen: Some(seen), ..Self::default() }
    }

    /// The token floors for a lock in this slot, on the server with this number.
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

    /// When the known epoch of a quorum primary began, µs since 1970, or 0.
    pub(crate) fn epoch_us(&self) -> u64 {
        self.epoch.load(Ordering::Acquire) & !OVER
    }

    /// Records a quorum primary's present epoch.
    pub(crate) fn begin_epoch(&self, epoch_us: u64) {
        self.epoch.store(epoch_us, Ordering::Release);
    }

    /// Records that an epoch has ended. Returns whether it was the known epoch, and not yet known
    /// to have ended.
    pub(crate) fn end_epoch(&self, epoch_us: u64) -> bool {
        let over = epoch_us | OVER;
        let ended =
            self.epoch.compare_exchange(epoch_us, over, Ordering::AcqRel, Ordering::Acquire);
        epoch_us != 0 && ended.is_ok()
    }

    /// Records the time on the server with this number, before anything is sent there.
    pub(crate) fn note_first(&self, now_us: u64, server: u64) {
        let mut counters = self.counters();
        counters.connected = Some(Instant::now());
        let Counters { first, by_slot, .. } = &mut *counters;
        for times in by_slot.values_mut().chain([first]) {
            times.arrive(server);
            times.tick(now_us);
            times.taken = times.taken.max(now_us);
        }
    }

    /// Raises the token floor of a slot above everything seen on `other`, the primary that
    /// served the slot before. Called when the slot moves, and again for each late reply.
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

    /// The server's current time, estimated since the last connect.
    pub(crate) fn now_us(&self) -> u64 {
        self.counters().now_us()
    }

    /// Records a time received from the server with this number, for a lock in this slot.
    pub(crate) fn note(&self, now_us: u64, (slot, server): (u16, u64)) {
        let mut counters = self.counters();
        let times = counters.of(slot);
        times.tick(now_us);
        // An answer may be read after the next server was found.
        if server < times.server {
            times.elsewhere = times.elsewhere.max(now_us);
            times.taken = times.taken.max(now_us);
        }
    }

    /// Records a token received from the server with this number, for a lock in this slot.
    pub(crate) fn note_token(&self, token: FencingToken, (slot, server): (u16, u64)) {
        let mut counters = self.counters();
        // Replies may lack the time for days.
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

    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for (told, expected) in [(NOW - 1, NOW), (NOW + 1, NOW + 1), (NOW, NOW + 1)] {
            server_time.note_token(token(told), (0, 0));
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
