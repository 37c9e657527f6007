//! Leases and claims: how long a hold is certain here, and when renewals and touches are due.

use std::time::Duration;

use crate::claim_ms;
use crate::node::moment::Moment;
use crate::terms::{Renewal, Terms};
use crate::token::FencingToken;

/// Maximum time between two touches of this node's waiters for a lock. These requests keep the
/// waiters alive on the server.
pub(super) const TOUCH_PERIOD: Duration = Duration::from_secs(4);

/// A hold's token and times. All times are by this node's clock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    pub token: FencingToken,
    /// When the hold began: when it was offered to the caller.
    pub(super) since: Moment,
    /// The time from which the deadline is counted: when the request was sent that last extended
    /// the lease, or, for a grant by message, [`Entry::anchor`](super::entry::Entry::anchor).
    pub(super) asked: Moment,
    /// The time until which the server certainly keeps the hold. It is earlier than the end of the
    /// lease there, because clocks drift.
    deadline: Moment,
    /// When the hold ends even if it is renewed, by the option `max_hold`; `None` without a limit.
    last: Option<Moment>,
    /// When the next renewal is due. `None` while a renewal is in flight, or if no renewal follows.
    pub(super) renew_at: Option<Moment>,
    /// True unless the last renewal failed.
    pub(super) is_answered: bool,
}

/// Returns the time until which the server certainly keeps a hold with a lease of length `left`,
/// counted from `anchor`. This is before the lease's end, because clocks tick at different rates.
pub(super) fn certain_until(anchor: Moment, left: Duration) -> Moment {
    anchor + left.saturating_sub(margin(left))
}

/// Returns how far two clocks may drift apart during `time`: a hundredth of it, but at least 5 ms.
pub(super) fn margin(time: Duration) -> Duration {
    (time / 100).max(Duration::from_millis(5))
}

/// Returns the claim: the short lease of a lock that is handed off, until the first renewal.
pub(super) fn claim(options: &Terms) -> Duration {
    Duration::from_millis(claim_ms(options.lease_ms()))
}

/// Returns the time between two touches of a waiter. If the message about a grant is lost, the
/// response to the next touch reports the grant, while most of the claim (the short lease of a lock
/// that is handed off) is left.
pub(super) fn touch_period(options: &Terms) -> Duration {
    TOUCH_PERIOD.min(claim(options) * 2 / 5)
}

/// Returns how much earlier than due a renewal may be sent, together with others that are due. This
/// is less than the random part in [`Lease::extend`]. Otherwise, leases renewed together would
/// always stay together.
pub(super) fn ahead(options: &Terms) -> Duration {
    options.lease / 100
}

/// Returns how long before the deadline guards are notified of the loss of a hold. All guards
/// should learn of it in time, even if there are many.
fn lead(options: &Terms) -> Duration {
    (options.lease / 100).clamp(Duration::from_millis(2), Duration::from_millis(100))
}

impl Lease {
    /// Creates the lease for a grant that lasts `left`, counted from the time `anchor`. The hold
    /// begins here at the time `now`.
    pub(super) fn granted(
        options: &Terms,
        token: FencingToken,
        now: Moment,
        anchor: Moment,
        left: Duration,
    ) -> Self {
        let deadline = certain_until(anchor, left);
        let rest = deadline.since(now);
        let is_full = left >= options.lease - options.lease / 10;
        // A claim is nearly a full lease if the lease is hardly longer than the shortest claim.
        let claim = claim_ms(options.lease_ms());
        let is_claim = claim < options.lease_ms() && left <= Duration::from_millis(claim);
        let renew_at = match options.renewal {
            // A full lease is renewed after a third, or after half of the remaining time if that is
            // sooner.
            Renewal::Watchdog if is_full => Some(now + (rest / 2).min(options.lease / 3)),
            // The lock was handed off with a claim, too short to outlive a failover. A hold that
            // ends before this needs no renewal.
            Renewal::Watchdog => Some(now + rest / 8),
            // The lock was handed off with a claim, so a single renewal extends the claim to the
            // full lease.
            Renewal::Fixed if !is_full || is_claim => Some(now),
            Renewal::Fixed => None,
        };
        let last = options.max_hold.map(|max_hold| now + max_hold);
        Self { token, since: now, asked: anchor, deadline, last, renew_at, is_answered: true }
    }

    /// Extends the lease to `left` after a renewal sent at `sent`. The next renewal is due after a
    /// third of the lease, minus up to a tenth of this time. The random number `chance`, from 0 to
    /// 1 000, selects how much, so that leases acquired together are soon renewed at different
    /// times.
    pub(super) fn extend(&mut self, options: &Terms, sent: Moment, left: Duration, chance: u32) {
        debug_assert!(chance <= 1_000, "a chance of {chance}");
        let third = options.lease / 3;
        self.deadline = self.deadline.max(certain_until(sent, left));
        self.asked = self.asked.max(sent);
        self.is_answered = true;
        self.renew_at = match options.renewal {
            Renewal::Watchdog => Some(sent + (third - third / 10_000 * chance)),
            Renewal::Fixed => None,
        };
    }

    /// Creates the lease of a batch member from `self`, the lease of the batch hold. It is extended
    /// only together with the hold, by [`copy_deadline`](Self::copy_deadline).
    pub(super) fn of_member(&self, token: FencingToken, now: Moment) -> Self {
        Self { token, since: now, renew_at: None, ..self.clone() }
    }

    /// Copies the deadline of the batch hold `hold` to the lease of a batch member, after a
    /// renewal.
    pub(super) fn copy_deadline(&mut self, hold: &Self) {
        self.deadline = self.deadline.max(hold.deadline);
        self.asked = hold.asked;
        self.is_answered = hold.is_answered;
    }

    /// Makes a renewal due at once, if the lease was requested before `doubted_before`, so that it
    /// may have ended unnoticed. Does nothing while a renewal is in flight, because the response
    /// repeats this check.
    pub(super) fn renew_if_doubted(&mut self, now: Moment, doubted_before: Moment) {
        if self.asked < doubted_before && self.renew_at.is_some() {
            self.renew_at = Some(now);
        }
    }

    /// Schedules the next renewal after a failed one.
    pub(super) fn retry(&mut self, now: Moment) {
        self.is_answered = false;
        let left = self.until().since(now);
        let pause = (left / 4).clamp(Duration::from_millis(20), Duration::from_secs(1));
        self.renew_at = Some(now + pause);
    }

    /// Returns the time until which the guard may rely on the hold.
    pub(super) fn until(&self) -> Moment {
        self.last.map_or(self.deadline, |last| last.min(self.deadline))
    }

    /// Returns when the guard must be notified of the loss, if nothing extends the lease until
    /// then. This is shortly before the deadline.
    pub(super) fn notice_at(&self, options: &Terms) -> Moment {
        self.until().before(lead(options))
    }

    /// Returns why the lease ends if nothing extends it, as text for logs.
    pub(super) fn end(&self, options: &Terms) -> &'static str {
        match self.last {
            Some(last) if last <= self.deadline => "max_hold reached",
            _ if options.renewal == Renewal::Fixed => "the fixed lease expired",
            _ => "the lease was not renewed in time",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_micros(1_000_000);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn token() -> FencingToken {
        FencingToken::try_from(7).expect("small")
    }

    #[test]
    fn a_lease_is_certain_for_a_hundredth_less_or_five_milliseconds() {
        assert_eq!(certain_until(START, ms(30_000)), START + ms(29_700));
        assert_eq!(certain_until(START, ms(100)), START + ms(95));
        assert_eq!(certain_until(START, ms(3)), START);
    }

    #[test]
    fn a_full_lease_is_renewed_after_a_third_and_a_claim_after_an_eighth() {
        let options = Terms::default();
        let full = Lease::granted(&options, token(), START, START, ms(30_000));
        assert_eq!(full.renew_at, Some(START + ms(10_000)));
        let claim = Lease::granted(&options, token(), START, START, ms(10_000));
        assert_eq!(claim.renew_at, Some(START + ms(9_900) / 8));
    }

    #[test]
    fn a_fixed_lease_is_renewed_once_and_only_if_it_came_as_a_claim() {
        let options = Terms { renewal: Renewal::Fixed, ..Terms::default() };
        assert_eq!(Lease::granted(&options, token(), START, START, ms(30_000)).renew_at, None);
        let mut claim = Lease::granted(&options, token(), START, START, ms(10_000));
        assert_eq!(claim.renew_at, Some(START));
        claim.extend(&options, START, ms(30_000), 0);
        assert_eq!((claim.renew_at, claim.until()), (None, START + ms(29_700)));
    }

    // From 2 s to 2.22 s, the claim of 2 s is more than nine tenths of the lease.
    #[test]
    fn a_fixed_lease_that_is_little_longer_than_its_claim_is_renewed_unless_it_came_whole() {
        let fixed = |lease| Terms { lease: ms(lease), renewal: Renewal::Fixed, ..Terms::default() };
        let renew_at =
            |lease, left| Lease::granted(&fixed(lease), token(), START, START, ms(left)).renew_at;
        assert_eq!(renew_at(2_200, 2_000), Some(START));
        assert_eq!(renew_at(2_200, 1_990), Some(START), "reported a little later");
        assert_eq!(renew_at(2_200, 2_200), None);
        assert_eq!(renew_at(2_000, 2_000), None, "the claim is the lease");
    }

    #[test]
    fn an_extension_never_shortens() {
        let options = Terms::default();
        let mut lease = Lease::granted(&options, token(), START, START, ms(30_000));
        lease.extend(&options, START, ms(10_000), 1_000);
        assert_eq!(lease.until(), START + ms(29_700));
        assert_eq!(lease.renew_at, Some(START + ms(9_000)), "a tenth earlier at most");
    }

    #[test]
    fn the_longest_hold_is_the_end_however_often_it_is_renewed() {
        let options = Terms { max_hold: Some(ms(40_000)), ..Terms::default() };
        let mut lease = Lease::granted(&options, token(), START, START, ms(30_000));
        lease.extend(&options, START + ms(20_000), ms(30_000), 0);
        assert_eq!(lease.until(), START + ms(40_000));
        assert_eq!(lease.end(&options), "max_hold reached");
    }

    #[test]
    fn guards_are_told_a_hundredth_of_the_lease_early_within_bounds() {
        let notice = |lease| {
            let options = Terms { lease, ..Terms::default() };
            let lease = Lease::granted(&options, token(), START, START, lease);
            lease.until().since(lease.notice_at(&options))
        };
        assert_eq!(notice(ms(100)), ms(2));
        assert_eq!(notice(ms(5_000)), ms(50));
        assert_eq!(notice(ms(60_000)), ms(100));
    }
}
