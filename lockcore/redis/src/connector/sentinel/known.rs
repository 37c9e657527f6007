//! The newest Sentinel configuration that this process has seen, and whether it trusts the
//! sentinels.
//!
//! An isolated sentinel keeps naming the primary from an older configuration. A process that
//! returned to the old primary would act on outdated state. So no process ever returns to an older
//! configuration, whichever sentinels reply later.

use std::time::Duration;

use tokio::time::Instant;

use crate::sentinel_primary::Primary;

/// How long a majority of sentinels must name the same other primary until it is trusted, although
/// its configuration does not seem newer. Recreated sentinels number configurations from zero, so
/// even a newer configuration may seem older. Outdated sentinels catch up sooner than this once
/// they are connected.
const SET_UP_ANEW: Duration = Duration::from_secs(30);

/// The newest Sentinel configuration seen so far, and another configuration that replaces it if a
/// majority of sentinels reports it for [`SET_UP_ANEW`].
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The primary in the newest configuration; `None` before the first trusted reply.
    newest: Option<Primary>,
    /// The primary that a majority of sentinels names in a configuration that is not newer, and
    /// when they first did. `None` if there is no such majority.
    behind: Option<(Primary, Instant)>,
}

impl Known {
    /// Returns true if the configuration of `primary` is newer than all configurations seen so far.
    /// False if none has been seen yet.
    pub(super) fn is_older_than(&self, primary: &Primary) -> bool {
        self.newest.as_ref().is_some_and(|newest| newest.epoch < primary.epoch)
    }

    /// Returns true if the configuration of `primary` is older than the newest configuration seen
    /// so far. False if none has been seen yet.
    pub(super) fn is_newer_than(&self, primary: &Primary) -> bool {
        self.newest.as_ref().is_some_and(|newest| primary.epoch < newest.epoch)
    }

    /// Decides after a lookup which primary to trust, and remembers it. `answers` are the replies
    /// that have arrived, and `sentinels` is the number of all sentinels. Returns the primary in
    /// the newest configuration.
    ///
    /// # Errors
    /// No sentinel has replied; no majority has replied to the first lookup; or the replies name
    /// another primary, in the same or an older configuration that no majority has reported for
    /// [`SET_UP_ANEW`] yet. The text is the reason.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        answers: &[Primary],
        sentinels: usize,
    ) -> Result<Primary, String> {
        let of_each = format!("{} of {sentinels} sentinels replied", answers.len());
        let Some(found) = answers.iter().max_by_key(|primary| primary.epoch) else {
            return Err(of_each);
        };
        let is_majority = answers.len() >= majority(sentinels);
        let Some(newest) = &self.newest else {
            if !is_majority {
                // A single reply may come from an isolated sentinel.
                return Err(format!("{of_each}, the first lookup needs {}", majority(sentinels)));
            }
            return Ok(self.newest.insert(found.clone()).clone());
        };
        // Accept a newer configuration. Also accept an older configuration with the same primary,
        // because recreated sentinels number configurations from zero.
        if found.epoch > newest.epoch || found.is_at(newest) {
            self.behind = None;
            let epoch = found.epoch.max(newest.epoch);
            return Ok(self.newest.insert(Primary { epoch, ..found.clone() }).clone());
        }
        // The configuration has the same number if the sentinels were set up anew before the first
        // failover. Or a failover has ended between a sentinel's two replies: then the next lookup
        // sees a newer configuration.
        let naming = answers.iter().filter(|primary| primary.is_at(found)).count();
        if naming >= majority(sentinels) {
            let since = match &self.behind {
                Some((primary, since)) if primary == found => *since,
                _ => now,
            };
            if now - since >= SET_UP_ANEW {
                self.behind = None;
                return Ok(self.newest.insert(found.clone()).clone());
            }
            self.behind = Some((found.clone(), since));
        }
        Err(format!(
            "the sentinels that reply are outdated: they name {found} in configuration {}, but \
             {newest} belongs to configuration {}",
            found.epoch, newest.epoch
        ))
    }
}

/// Returns the minimum number of sentinels that is a majority.
pub(super) fn majority(sentinels: usize) -> usize {
    sentinels / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(host: &str, epoch: u64) -> Primary {
        Primary { host: host.to_owned(), port: 6379, epoch }
    }

    /// Returns the state after a lookup with these replies, and the time of the lookup.
    fn seen(answers: &[(&str, u64)]) -> (Known, Instant) {
        let mut known = Known::default();
        let now = Instant::now();
        judge(&mut known, now, answers).expect("believed");
        (known, now)
    }

    fn judge(known: &mut Known, now: Instant, answers: &[(&str, u64)]) -> Result<String, String> {
        let answers: Vec<_> = answers.iter().map(|(host, epoch)| primary(host, *epoch)).collect();
        known.judge(now, &answers, 3).map(|primary| primary.host)
    }

    #[test]
    fn a_first_look_believes_a_majority_and_its_newest_configuration() {
        let mut known = Known::default();
        let now = Instant::now();
        let refused = judge(&mut known, now, &[("old", 1)]).expect_err("alone");
        assert_eq!(refused, "1 of 3 sentinels replied, the first lookup needs 2");
        assert_eq!(judge(&mut known, now, &[("old", 1), ("new", 2)]).as_deref(), Ok("new"));
        let mut alone = Known::default();
        assert_eq!(
            alone.judge(now, &[primary("one", 1)], 1).map(|primary| primary.host).as_deref(),
            Ok("one")
        );
    }

    // H3.
    #[test]
    fn no_node_goes_back_to_an_older_configuration_whoever_answers() {
        let (mut known, now) = seen(&[("new", 2), ("new", 2)]);
        for answers in [&[("old", 1)][..], &[("old", 1), ("old", 1)]] {
            let refused = judge(&mut known, now, answers).expect_err("older");
            assert!(refused.starts_with("the sentinels that reply are outdated"), "{refused}");
        }
        assert_eq!(judge(&mut known, now, &[("new", 2)]).as_deref(), Ok("new"), "one is enough");
        assert_eq!(judge(&mut known, now, &[("old", 1), ("newer", 3)]).as_deref(), Ok("newer"));
        assert!(judge(&mut known, now, &[("new", 2), ("new", 2)]).is_err());
    }

    #[test]
    fn sentinels_that_were_set_up_anew_are_believed_once_a_majority_has_said_so_for_long() {
        let (mut known, now) = seen(&[("one", 7), ("one", 7)]);
        let other = [("other", 0), ("other", 0)];
        assert!(judge(&mut known, now, &other).is_err());
        let later = now + SET_UP_ANEW;
        // A sentinel that was not reset contradicts, or there is only one: start over.
        assert!(judge(&mut known, later, &other[..1]).is_err());
        assert_eq!(judge(&mut known, later, &[("other", 0), ("one", 7)]).as_deref(), Ok("one"));
        assert!(judge(&mut known, later, &other).is_err());
        assert!(judge(&mut known, later + SET_UP_ANEW / 2, &other).is_err());
        assert_eq!(judge(&mut known, later + SET_UP_ANEW, &other).as_deref(), Ok("other"));
        assert_eq!(judge(&mut known, later + SET_UP_ANEW, &other[..1]).as_deref(), Ok("other"));
    }

    #[test]
    fn a_primary_that_stays_is_believed_whatever_its_configuration_is_called() {
        let (mut known, now) = seen(&[("one", 7), ("one", 7)]);
        assert_eq!(judge(&mut known, now, &[("one", 0)]).as_deref(), Ok("one"));
        assert!(judge(&mut known, now, &[("other", 6), ("other", 6)]).is_err(), "7 is remembered");
    }

    #[test]
    fn another_primary_in_the_same_configuration_is_believed_after_as_long() {
        for epoch in [0, 7] {
            let (mut known, now) = seen(&[("one", epoch), ("one", epoch)]);
            let other = [("other", epoch), ("other", epoch)];
            assert!(judge(&mut known, now, &other).is_err(), "a failover may just have ended");
            assert!(judge(&mut known, now + SET_UP_ANEW / 2, &other).is_err());
            assert_eq!(judge(&mut known, now + SET_UP_ANEW, &other).as_deref(), Ok("other"));
            assert_eq!(judge(&mut known, now, &[("one", epoch + 1)]).as_deref(), Ok("one"));
        }
    }

    #[test]
    fn outdated_sentinels_that_name_different_primaries_are_no_majority() {
        let (mut known, now) = seen(&[("one", 7), ("one", 7)]);
        for later in [now, now + SET_UP_ANEW, now + 2 * SET_UP_ANEW] {
            assert!(judge(&mut known, later, &[("old", 4), ("older", 3)]).is_err());
        }
    }
}
