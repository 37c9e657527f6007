//! The hottest names of a `Locks` in the last hours: the most refused names, and the names with the
//! longest waits. A survey shows only this moment, and metrics have no names.
//!
//! # Implementation notes
//!
//! - Only refusals, and finished queue waits of 10 ms or more, are recorded: a free lock costs
//!   nothing.
//! - The longest waits are exact: a name dropped from the list returns with its next longer wait.
//!   The most refusals are counted by the *Space-Saving* algorithm: a new name replaces the least
//!   refused name, and inherits the count.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::LockName;
use tokio::time::Instant;

/// The period for which refusals and waits are collected into one [`HotHour`].
const HOUR: Duration = Duration::from_secs(3_600);
/// The number of hours for which refusals and waits are kept, including the present hour.
const HOURS: u64 = 24;
/// The maximum number of refused names, and of names with long waits, shown for each hour.
const SHOWN: usize = 32;
/// The maximum number of names whose refusals are counted in the present hour. Once the hour is
/// over, only [`SHOWN`] names are kept.
const COUNTED: usize = 256;
/// The minimum duration of a recorded wait; shorter waits are ignored.
const SHORTEST: Duration = Duration::from_millis(10);
/// The minimum time between two warnings about full queues.
const MINUTE: Duration = Duration::from_secs(60);

/// The hottest names of a [`Locks`](crate::Locks) in one hour; made by
/// [`Locks::hottest`](crate::Locks::hottest).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HotHour {
    /// The time since the hour began. The latest hour may not be over.
    pub began: Duration,
    /// The most refused names, at most 32, most refused first.
    pub refused: Vec<RefusedLock>,
    /// The names with the longest waits, at most 32, longest first.
    pub waited: Vec<WaitedLock>,
}

/// A name with refused requests; part of [`HotHour`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedLock {
    /// The lock's name in the store, as in [`Activity::lock`](crate::operate::Activity::lock).
    /// `None` with [`redact_names`](crate::LocksBuilder::redact_names).
    pub lock: Option<String>,
    /// The number of refused requests for the name in this hour. If more than 256 names are refused
    /// in an hour, it may be too high, by up to 1/256 of all refusals.
    pub times: u64,
}

/// A name with a long wait; part of [`HotHour`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitedLock {
    /// The lock's name in the store, as in [`RefusedLock::lock`].
    pub lock: Option<String>,
    /// The longest wait for the name that ended in this hour: granted, timed out or cancelled.
    pub longest: Duration,
}

/// The statistics of [`Locks::hottest`](crate::Locks::hottest): refusals and longest waits by hour
/// and name, and the number of refusals by class. Shared by all clones of the `Locks`.
pub(crate) struct Heat {
    began: Instant,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// The hours with refusals or long waits, newest last, at most [`HOURS`].
    hours: VecDeque<Hour>,
    /// The number of refused requests for each class, since the creation of the [`Heat`].
    refused_by_class: BTreeMap<Arc<str>, u64>,
    full: Full,
}

#[derive(Debug)]
struct Hour {
    /// The number of whole hours from the creation of the [`Heat`] to the beginning of this hour.
    number: u64,
    /// The number of refused requests for each name in this hour.
    refused: Counts,
    /// The longest wait for each name in this hour, for at most [`SHOWN`] names.
    waited: HashMap<LockName, Duration>,
}

/// The refusals by full queues since the last warning about them. Such a warning is logged at most
/// once a minute.
#[derive(Debug, Default)]
struct Full {
    /// When the last warning was logged; `None` before the first warning.
    warned: Option<Instant>,
    /// The number of refusals of all names since the last warning.
    times: u64,
    /// The number of refusals of each name since the last warning.
    names: Counts,
}

/// The content of a warning about full queues.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FullQueues {
    /// The lock whose queue was full most often since the previous warning.
    pub(crate) lock: LockName,
    /// The number of refusals by the full queue of `lock` since the previous warning; may be too
    /// high if more than [`COUNTED`] queues were full.
    pub(crate) times: u64,
    /// The number of refusals by the full queues of all locks since the previous warning.
    pub(crate) all: u64,
    /// The time from the previous warning to this one; `None` for the first warning.
    pub(crate) within: Option<Duration>,
}

impl Heat {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refused request for its class, and for its name if the lock was busy. `cause` is
    /// the reason, such as `queue_full`; a cause such as `unavailable` is no sign of a busy lock.
    /// Returns the content of a warning if the queue was full and the last warning is at least a
    /// minute ago, and otherwise `None`.
    pub(crate) fn refused(
        &self,
        lock: &LockName,
        class: Arc<str>,
        cause: &str,
    ) -> Option<FullQueues> {
        let mut table = self.table();
        *table.refused_by_class.entry(class).or_default() += 1;
        // Outages make no name hot, because any name may be refused then.
        let is_hot =
            matches!(cause, "busy" | "timeout" | "queue_full" | "wait_too_long" | "superseded");
        if !is_hot {
            return None;
        }
        let now = Instant::now();
        table.hour(now.duration_since(self.began)).refused.add(lock);
        if cause == "queue_full" { table.full.add(lock, now) } else { None }
    }

    /// Records a wait that has ended, if it is at least [`SHORTEST`] and its name is among the
    /// [`SHOWN`] names with the longest waits in this hour.
    pub(crate) fn waited(&self, lock: &LockName, waited: Duration) {
        if waited < SHORTEST {
            return;
        }
        let mut table = self.table();
        let longest = &mut table.hour(self.began.elapsed()).waited;
        if let Some(longest) = longest.get_mut(lock) {
            *longest = waited.max(*longest);
            return;
        }
        if longest.len() >= SHOWN {
            let shortest = longest.iter().min_by_key(|(_, wait)| **wait);
            let Some((name, wait)) = shortest.map(|(name, wait)| (name.clone(), *wait)) else {
                return;
            };
            if wait >= waited {
                return;
            }
            longest.remove(&name);
        }
        longest.insert(lock.clone(), waited);
    }

    pub(crate) fn refused_by_class(&self) -> BTreeMap<Arc<str>, u64> {
        self.table().refused_by_class.clone()
    }

    pub(crate) fn hottest(&self, is_redacted: bool) -> Vec<HotHour> {
        let now = self.began.elapsed();
        let shown = |lock: &LockName| (!is_redacted).then(|| lock.as_str().to_owned());
        let mut table = self.table();
        table.forget(now);
        let show = |hour: &Hour| {
            let refused = hour.refused.most(SHOWN).into_iter();
            let mut waited: Vec<_> = hour.waited.iter().collect();
            waited.sort_by_key(|(lock, wait)| (Reverse(**wait), lock.as_str()));
            HotHour {
                began: now.saturating_sub(HOUR * u32::try_from(hour.number).unwrap_or(u32::MAX)),
                refused: refused
                    .map(|(lock, times)| RefusedLock { lock: shown(lock), times })
                    .collect(),
                waited: waited
                    .into_iter()
                    .map(|(lock, longest)| WaitedLock { lock: shown(lock), longest: *longest })
                    .collect(),
            }
        };
        table.hours.iter().rev().map(show).collect()
    }
}

impl Table {
    /// Returns the entry of the present hour, which is added if missing. `now` is the time since
    /// the creation of the [`Heat`].
    fn hour(&mut self, now: Duration) -> &mut Hour {
        let number = now.as_secs() / HOUR.as_secs();
        if self.hours.back().is_none_or(|last| last.number < number) {
            if let Some(last) = self.hours.back_mut() {
                last.refused.keep(SHOWN);
            }
            self.forget(now);
            let (refused, waited) = (Counts::default(), HashMap::new());
            self.hours.push_back(Hour { number, refused, waited });
        }
        self.hours.back_mut().expect("the entry exists or was added")
    }

    /// Drops the hours that began more than a day ago.
    fn forget(&mut self, now: Duration) {
        let number = now.as_secs() / HOUR.as_secs();
        self.hours.retain(|hour| hour.number + HOURS > number);
    }
}

impl Full {
    /// Counts a refusal by the full queue of this name. Returns the content of a warning, or `None`
    /// if the last warning is less than a minute ago.
    fn add(&mut self, lock: &LockName, now: Instant) -> Option<FullQueues> {
        self.times += 1;
        self.names.add(lock);
        let within = self.warned.map(|warned| now.duration_since(warned));
        if within.is_some_and(|within| within < MINUTE) {
            return None;
        }
        self.warned = Some(now);
        let (names, all) = (std::mem::take(&mut self.names), std::mem::take(&mut self.times));
        let (lock, times) = names.most(1).into_iter().next()?;
        Some(FullQueues { lock: lock.clone(), times, all, within })
    }
}

/// The number of refusals for each name, for at most [`COUNTED`] names.
#[derive(Debug, Default)]
struct Counts(HashMap<LockName, u64>);

impl Counts {
    /// Counts the name. A new name in a full table replaces the least counted name and continues
    /// from its count, so a count can be too high but never too low.
    fn add(&mut self, lock: &LockName) {
        let Self(counts) = self;
        if let Some(count) = counts.get_mut(lock) {
            *count += 1;
            return;
        }
        let mut before = 0;
        if counts.len() >= COUNTED {
            let least = counts.iter().min_by_key(|(_, count)| **count);
            if let Some((name, count)) = least.map(|(name, count)| (name.clone(), *count)) {
                counts.remove(&name);
                before = count;
            }
        }
        counts.insert(lock.clone(), before + 1);
    }

    /// Returns the `number` names with the highest counts, highest first.
    fn most(&self, number: usize) -> Vec<(&LockName, u64)> {
        let mut most: Vec<_> = self.0.iter().map(|(name, count)| (name, *count)).collect();
        most.sort_by_key(|(name, count)| (Reverse(*count), name.as_str()));
        most.truncate(number);
        most
    }

    /// Drops all but the `number` names with the highest counts.
    fn keep(&mut self, number: usize) {
        let kept = self.most(number).into_iter().map(|(name, count)| (name.clone(), count));
        *self = Self(kept.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(number: usize) -> LockName {
        LockName::from(&*format!("order:{number}"))
    }

    fn refuse(heat: &Heat, number: usize, cause: &str) -> Option<FullQueues> {
        heat.refused(&lock(number), "orders".into(), cause)
    }

    fn names(hour: &HotHour) -> Vec<&str> {
        hour.refused.iter().filter_map(|one| one.lock.as_deref()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_hottest_names_are_known_an_hour_later_and_forgotten_after_a_day() {
        let heat = Heat::new();
        refuse(&heat, 1, "timeout");
        refuse(&heat, 7, "busy");
        refuse(&heat, 7, "queue_full");
        tokio::time::advance(HOUR).await;
        refuse(&heat, 2, "superseded");
        let [now, before] = &*heat.hottest(false) else { panic!("two hours") };
        assert_eq!((names(now), names(before)), (vec!["order:2"], vec!["order:7", "order:1"]));
        assert_eq!((now.began, before.began), (Duration::ZERO, HOUR));
        assert_eq!(before.refused[0].times, 2);
        assert!(heat.hottest(true)[0].refused[0].lock.is_none(), "redacted");
        tokio::time::advance(23 * HOUR).await;
        assert_eq!(heat.hottest(false).len(), 1);
        tokio::time::advance(HOUR).await;
        assert_eq!(heat.hottest(false), []);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_makes_no_name_hot_and_counts_for_its_class() {
        let heat = Heat::new();
        refuse(&heat, 1, "unavailable");
        assert_eq!(heat.hottest(false), []);
        assert_eq!(heat.table().refused_by_class["orders"], 1);
    }

    #[tokio::test(start_paused = true)]
    async fn of_more_names_than_are_kept_the_hottest_stay() {
        let heat = Heat::new();
        for round in 0..100 {
            for number in 0..10 {
                refuse(&heat, number, "timeout");
            }
            for number in 0..50 {
                refuse(&heat, 1_000 + 50 * round + number, "timeout");
            }
        }
        let hour = &heat.hottest(false)[0];
        assert_eq!(hour.refused.len(), SHOWN);
        let mut hottest = names(hour)[..10].to_vec();
        hottest.sort_unstable();
        assert!(hottest.iter().enumerate().all(|(at, name)| *name == format!("order:{at}")));
        assert!(hour.refused[..10].iter().all(|one| (100..=124).contains(&one.times)), "{hour:?}");
        assert!(heat.table().hours[0].refused.0.len() <= COUNTED);

        for number in 0..1_000_usize {
            let wait = Duration::from_millis((number as u64 * 7_919) % 1_000);
            heat.waited(&lock(number), wait);
        }
        let waited: Vec<_> = heat.hottest(false)[0]
            .waited
            .iter()
            .map(|one| one.longest.as_millis() as usize)
            .collect();
        assert!(waited.iter().copied().eq((1_000 - SHOWN..1_000).rev()), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn full_queues_are_warned_of_at_once_and_then_once_a_minute() {
        let heat = Heat::new();
        let first = refuse(&heat, 1, "queue_full").expect("at once");
        assert_eq!((first.times, first.all, first.within), (1, 1, None));
        for number in [2, 2, 3] {
            assert_eq!(refuse(&heat, number, "queue_full"), None);
        }
        assert_eq!(refuse(&heat, 3, "timeout"), None);
        tokio::time::advance(MINUTE).await;
        assert_eq!(refuse(&heat, 3, "timeout"), None);
        let next = refuse(&heat, 2, "queue_full").expect("a minute is over");
        assert_eq!((next.lock, next.times, next.all), (lock(2), 3, 4));
        assert_eq!(next.within, Some(MINUTE));
    }
}
