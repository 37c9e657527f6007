//! The members reported gone by the server's latest replies.
//!
//! Different tasks process replies, so two replies may change places. A reply older than a hold's
//! release may still report that hold, which must not be released again. Only the release itself
//! shows this: the server's clock may be set between two replies.
//!
//! A server that takes over may not know that the members are gone: a primary acknowledges a
//! release or a leave before replicating it. On the new server such a member waits or holds, and no
//! process would use the grant. So each member released during a possible replica lag leaves once
//! more there, but only once: if yet another server takes over right then, the hold ends with the
//! lease, and the queue position with a claim.

use std::collections::VecDeque;

use super::Core;
use super::lane::{Lane, Lanes};
use crate::member::Member;
use crate::name::LockName;
use crate::node::entry::Mirror;
use crate::node::moment::Moment;
use crate::node::recent_release::RecentRelease;

/// Maximum number of remembered releases: about two megabytes. Beyond it the oldest are dropped: a
/// server that takes over may then keep their locks for a claim or the rest of a lease.
const REMEMBERED: usize = 16_384;
/// How many of the latest releases are searched when a reply may be older than a release. If more
/// releases are answered while a reply waits to be processed, a superfluous leave is sent and finds
/// nothing.
const LOOKED_THROUGH: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct RecentReleases {
    /// All remembered releases, in the order of arrival.
    last: VecDeque<RecentRelease>,
    /// Number of releases, from the end of the list, that in-flight requests may not have seen:
    /// their replies may still report these holds.
    recent: usize,
}

impl RecentReleases {
    fn remember(&mut self, release: RecentRelease) {
        let now = release.heard;
        let is_too_many = self.last.len() == REMEMBERED;
        if is_too_many || self.last.front().is_some_and(|first| !first.may_be_known(now)) {
            self.last.pop_front();
        }
        self.last.push_back(release);
        self.recent = LOOKED_THROUGH.min(self.recent + 1);
    }

    /// Asserts the bounds.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self) {
        assert!(self.last.len() <= REMEMBERED, "{} are remembered", self.last.len());
        assert!(self.recent <= LOOKED_THROUGH, "{} are looked through", self.recent);
    }

    /// Handles a new connection: no older reply is in flight.
    pub(super) fn reconnected(&mut self) {
        self.recent = 0;
    }

    fn recent(&self) -> impl Iterator<Item = &RecentRelease> {
        self.last.iter().rev().take(self.recent)
    }

    /// Returns the searched releases' member ids, and when this node learned of each release.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Moment)> {
        self.recent().map(|release| (release.number, release.heard))
    }

    /// Returns whether the reply to a request sent at `sent` may be older than the member's
    /// release.
    pub(super) fn since(&self, number: u64, sent: Moment) -> bool {
        self.recent().any(|release| release.number == number && sent <= release.heard)
    }
}

impl<P: Mirror> Core<P> {
    /// Remembers a member as gone.
    pub(super) fn remember_release(
        &mut self,
        number: Option<u64>,
        lock: &LockName,
        member: &Member,
    ) {
        if let Some(number) = number {
            let lock = lock.clone();
            let member = member.clone();
            self.recent_releases.remember(RecentRelease { number, heard: self.now, lock, member });
        }
    }

    /// Records a switch to another server: all commands go there from now on.
    pub fn moved(&mut self) {
        for release in std::mem::take(&mut self.recent_releases.last) {
            self.leave_later(release);
        }
    }

    /// Records each slot's lane from now on. The locks of a moved slot take all scheduled work
    /// along, and their recently released members leave once more on the new server.
    pub fn set_lanes(&mut self, lanes: Lanes) {
        let before = self.table.set_lanes(lanes);
        for lane in 0..self.table.lanes().len() as u16 {
            for release in std::mem::take(&mut self.table.traffic(lane).again) {
                self.leave_later(release);
            }
            let (is_up, now) = (self.is_up(), self.now);
            let is_parked = !self.table.lane(lane).parked.is_empty();
            let traffic = self.table.traffic(lane);
            traffic.retry_at = traffic.retry_at.or(Some(now).filter(|_| is_up && is_parked));
        }
        for release in std::mem::take(&mut self.recent_releases.last) {
            let slot = usize::from(release.lock.slot());
            let was_in = before.as_ref().map_or(0, |lanes| lanes[slot]);
            match was_in == self.table.lane_of(&release.lock) {
                true => self.recent_releases.last.push_back(release),
                false => self.leave_later(release),
            }
        }
    }

    fn leave_later(&mut self, release: RecentRelease) {
        if release.may_be_known(self.now) {
            let lane = self.table.lane_of(&release.lock);
            self.table.traffic(lane).again.push_back(release);
        }
    }

    /// Repeats leaves possibly unknown to the server: a part of the window at a time, and only when
    /// no other leave is scheduled.
    pub(super) fn leave_again(&mut self, lane: u16, mut budget: usize) -> usize {
        if !self.may_leave_again(self.table.lane(lane)) {
            return budget;
        }
        for _ in 0..self.part_of_window().min(budget) {
            let Some(RecentRelease { number, lock, member, .. }) =
                self.table.traffic(lane).again.pop_front()
            else {
                break;
            };
            budget -= 1;
            // A member recorded twice leaves once.
            if !self.table.entries().contains_key(&number) {
                self.give_back(lock, member);
                self.table.change(number, |entry| entry.leaves_again = true);
            }
        }
        budget
    }

    /// Returns whether leaves may be repeated now.
    pub(super) fn may_leave_again(&self, lane: &Lane) -> bool {
        !lane.traffic.again.is_empty()
            && lane.leaves.is_empty()
            && self.commands.is_up()
            && lane.traffic.leaving < self.part_of_window()
    }

    fn part_of_window(&self) -> usize {
        (self.rules.window / 4).max(1)
    }
}
