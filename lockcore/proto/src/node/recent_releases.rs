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
//!
//! A member that was given up, because the server acknowledged none of its leaves, leaves once
//! more, too: as soon as this server replies to another command, or a connection is opened.

use std::collections::VecDeque;

use super::Core;
use super::lane::{Lane, Lanes};
use crate::member::Member;
use crate::name::LockName;
use crate::node::entry::Mirror;
use crate::node::moment::Moment;
use crate::node::recent_release::RecentRelease;

/// Maximum number of remembered releases, which use about two megabytes. Beyond it, the oldest are
/// forgotten. If a server that takes over does not know such a release, the lock stays held until
/// its lease ends there, or for a claim if the member was still queued.
const REMEMBERED: usize = 16_384;
/// Number of latest releases that are compared with a late reply, by
/// [`since`](RecentReleases::since). If more are acknowledged while a reply waits to be processed,
/// the node may send a leave that finds nothing.
const LOOKED_THROUGH: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct RecentReleases {
    /// All remembered releases, in the order in which they were acknowledged.
    last: VecDeque<RecentRelease>,
    /// The number of releases, at the end of `last`, that a reply still in flight may not know.
    /// Such a reply may report a hold that is released already.
    recent: usize,
}

impl RecentReleases {
    /// Adds a release. Forgets the oldest release if `is_settled` returns true for it, or there are
    /// too many.
    fn remember(&mut self, release: RecentRelease, is_settled: impl Fn(&RecentRelease) -> bool) {
        let is_too_many = self.last.len() == REMEMBERED;
        if is_too_many || self.last.front().is_some_and(is_settled) {
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

    /// Records that a connection is new: no reply to an older request can arrive any more.
    pub(super) fn reconnected(&mut self) {
        self.recent = 0;
    }

    fn recent(&self) -> impl Iterator<Item = &RecentRelease> {
        self.last.iter().rev().take(self.recent)
    }

    /// Returns the releases that a reply still in flight may not know: each as the member id, and
    /// the time when this node learned of the release.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Moment)> {
        self.recent().map(|release| (release.number, release.heard))
    }

    /// Returns true if the reply to a request sent at `sent` may be older than the release of this
    /// member.
    pub(super) fn since(&self, number: u64, sent: Moment) -> bool {
        self.recent().any(|release| release.number == number && sent <= release.heard)
    }
}

impl<P: Mirror> Core<P> {
    /// Remembers that the server has removed a member. Does nothing if `number` is `None`.
    pub(super) fn remember_release(
        &mut self,
        number: Option<u64>,
        lock: &LockName,
        member: &Member,
    ) {
        if let Some(number) = number {
            let lock = lock.clone();
            let (heard, member) = (self.now, member.clone());
            let release = RecentRelease { number, heard, ambiguous: false, lock, member };
            // By the server of that release: another server's replies show nothing about it.
            let is_settled = |first: &RecentRelease| {
                let lane = self.table.lane(self.table.lane_of(&first.lock));
                !first.may_be_unreplicated(lane.traffic.last_success)
            };
            self.recent_releases.remember(release, is_settled);
        }
    }

    /// Records that all commands go to another server from now on. It may not know the latest
    /// releases, so the core removes their members there once more.
    pub fn moved(&mut self) {
        let last_success = self.last_success;
        for release in std::mem::take(&mut self.recent_releases.last) {
            self.leave_if_unreplicated(release, last_success);
        }
    }

    /// Sets the lane (server) of each Cluster slot. If a slot has moved, all scheduled work for its
    /// locks moves along. Members that were released recently are removed on the new server once
    /// more, because it may not know the release.
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
            traffic.retry_from = 0;
        }
        for release in std::mem::take(&mut self.recent_releases.last) {
            let slot = usize::from(release.lock.slot());
            let was_in = before.as_ref().map_or(0, |lanes| lanes[slot]);
            if was_in == self.table.lane_of(&release.lock) {
                self.recent_releases.last.push_back(release);
            } else {
                let last_success = self.table.lane(was_in).traffic.last_success;
                self.leave_if_unreplicated(release, last_success);
            }
        }
    }

    /// Schedules a released member to leave once more, unless all replicas have had time to receive
    /// the release before `last_success`, when the previous server last responded. It may have been
    /// away for long since then.
    fn leave_if_unreplicated(&mut self, release: RecentRelease, last_success: Moment) {
        if release.may_be_unreplicated(last_success) {
            self.leave_later(release);
        }
    }

    /// Schedules one more leave for a member that the server may still have.
    pub(super) fn leave_later(&mut self, release: RecentRelease) {
        let lane = self.table.lane_of(&release.lock);
        let again = &mut self.table.traffic(lane).again;
        if again.len() == REMEMBERED {
            again.pop_front();
        }
        again.push_back(release);
    }

    /// Sends leaves for members that were released before, because the server in this lane has
    /// taken over and may not know their releases, or did not acknowledge their leaves. Leaves that
    /// are due go first. Only a few are sent at a time, and none while as many leaves pause after a
    /// failure: the server may refuse all of them. Handles at most `budget` members. Returns the
    /// remaining budget.
    pub(super) fn leave_again(&mut self, lane: u16, mut budget: usize) -> usize {
        if !self.may_leave_again(self.table.lane(lane)) {
            return budget;
        }
        for _ in 0..self.part_of_window().min(budget) {
            let Some(RecentRelease { number, lock, member, ambiguous, .. }) =
                self.table.traffic(lane).again.pop_front()
            else {
                break;
            };
            budget -= 1;
            // A member that is in the list twice leaves once.
            if self.give_back_if_over(&lock, member) {
                self.table.change(number, |entry| {
                    entry.leaves_again = true;
                    entry.ambiguous |= ambiguous;
                });
            }
        }
        budget
    }

    /// Returns true if [`leave_again`](Self::leave_again) may remove a released member once more in
    /// this lane now.
    pub(super) fn may_leave_again(&self, lane: &Lane) -> bool {
        !lane.traffic.again.is_empty()
            && !lane.traffic.gave_up
            && lane.leaves.first().is_none_or(|(at, _)| *at > self.now)
            && lane.leaves.len() < self.part_of_window()
            && self.commands.is_up()
            && lane.traffic.leaving < self.part_of_window()
    }

    fn part_of_window(&self) -> usize {
        (self.rules.window / 4).max(1)
    }
}
