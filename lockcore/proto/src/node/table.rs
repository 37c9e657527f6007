//! The table: all entries, and the indices derived from them. Both are changed only here; other
//! files only read entries.

use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;
use std::time::Duration;

#[cfg(debug_assertions)]
use super::CHECKED;
use super::{Core, Counts};
use crate::member::Member;
use crate::member::ROUND_BITS;
use crate::name::LockName;
use crate::node::entry::{Class, Entry, IndexKeys, Mirror, State};
use crate::node::lane::{ByTime, Lane, Lanes, Traffic, move_in_time};
use crate::node::lease;
use crate::node::moment::Moment;

/// The number of locks for which the record of acquires keeps its memory while it is empty.
const KEPT: usize = 1_024;

/// A local queue: this node's waiters for a lock. A common request, the touch, keeps them alive on
/// the server and returns their state.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) numbers: BTreeSet<u64>,
    /// The longest time between two touches. It is computed at each touch, and a new waiter can
    /// only shorten it.
    pub(super) period: Duration,
    lane: u16,
    due: Moment,
    /// The time when all waiters were last touched by a common request.
    pub(super) touched: Moment,
    /// True if the next touch belongs to a recheck of all locks, after messages may have been
    /// missed. The touch after it then gets a larger random spread.
    pub(super) is_rechecked: bool,
}

/// An entry, with the keys under which it is indexed.
#[derive(Debug, Clone)]
pub(super) struct Indexed<P> {
    entry: Entry<P>,
    keys: IndexKeys,
}

impl<P> Deref for Indexed<P> {
    type Target = Entry<P>;

    fn deref(&self) -> &Entry<P> {
        &self.entry
    }
}

/// Which acquires for a lock are in flight or unsent: their number, and the first.
#[derive(Debug, Clone)]
struct AskedFor {
    count: usize,
    /// The member id of the attempt that came first. If its acquire took the fast path (without a
    /// script), the others wait for its response, and are listed in the fence of its entry.
    first: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Table<P> {
    /// The entries by member id. They are boxed, because the map moves its values.
    entries: BTreeMap<u64, Box<Indexed<P>>>,
    lines: BTreeMap<LockName, Line>,
    ends: ByTime,
    releases: ByTime,
    lanes: Vec<Lane>,
    /// The lane of each Cluster slot; `None` without a Cluster.
    lanes_by_slot: Option<Lanes>,
    /// The locks with acquires in flight or unsent. A hash map reuses its memory, so adding and
    /// removing a lock mostly allocates nothing. The memory of a burst is returned after it.
    asked_for: HashMap<LockName, AskedFor>,
    to_send: Vec<u64>,
    counts: Counts,
}

macro_rules! read_only {
    ($($field:ident: $type:ty)*) => {$(
        pub(super) fn $field(&self) -> &$type {
            &self.$field
        }
    )*};
}

impl<P: Mirror> Table<P> {
    pub(super) fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            lines: BTreeMap::new(),
            ends: BTreeSet::new(),
            releases: BTreeSet::new(),
            lanes: vec![Lane::default()],
            lanes_by_slot: None,
            asked_for: HashMap::new(),
            to_send: Vec::new(),
            counts: Counts::default(),
        }
    }

    read_only! {
        entries: BTreeMap<u64, Box<Indexed<P>>>
        lines: BTreeMap<LockName, Line>
        ends: ByTime
        releases: ByTime
        lanes: Vec<Lane>
        counts: Counts
    }

    pub(super) fn lane(&self, lane: u16) -> &Lane {
        &self.lanes[usize::from(lane)]
    }

    pub(super) fn traffic(&mut self, lane: u16) -> &mut Traffic {
        &mut self.lanes[usize::from(lane)].traffic
    }

    /// Returns the Cluster slot of a lock; 0 without a Cluster.
    pub(super) fn slot(&self, lock: &LockName) -> u16 {
        self.lanes_by_slot.as_ref().map_or(0, |_| lock.slot())
    }

    pub(super) fn lane_of(&self, lock: &LockName) -> u16 {
        self.lanes_by_slot.as_ref().map_or(0, |lanes| lanes[usize::from(lock.slot())])
    }

    /// Returns the lane of a Cluster slot; 0 without a Cluster.
    pub(super) fn lane_of_slot(&self, slot: u16) -> u16 {
        self.lanes_by_slot.as_ref().map_or(0, |lanes| lanes[usize::from(slot)])
    }

    /// Sets the lane of each Cluster slot, and moves every entry and queue to its new lane. Returns
    /// the previous lanes.
    pub(super) fn set_lanes(&mut self, lanes: Lanes) -> Option<Lanes> {
        let count = lanes.iter().max().map_or(1, |last| usize::from(*last) + 1);
        self.lanes.resize_with(self.lanes.len().max(count), Lane::default);
        let lane_of = |lock: &LockName| lanes[usize::from(lock.slot())];
        for (number, indexed) in &mut self.entries {
            let Indexed { entry, keys } = &mut **indexed;
            let lane = lane_of(&entry.lock);
            let before = std::mem::replace(&mut entry.lane, lane);
            if before != lane {
                self.lanes[usize::from(before)].reorder(*number, keys, &IndexKeys::default());
                self.lanes[usize::from(lane)].reorder(*number, &IndexKeys::default(), keys);
            }
        }
        for (lock, line) in &mut self.lines {
            let lane = lane_of(lock);
            let before = std::mem::replace(&mut line.lane, lane);
            if let Some(touch) =
                self.lanes[usize::from(before)].touches.take(&(line.due, lock.clone()))
            {
                self.lanes[usize::from(lane)].touches.insert(touch);
            }
        }
        self.lanes_by_slot.replace(lanes)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Entry<P>> {
        self.entries.get(&number).map(|indexed| &indexed.entry)
    }

    /// Records that this member's acquire got its response, so that no copy of this request is
    /// under way any more. Returns the member id; `None` if the member is not in the table.
    pub(super) fn answered(&mut self, member: &Member, now: Moment) -> Option<u64> {
        let Indexed { entry, .. } = &mut **self.entries.get_mut(&member.number())?;
        let is_this = entry.member == *member;
        // These fields can be changed directly, because no index depends on them.
        entry.may_hold &= !is_this;
        if is_this && entry.unanswered {
            entry.unanswered = false;
            entry.answered = Some(now);
        }
        is_this.then(|| member.number())
    }

    /// Returns the entry of a member that was granted the lock; `None` if it is not in the table.
    /// `by_its_answer` is true if the response to the acquire reports the grant. Otherwise the
    /// acquire may still be in flight, and this is recorded.
    pub(super) fn granted(&mut self, number: u64, by_its_answer: bool) -> Option<&Entry<P>> {
        let Indexed { entry, .. } = &mut **self.entries.get_mut(&number)?;
        entry.unanswered |= !by_its_answer && matches!(entry.state, State::Asking { .. });
        Some(entry)
    }

    /// Panics if counts, lanes and indices do not agree with the entries. Each index must contain
    /// all entries that belong in it, and have the right size. This method allocates nothing,
    /// because tests that count allocations run it, too.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self) {
        let Counts { failed, positions_lost, .. } = self.counts;
        let mut counts = Counts { failed, positions_lost, ..Counts::default() };
        let [mut ends, mut releases, mut renewals, mut leaves] = [0; 4];
        let [mut unsent, mut parked, mut asked_for, mut waiting] = [0; 4];
        let [mut fenced, mut behind] = [0; 2];
        for (number, indexed) in &self.entries {
            let Indexed { entry, keys } = &**indexed;
            let number = *number;
            let lane = self.lane(entry.lane);
            assert_eq!(entry.member.number(), number, "an entry under another number");
            assert_eq!(entry.lane, self.lane_of(&entry.lock), "{number} is in another lane");
            assert!(!entry.is_over(), "{number} is over but not removed");
            assert_eq!(*keys, entry.index_keys(), "{number} has changed outside of the table");
            let is_in = |set: &ByTime, at: Option<Moment>, name| {
                assert!(at.is_none_or(|at| set.contains(&(at, number))), "{number}: {name}");
                usize::from(at.is_some())
            };
            ends += is_in(&self.ends, keys.end, "the end is not indexed");
            releases += is_in(&self.releases, keys.release, "the release is not indexed");
            renewals += is_in(&lane.renewals, keys.renew, "the renewal is not indexed");
            leaves += is_in(&lane.leaves, keys.leave, "the leave is not indexed");
            assert_eq!(lane.unsent.contains(&number), keys.is_unsent, "{number} is unsent");
            assert_eq!(lane.parked.contains(&number), keys.is_parked, "{number} is backing off");
            unsent += usize::from(keys.is_unsent);
            parked += usize::from(keys.is_parked);
            asked_for += usize::from(keys.is_asked_for);
            let of_lock = self.asked_for.get(&entry.lock);
            assert!(of_lock.is_some() || !keys.is_asked_for, "{number} is not counted");
            let first = of_lock.and_then(|of| self.entries.get(&of.first));
            let fence = first.and_then(|first| first.fence.as_ref());
            let is_behind = fence.is_some_and(|fence| fence.contains(&number));
            assert_eq!(is_behind, keys.is_fenced, "{number} is fenced");
            assert!(fence.is_none() || !keys.is_unsent, "{number} passes the fence of the lock");
            let is_asking = matches!(entry.state, State::Asking { .. });
            assert!(is_asking || entry.fence.is_none(), "{number} keeps others behind a fence");
            fenced += entry.fence.as_ref().map_or(0, BTreeSet::len);
            behind += usize::from(keys.is_fenced);
            if keys.waits_in_line {
                waiting += 1;
                let line = self.lines.get(&entry.lock);
                let line = line.filter(|line| line.numbers.contains(&number));
                let longest = lease::touch_period(&entry.options);
                let is_touched = line.is_some_and(|line| line.period <= longest);
                assert!(is_touched, "{number} is in no queue, or is touched too rarely");
            }
            match keys.class {
                Some(Class::Attempt) => counts.attempts += 1,
                Some(Class::Hold) => counts.holds += 1,
                Some(Class::GivenBack) => counts.given_back += 1,
                None => {}
            }
        }
        assert_eq!(self.counts, counts, "the counts");
        assert_eq!([self.ends.len(), self.releases.len()], [ends, releases], "ends, releases");
        let in_lanes = |of: fn(&Lane) -> usize| self.lanes.iter().map(of).sum::<usize>();
        assert_eq!(in_lanes(|lane| lane.renewals.len()), renewals, "the renewals of lanes");
        assert_eq!(in_lanes(|lane| lane.leaves.len()), leaves, "the leaves of lanes");
        assert_eq!(in_lanes(|lane| lane.unsent.len()), unsent, "the unsent attempts of lanes");
        assert_eq!(in_lanes(|lane| lane.parked.len()), parked, "the backing-off attempts of lanes");
        assert_eq!(in_lanes(|lane| lane.touches.len()), self.lines.len(), "the touches of lanes");
        let acquires = self.asked_for.values().map(|of| of.count).sum::<usize>();
        assert_eq!(acquires, asked_for, "the acquires");
        assert_eq!(behind, fenced, "the fenced attempts");
        let is_small = self.entries.len() <= CHECKED;
        for (lock, AskedFor { count, .. }) in self.asked_for.iter().filter(|_| is_small) {
            let of_lock = self.entries.values().filter(|of| of.entry.lock == *lock);
            let asked = of_lock.filter(|of| of.keys.is_asked_for).count();
            assert_eq!((*count, *count > 0), (asked, true), "the acquires of {lock:?}");
        }
        for (lock, line) in &self.lines {
            assert!(!line.numbers.is_empty(), "the queue of {lock:?} is empty");
            assert_eq!(line.lane, self.lane_of(lock), "the queue of {lock:?} is in another lane");
            let touches = &self.lane(line.lane).touches;
            assert!(touches.contains(&(line.due, lock.clone())), "{lock:?} is not touched");
        }
        let in_lines: usize = self.lines.values().map(|line| line.numbers.len()).sum();
        assert_eq!(in_lines, waiting, "the queues");
    }

    pub(super) fn count_lost_position(&mut self) {
        self.counts.positions_lost += 1;
    }

    /// Counts a member whose release or leave the node stops repeating, although the server never
    /// acknowledged it.
    pub(super) fn count_failed(&mut self) {
        self.counts.failed += 1;
    }

    /// Records that all waiters of this node for `lock` were touched, and that `period` is now the
    /// longest time until the next touch.
    pub(super) fn touched(&mut self, lock: &LockName, now: Moment, period: Duration) {
        if let Some(line) = self.lines.get_mut(lock) {
            (line.touched, line.period) = (now, period);
            line.is_rechecked = false;
        }
    }

    /// Makes the touch of a lock's waiters due at once, as part of a recheck of all locks.
    pub(super) fn recheck(&mut self, lock: &LockName, now: Moment) {
        if let Some(line) = self.lines.get_mut(lock) {
            line.is_rechecked = true;
        }
        self.touch_by(lock, now);
    }

    /// Adds a new attempt. Returns true if the acquire must be sent now: this requires that `may`
    /// is true, and that no other acquire for the lock is in flight or unsent. If the other acquire
    /// took the fast path (without a script), the new attempt waits for its response, behind the
    /// fence.
    pub(super) fn begin(&mut self, number: u64, mut entry: Entry<P>, may: bool) -> bool {
        let AskedFor { count, first } = *self.count_asked_for(entry.lock.clone(), number);
        let is_next = count == 1 && may;
        if is_next {
            entry.state = State::Asking { error: None, poked: false };
        }
        entry.fence.take_if(|_| !is_next);
        // The fence can be changed directly, because no index depends on it.
        if count > 1
            && let Some(first) = self.entries.get_mut(&first)
            && let Some(fence) = &mut first.entry.fence
        {
            fence.insert(number);
            entry.is_fenced = true;
        }
        self.insert(number, entry);
        is_next
    }

    /// Returns true if the lock has exactly one acquire in flight or unsent.
    pub(super) fn is_asked_for_once(&self, lock: &LockName) -> bool {
        self.asked_for.get(lock).is_some_and(|of| of.count == 1)
    }

    /// Makes this attempt the first for the lock. `fence` is the set of attempts behind it if it
    /// takes the fast path (without a script), otherwise `None`. The lock must have no other
    /// acquire in flight or unsent.
    pub(super) fn set_first(&mut self, number: u64, fence: Option<BTreeSet<u64>>) {
        let Some(indexed) = self.entries.get_mut(&number) else { return };
        indexed.entry.fence = fence;
        if let Some(of_lock) = self.asked_for.get_mut(&indexed.entry.lock) {
            of_lock.first = number;
        }
    }

    /// Schedules the acquire of an unsent attempt for the end of this event, so that it does not
    /// wait for the next tick.
    pub(super) fn send_now(&mut self, number: u64) {
        self.to_send.push(number);
    }

    /// Returns true if acquires are to be sent with the effects of this event.
    pub(super) fn has_to_send(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Removes and returns the member ids whose acquires are to be sent with the effects of this
    /// event.
    pub(super) fn take_to_send(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.to_send)
    }

    /// Lets the attempts behind a fast acquire go on, because its response has arrived: they are
    /// sent with the effects of this event.
    fn pass(&mut self, behind: BTreeSet<u64>) {
        for number in behind {
            self.change(number, |entry| entry.is_fenced = false);
            self.send_now(number);
        }
    }

    /// Adds an entry, and indexes it. The acquire of a new attempt must have been counted before,
    /// by [`begin`](Self::begin).
    pub(super) fn insert(&mut self, number: u64, mut entry: Entry<P>) {
        entry.lane = self.lane_of(&entry.lock);
        let lane = entry.lane;
        let keys = entry.index_keys();
        entry.update_mirror();
        self.entries.insert(number, Box::new(Indexed { entry, keys }));
        self.reorder((number, lane), &IndexKeys::default(), &keys);
    }

    /// Changes an entry by the function `change`, and updates all indices. Every change that
    /// affects an index must use this method. Removes the entry if it is over. Returns the result
    /// of `change`; `None` if there is no such entry.
    pub(super) fn change<T>(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Entry<P>) -> T,
    ) -> Option<T> {
        let Indexed { entry, keys } = &mut **self.entries.get_mut(&number)?;
        let changed = change(entry);
        let is_asking = matches!(entry.state, State::Asking { .. });
        let fence = entry.fence.take_if(|_| !is_asking);
        entry.update_mirror();
        let after = entry.index_keys();
        let before = std::mem::replace(keys, after);
        let is_over = entry.is_over();
        let lane = entry.lane;
        if (before.is_asked_for, before.is_fenced) != (after.is_asked_for, after.is_fenced) {
            let lock = entry.lock.clone();
            self.recount(lock, number, &before, &after);
        }
        if before != after {
            self.reorder((number, lane), &before, &after);
        }
        if is_over {
            self.entries.remove(&number);
        }
        if let Some(behind) = fence.filter(|behind| !behind.is_empty()) {
            self.pass(behind);
        }
        Some(changed)
    }

    /// Updates the indices after an entry's keys have changed. For a new entry, `before` is the
    /// default.
    fn reorder(&mut self, (number, lane): (u64, u16), before: &IndexKeys, after: &IndexKeys) {
        move_in_time(&mut self.ends, number, before.end, after.end);
        move_in_time(&mut self.releases, number, before.release, after.release);
        self.lanes[usize::from(lane)].reorder(number, before, after);
        match (before.waits_in_line, after.waits_in_line) {
            (false, true) => self.line_up(number),
            (true, false) => self.step_out(number),
            _ => {}
        }
        for (class, by) in [(before.class, -1), (after.class, 1)] {
            let Some(class) = class else { continue };
            let count = match class {
                Class::Attempt => &mut self.counts.attempts,
                Class::Hold => &mut self.counts.holds,
                Class::GivenBack => &mut self.counts.given_back,
            };
            debug_assert!(count.checked_add_signed(by).is_some(), "{class:?} below zero");
            *count = count.saturating_add_signed(by);
        }
    }

    /// Updates the count of acquires for a lock after an entry has changed. Also takes an attempt
    /// out of the fence, the set of attempts behind a fast acquire.
    fn recount(&mut self, lock: LockName, number: u64, before: &IndexKeys, after: &IndexKeys) {
        if before.is_fenced
            && let Some(AskedFor { first, .. }) = self.asked_for.get(&lock)
            && let Some(first) = self.entries.get_mut(first)
            && let Some(fence) = &mut first.entry.fence
        {
            fence.remove(&number);
        }
        match (before.is_asked_for, after.is_asked_for) {
            (false, true) => {
                self.count_asked_for(lock, number);
            }
            (true, false) => self.discount_asked_for(lock),
            _ => {}
        }
    }

    /// Counts another acquire for the lock, in flight or unsent. Returns the changed record.
    fn count_asked_for(&mut self, lock: LockName, number: u64) -> &AskedFor {
        let first = AskedFor { count: 0, first: number };
        let of_lock = self.asked_for.entry(lock).or_insert(first);
        of_lock.count += 1;
        of_lock
    }

    /// Removes an acquire from the count for the lock.
    fn discount_asked_for(&mut self, lock: LockName) {
        match self.asked_for.entry(lock) {
            Place::Vacant(of_lock) => debug_assert!(false, "{:?} was not requested", of_lock.key()),
            Place::Occupied(last) if last.get().count == 1 => drop(last.remove()),
            Place::Occupied(mut of_lock) => of_lock.get_mut().count -= 1,
        }
        if self.asked_for.is_empty() {
            self.asked_for.shrink_to(KEPT);
        }
    }

    fn line_up(&mut self, number: u64) {
        let Some(entry) = self.get(number) else {
            debug_assert!(false, "{number} queues but is not in the table");
            return;
        };
        let (lock, lane) = (entry.lock.clone(), entry.lane);
        let period = lease::touch_period(&entry.options);
        let anchor = entry.anchor;
        if let Some(line) = self.lines.get_mut(&lock) {
            let is_new = line.numbers.insert(number);
            debug_assert!(is_new, "{number} was queued already");
            line.period = line.period.min(period);
            let due = anchor + line.period;
            return self.touch_by(&lock, due);
        }
        let due = anchor + period;
        let numbers = BTreeSet::from([number]);
        let line = Line { numbers, period, lane, due, touched: anchor, is_rechecked: false };
        self.lines.insert(lock.clone(), line);
        self.lanes[usize::from(lane)].touches.insert((due, lock));
    }

    fn step_out(&mut self, number: u64) {
        let Some(lock) = self.get(number).map(|entry| entry.lock.clone()) else {
            debug_assert!(false, "{number} leaves the queue but is not in the table");
            return;
        };
        let Some(line) = self.lines.get_mut(&lock) else {
            debug_assert!(false, "{number} leaves no queue");
            return;
        };
        let was_there = line.numbers.remove(&number);
        debug_assert!(was_there, "{number} leaves another queue");
        if line.numbers.is_empty() {
            let (due, lane) = (line.due, line.lane);
            self.lines.remove(&lock);
            let was_due = self.lanes[usize::from(lane)].touches.remove(&(due, lock));
            debug_assert!(was_due, "a queue without a touch");
        }
    }

    /// Makes the next touch of a lock's waiters due at `due` at the latest. Does nothing if no
    /// member of this node waits.
    pub(super) fn touch_by(&mut self, lock: &LockName, due: Moment) {
        if self.lines.get(lock).is_some_and(|line| due < line.due) {
            self.touch_at(lock, due);
        }
    }

    /// Returns when the waiters for a lock are touched; `None` if nobody waits for it here.
    pub(super) fn touch_due(&self, lock: &LockName) -> Option<Moment> {
        self.lines.get(lock).map(|line| line.due)
    }

    pub(super) fn touch_at(&mut self, lock: &LockName, due: Moment) {
        let Some(line) = self.lines.get_mut(lock) else { return };
        let before = std::mem::replace(&mut line.due, due);
        let touches = &mut self.lanes[usize::from(line.lane)].touches;
        let was_due = touches.remove(&(before, lock.clone()));
        debug_assert!(was_due, "the queue of {lock:?} without a touch");
        touches.insert((due, lock.clone()));
    }
}

impl<P: Mirror> Core<P> {
    /// Returns an attempt's current member id: the last of its ids in the table.
    pub(super) fn current(&self, attempt: u64) -> Option<u64> {
        let first = attempt << ROUND_BITS;
        let (last, _) = self.table.entries().range(..first + (1 << ROUND_BITS)).next_back()?;
        (*last >= first).then_some(*last)
    }

    /// Returns a member's id; `None` if another node created it.
    pub(super) fn number(&self, member: &Member) -> Option<u64> {
        member.is_of(&self.node).then(|| member.number())
    }

    /// Returns the id of a member; `None` if the table has no entry with this id, or has a member
    /// with other properties under it.
    pub(super) fn known(&self, member: &Member) -> Option<u64> {
        let number = self.number(member)?;
        self.table.get(number).is_some_and(|entry| entry.member == *member).then_some(number)
    }

    /// Returns a pseudo-random number from 0 to 1 000. It depends only on the seed, the member id
    /// and the event's time, and is always 0 if the seed is 0.
    pub(super) fn chance(&self, number: u64) -> u32 {
        if self.rules.seed == 0 {
            return 0;
        }
        let mut bits = self.rules.seed ^ number.rotate_left(32) ^ self.now.as_micros();
        for factor in [0xBF58_476D_1CE4_E5B9_u64, 0x94D0_49BB_1331_11EB] {
            bits = (bits ^ (bits >> 30)).wrapping_mul(factor);
        }
        ((bits ^ (bits >> 31)) % 1_001) as u32
    }
}
