//! The members that the server last said are gone.
//!
//! Different tasks take in answers, so two answers may change places. An answer that is older than
//! the release of a hold may still tell of that hold: it is nothing to give back. Nothing but the
//! release itself shows this: the server's clock may be set between two answers.
//!
//! A server that takes over may not know that they are gone: a primary acknowledges a release or a
//! leave before its replicas have it. There such a member waits or holds, and no process would come
//! for its grant. So each of them that left while a replica may lag leaves once more there, and no
//! further time: if another server takes over right then, its hold ends with its lease, and its
//! place with a claim.

use std::collections::VecDeque;

use super::Core;
use super::lane::{Lane, Lanes};
use crate::member::Member;
use crate::name::LockName;
use crate::node::entry::Mirror;
use crate::node::moment::Moment;
use crate::node::recent_release::RecentRelease;

/// Most that are remembered: some two megabytes. Beyond that, the first are forgotten: a server
/// that takes over may then keep their locks for a claim or the rest of a lease.
const REMEMBERED: usize = 16_384;
/// The number of the last ones that are looked through for an answer older than its release. If
/// more releases are answered while one answer waits for its turn, one leave is sent that finds
/// nothing.
const LOOKED_THROUGH: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct RecentReleases {
    /// All of them, in the order in which they were heard of.
    last: VecDeque<RecentRelease>,
    /// The number of the last ones that an answer on its way may be older than.
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

    /// The connection is new: no answer is on its way that is older.
    pub(super) fn reconnected(&mut self) {
        self.recent = 0;
    }

    fn recent(&self) -> impl Iterator<Item = &RecentRelease> {
        self.last.iter().rev().take(self.recent)
    }

    /// Numbers of those that an answer may be older than, and when their ends were heard of.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Moment)> {
        self.recent().map(|release| (release.number, release.heard))
    }

    /// Whether the answer to a request that was sent then may be older than the member's end.
    pub(super) fn since(&self, number: u64, sent: Moment) -> bool {
        self.recent().any(|release| release.number == number && sent <= release.heard)
    }
}

impl<P: Mirror> Core<P> {
    /// Remembers that the server knows that the member is gone.
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

    /// Notes that all commands go to another server from now on.
    pub fn moved(&mut self) {
        for release in std::mem::take(&mut self.recent_releases.last) {
            self.leave_later(release);
        }
    }

    /// Notes the lane of the server that has each slot from now on. The locks of a slot move there
    /// with all their work that is due, and their members that ended lately leave there once more.
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

    /// Lets some leave once more whose end the server may not know. A part of the window at a time,
    /// and only once nothing else is to be given back.
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
            // One that had left twice leaves once.
            if !self.table.entries().contains_key(&number) {
                self.give_back(lock, member);
                self.table.change(number, |entry| entry.leaves_again = true);
            }
        }
        budget
    }

    /// Whether some may leave once more now.
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
