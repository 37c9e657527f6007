//! The latest releases, so that late replies and servers that take over do not bring released
//! members back.
//!
//! Replies are processed by different tasks, so they may arrive here out of order. A reply older
//! than a release may still report the released hold, which must not be released again. Only the
//! list of releases shows this, because the server's clock may be set between two replies.
//!
//! A server that takes over may not know that members are gone, because a primary acknowledges a
//! release or a leave before replicating it. On the new server such a member waits or holds, and no
//! process would use the grant. So each member released during a possible replica lag leaves once
//! more there. It does so only once: if yet another server takes over right then, the hold ends
//! with its lease, and the queue position with a claim.

use std::collections::VecDeque;

use super::Core;
use super::lane::{Lane, Lanes};
use crate::member::Member;
use crate::name::LockName;
use crate::node::entry::Mirror;
use crate::node::moment::Moment;
use crate::node::recent_release::RecentRelease;

/// Maximum number of remembered releases, which use about two megabytes. Beyond it the oldest are
/// forgotten. A server that takes over may then keep their locks for a claim, or until the lease
/// ends.
const REMEMBERED: usize = 16_384;
/// Number of latest releases that are searched when a reply may be older than a release. If more
/// releases are acknowledged while a reply waits to be processed, a superfluous leave is sent,
/// which finds nothing.
const LOOKED_THROUGH: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct RecentReleases {
    /// All remembered releases, in the order in which they were acknowledged.
    last: VecDeque<RecentRelease>,
    /// Number of releases, from the end of `last`, that requests in flight may not have seen. Their
    /// replies may still report these holds.
    recent: usize,
}

impl RecentReleases {
    fn remember(&mut self, release: RecentRelease) {
        let now = release.heard;
        let is_too_many = self.last.len() == REMEMBERED;
        if is_too_many || self.last.front().is_some_and(|first| !first.may_be_unreplicated(now)) {
            self.last.pop_front();
        }
        self.last.push_back(release);
        self.recent = LOOKED_THROUGH.min(self.recent + 1);
    }

    /// Panics if the list is longer than its limits.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self) {
        assert!(self.last.len() <= REMEMBERED, "{} are remembered", self.last.len());
        assert!(self.recent <= LOOKED_THROUGH, "{} are looked through", self.recent);
    }

    /// Records a new connection, so that no reply to an older request is in flight.
    pub(super) fn reconnected(&mut self) {
        self.recent = 0;
    }

    fn recent(&self) -> impl Iterator<Item = &RecentRelease> {
        self.last.iter().rev().take(self.recent)
    }

    /// Returns the releases that are searched, each as the member id and the time when this node
    /// learned of the release.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Moment)> {
        self.recent().map(|release| (release.number, release.heard))
    }

    /// Returns true if the reply to a request sent at `sent` may be older than this member's
    /// release.
    pub(super) fn since(&self, number: u64, sent: Moment) -> bool {
        self.recent().any(|release| release.number == number && sent <= release.heard)
    }
}

impl<P: Mirror> Core<P> {
    /// Remembers that a member was removed on the server; does nothing if `number` is `None`.
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

    /// Records that all commands go to another server from now on. Members released recently leave
    /// once more there, because the server may not know their releases.
    pub fn moved(&mut self) {
        for release in std::mem::take(&mut self.recent_releases.last) {
            self.leave_later(release);
        }
    }

    /// Sets the lane (server) of each Cluster slot. For the locks of a moved slot, all scheduled
    /// work moves along, and members released recently leave once more on the new server.
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
        if release.may_be_unreplicated(self.now) {
            let lane = self.table.lane_of(&release.lock);
            self.table.traffic(lane).again.push_back(release);
        }
    }

    /// Lets members leave once more that a new server may not know to be gone. It sends only a few
    /// at a time, and only when no other leave is scheduled. Handles at most `budget` members, and
    /// returns the unused part of this number.
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
            // A member that is in the list twice leaves once.
            if !self.table.entries().contains_key(&number) {
                self.give_back(lock, member);
                self.table.change(number, |entry| entry.leaves_again = true);
            }
        }
        budget
    }

    /// Returns true if such a member may leave now.
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
