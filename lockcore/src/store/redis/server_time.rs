//! The tokens and times that this node has seen on servers. Each command carries them as its
//! *floor*, and no new token is below it: after a failover the new primary may neither know the
//! last tokens nor have a clock that has passed them.
//!
//! A token is the next number of the server's counter, so the server's clock is told only once in a
//! while, and a floor above the counter costs a longer way. So of the times, the floor takes over:
//! the server's own at each connect, before any command goes to it, so that it is above all that
//! the servers before it have issued; each that a server before has told; and of those that the
//! present server tells, each that is a second or more above the floor.
//!
//! A read shares a token that was issued before. So the scripts also get the latest token or time
//! that was seen on the servers before the present one, and share no token that is not above it:
//! such a token may be below that of a lock which the failover lost.
//!
//! A clock may have been wrong by years. A time that is more than a day ahead of two later answers
//! is forgotten, and so is a token in advance, which only a forged message tells.
//!
//! All of that is kept for each counter: in a Redis Cluster each slot has one. A floor by the
//! tokens of another slot would be above the counter of this one for ever, and each command would
//! go the longer way.
//!
//! The primaries of a quorum have a counter each, and the floor of each has the tokens of all.
//! Their clocks may differ: a time of one is none of another's.
//!
//! Leases end by the server's own clock alone. Were they held up with the tokens, time would stand
//! still for as long as that clock is behind, and a waiter that died would keep its place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::FencingToken;
use proto::wire::Floors;
use tokio::time::Instant;
use tracing::warn;

use crate::store::seen::SeenTokens;

/// A day in µs. Clocks that are kept at all differ by less.
const WRONG_BY: u64 = 24 * 60 * 60 * 1_000_000;
/// A second in µs.
const STEP: u64 = 1_000_000;
/// The bit of an epoch that is over.
const OVER: u64 = 1 << 63;

/// The times and tokens of all servers so far, by the counters of the tokens.
#[derive(Debug, Default)]
pub(crate) struct ServerTime {
    counters: Mutex<Counters>,
    /// The tokens of all primaries, where the server is one of a quorum.
    seen: Option<Arc<SeenTokens>>,
    /// The time at which the known epoch of a primary of a quorum began, µs since 1970, or 0. The
    /// bit [`OVER`] is set once the epoch is known to be over.
    epoch: AtomicU64,
}

#[derive(Debug, Default)]
struct Counters {
    /// As they begin for a counter of which nothing was seen yet.
    first: Times,
    /// The moment of the last connect.
    connected: Option<Instant>,
    /// Those of each slot; 0 is the slot of a server with one counter.
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
    /// The time that the floor has taken over.
    taken: u64,
    /// The latest time.
    latest: u64,
    /// The latest token and time of the servers before the present one.
    elsewhere: u64,
    /// The number of the present server.
    server: u64,
    /// Whether the answer before was a day behind the latest time.
    was_behind: bool,
}

impl Times {
    /// Notes that commands go to this server from now on.
    fn arrive(&mut self, server: u64) {
        if server > self.server {
            // Of a slot that was taken over, more may be known than any time of this server.
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
                "a server's clock was more than a day ahead: its time is forgotten, and tokens go by \
                 the present clock"
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
    /// That of a primary of a quorum, all of which note the tokens that they have seen there.
    pub(crate) fn of_quorum(seen: Arc<SeenTokens>) -> Self {
        Self { seen: Some(seen), ..Self::default() }
    }

    /// The floors of a command for a lock of this slot, to the server with this number.
    pub(crate) fn floors(&self, slot: u16, server: u64) -> Floors {
        let mut counters = self.counters();
        let times = counters.of(slot);
        times.arrive(server);
        let seen = self.seen.as_ref().map_or(0, |seen| seen.greatest());
        Floors {
            floor_us: times.taken.max(times.token).max(seen),
            elsewhere_us: times.elsewhere,
            latest_us: times.latest.max(times.token),
            epoch_us: self.epoch_us(),
        }
    }

    /// The beginning of the epoch that is known of a primary of a quorum, µs since 1970, or 0.
    pub(crate) fn epoch_us(&self) -> u64 {
        self.epoch.load(Ordering::Acquire) & !OVER
    }

    /// Notes the epoch that a primary of a quorum is in.
    pub(crate) fn begin_epoch(&self, epoch_us: u64) {
        self.epoch.store(epoch_us, Ordering::Release);
    }

    /// Notes that an epoch is over. Returns whether it was the known one, and not known to be over.
    pub(crate) fn end_epoch(&self, epoch_us: u64) -> bool {
        let over = epoch_us | OVER;
        let ended =
            self.epoch.compare_exchange(epoch_us, over, Ordering::AcqRel, Ordering::Acquire);
        epoch_us != 0 && ended.is_ok()
    }

    /// Remembers the time of the server with this number, to which nothing was sent yet.
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

    /// The locks of this slot were on a server of `other` until now, or an answer of that one came
    /// only now.
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

    /// The present time of the server, going by the last connect.
    pub(crate) fn now_us(&self) -> u64 {
        self.counters().now_us()
    }

    /// Remembers a time that the server with this number told of a lock in this slot.
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

    /// Remembers a token that the server with this number told of a lock in this slot.
    pub(crate) fn note_token(&self, token: FencingToken, (slot, server): (u16, u64)) {
        let mut counters = self.counters();
        // Answers may not tell the time for days.
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

    fn floors(floor_us: u64, elsewhere_us: u64) -> Floors {
        Floors { floor_us, elsewhere_us, latest_us: floor_us, epoch_us: 0 }
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

    // Each time above the counter costs the next acquire a longer way.
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

    // L9: a clock that was years ahead raised all tokens of the process until its end.
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
        // Two that are too far behind, but not one after the other.
        for now in [WRONG_BY - 1, 2 * WRONG_BY, WRONG_BY - 1] {
            server_time.note(now, (0, 0));
        }
        assert_eq!(floor(&server_time, 0), 2 * WRONG_BY);
    }

    // Paused, because a microsecond between the two lines would make the token a true one.
    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_a_day_ahead_of_all_clocks_is_a_forged_one() {
        let server_time = ServerTime::default();
        server_time.note_first(NOW, 0);
        server_time.note_token(token(NOW + WRONG_BY + 1), (0, 0));
        assert_eq!(floor(&server_time, 0), NOW);
    }

    // Most answers do not tell the time: none may for days, in which another process draws numbers
    // by the server's clock.
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
            let Floors { floor_us, elsewhere_us, .. } = now.floors(slot, 0);
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
        // A part that is shared goes by the servers before this one alone.
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
