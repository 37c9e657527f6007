//! `Turns`: the turns recorded by programs, and the resulting figures.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The longest latency from a task to the server: a task that requested less than this earlier may
/// be served later.
const ARRIVAL_NS: u64 = 1_000_000;
/// The longest time between two grants of the same script: sixty tasks in four processes must wake
/// up.
const TOGETHER_NS: u64 = 1_000_000;

/// A turn; 0 represents an event that did not happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The index of the task among all tasks of all processes.
    pub(crate) task: usize,
    /// The line in the key file.
    pub(crate) key: usize,
    pub(crate) asked: u64,
    pub(crate) granted: u64,
    pub(crate) giving: u64,
    pub(crate) given: u64,
}

#[derive(Debug)]
pub(crate) struct Turns {
    all: Vec<Turn>,
    tasks: usize,
    /// Whether a wait may end before its grant.
    gives_up: bool,
    /// The time within which grants count as simultaneous.
    together: u64,
    from: u64,
    until: u64,
}

impl Turns {
    /// Creates the turns of `tasks` tasks; only events between `from` and `until` count.
    pub(crate) fn new(tasks: usize, gives_up: bool, from: u64, until: u64) -> Self {
        Self { all: Vec::new(), tasks, gives_up, together: 0, from, until }
    }

    /// Creates the turns of `tasks` tasks that never give up.
    pub(crate) fn of(all: Vec<Turn>, tasks: usize, from: u64, until: u64) -> Self {
        Self { all, ..Self::new(tasks, false, from, until) }
    }

    /// Allows several holders at a time: a script grants to many, which notice in any order.
    pub(crate) fn shared(self) -> Self {
        Self { together: TOGETHER_NS, ..self }
    }

    /// Adds the turns recorded by a process; `key` returns the key of its task's turn.
    pub(crate) fn read(
        &mut self,
        path: &Path,
        first_task: usize,
        key: impl Fn(usize, usize) -> usize,
    ) -> Result<(), String> {
        let text = fs::read_to_string(path).map_err(|error| format!("no records: {error}"))?;
        let mut turns = BTreeMap::<usize, usize>::new();
        for line in text.lines() {
            let mut numbers = line.split(' ').map(|number| number.parse::<u64>());
            let mut next = || numbers.next()?.ok();
            let turn = (|| Some((next()?, next()?, next()?, next()?, next()?)))();
            let (task, asked, granted, giving, given) =
                turn.ok_or_else(|| format!("not a turn: {line}"))?;
            let number = turns.entry(task as usize).or_default();
            let key = key(task as usize, *number);
            *number += 1;
            let task = first_task + task as usize;
            self.all.push(Turn { task, key, asked, granted, giving, given });
        }
        Ok(())
    }

    /// The turns that ended within the counted time.
    fn ended(&self) -> impl Iterator<Item = &Turn> {
        self.all.iter().filter(|turn| (self.from..self.until).contains(&turn.given))
    }

    /// The number of turns that began, including before and after the counted time.
    pub(crate) fn total(&self) -> usize {
        self.all.len()
    }

    /// The number of turns that ended.
    pub(crate) fn count(&self) -> usize {
        self.ended().count()
    }

    /// The number of turns that gave up.
    pub(crate) fn given_up(&self) -> usize {
        let within = self.from..self.until;
        self.all.iter().filter(|turn| turn.granted == 0 && within.contains(&turn.asked)).count()
    }

    pub(crate) fn seconds(&self) -> f64 {
        (self.until - self.from) as f64 / 1e9
    }

    /// The duration of acquire and release, without the hold in between, µs.
    pub(crate) fn pairs_us(&self) -> Vec<f64> {
        self.ended()
            .map(|turn| (turn.granted - turn.asked + turn.given - turn.giving) as f64 / 1e3)
            .collect()
    }

    /// The times from the request to the grant, µs.
    pub(crate) fn waits_us(&self) -> Vec<f64> {
        self.ended().map(|turn| (turn.granted - turn.asked) as f64 / 1e3).collect()
    }

    /// The longest wait, including unfinished waits, ms.
    pub(crate) fn longest_ms(&self) -> f64 {
        let waits = self.all.iter().map(|turn| match turn.granted {
            0 => self.until.saturating_sub(turn.asked),
            granted => granted - turn.asked,
        });
        waits.max().unwrap_or(0) as f64 / 1e6
    }

    /// The number of tasks without a finished turn.
    pub(crate) fn without_turn(&self) -> usize {
        self.tasks - self.ended().map(|turn| turn.task).collect::<BTreeSet<_>>().len()
    }

    /// The share of turns granted while no earlier request waited for the lock, %.
    pub(crate) fn in_order(&self) -> f64 {
        let mut keys = BTreeMap::<usize, Vec<&Turn>>::new();
        for turn in &self.all {
            keys.entry(turn.key).or_default().push(turn);
        }
        let mut ordered = 0_usize;
        let mut granted = 0_usize;
        for turns in keys.values() {
            let grants = self.grants_in_order(turns);
            ordered += grants.iter().filter(|in_order| **in_order).count();
            granted += grants.len();
        }
        if granted == 0 { f64::NAN } else { 100.0 * ordered as f64 / granted as f64 }
    }

    /// Returns for each grant of a lock whether no earlier request waited.
    fn grants_in_order(&self, turns: &[&Turn]) -> Vec<bool> {
        // A task that requests at the time of a grant waits at that time: requests come first.
        let mut events = Vec::new();
        for (number, turn) in turns.iter().enumerate() {
            events.push((turn.asked, 0, number));
            if turn.granted != 0 {
                events.push((turn.granted, 1, number));
            }
        }
        events.sort_unstable();
        let mut waiting = BTreeSet::new();
        let mut grants = Vec::new();
        for (at, is_grant, number) in events {
            let asked = turns[number].asked;
            // It is unknown when a task gave up: its turn is left out. Without giving up, it waits
            // until the end.
            if is_grant == 0 && (turns[number].granted != 0 || !self.gives_up) {
                waiting.insert((asked, number));
            } else if is_grant == 1 {
                waiting.remove(&(asked, number));
                let is_left = |number: usize| {
                    let granted = turns[number].granted;
                    granted == 0 || granted > at + self.together
                };
                let earliest = waiting.iter().find(|(_, number)| is_left(*number));
                let earliest = earliest.map_or(u64::MAX, |(earliest, _)| *earliest);
                grants.push(earliest.saturating_add(ARRIVAL_NS) >= asked);
            }
        }
        grants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(times: &[(u64, u64)]) -> Turns {
        let mut turns = Turns::new(3, false, 1, 100_000_000);
        turns.all = times
            .iter()
            .enumerate()
            .map(|(task, (asked, granted))| Turn {
                task,
                key: 0,
                asked: asked * 1_000_000,
                granted: granted * 1_000_000,
                giving: granted * 1_000_000,
                given: granted * 1_000_000,
            })
            .collect();
        turns
    }

    #[test]
    fn a_grant_is_out_of_order_if_somebody_waits_who_asked_much_earlier() {
        assert_eq!(turns(&[(1, 10), (5, 20), (9, 30)]).in_order(), 100.0);
        // The second overtakes the first; the third came later than both.
        assert_eq!(turns(&[(1, 20), (5, 10), (9, 30)]).in_order(), 200.0 / 3.0);
        // The second overtakes a task that is never served.
        assert_eq!(turns(&[(1, 0), (5, 10)]).in_order(), 0.0);
        // A millisecond apart, the two may have arrived in reverse order.
        assert_eq!(turns(&[(4, 20), (5, 10), (9, 30)]).in_order(), 100.0);
    }

    #[test]
    fn who_gets_a_shared_lock_a_moment_later_got_it_together() {
        assert_eq!(turns(&[(1, 11), (5, 10)]).in_order(), 50.0);
        assert_eq!(turns(&[(1, 11), (5, 10)]).shared().in_order(), 100.0);
        assert_eq!(turns(&[(1, 12), (5, 10)]).shared().in_order(), 50.0);
        assert_eq!(turns(&[(1, 0), (5, 10)]).shared().in_order(), 0.0);
    }

    #[test]
    fn a_wait_without_end_counts_as_long_as_it_was_looked_at() {
        let turns = turns(&[(1, 10), (40, 0)]);
        assert_eq!(turns.longest_ms(), 60.0);
        assert_eq!((turns.count(), turns.without_turn()), (1, 2));
    }
}
