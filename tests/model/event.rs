//! Events required somewhere in a model, as otherwise the model shows little.

use std::sync::atomic::Ordering;

use crate::model::{Locking, Want};

/// An event that must occur somewhere in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    HandedOver,
    /// Several members requested in the same acquire.
    AskedTogether,
    Skipped,
    /// A skipped member was restored to the queue.
    CameBack,
    LateCopyRefused,
    LateCopyFoundItsGrant,
    LeaseRanOut,
    PositionLost,
    Confirmed,
    ForcedOff,
    /// A command granted several members.
    GrantedTogether,
    /// A command granted a batch.
    GrantedBatch,
    /// A fitting waiter waits behind an unfitting waiter.
    KeptForTheHead,
    Downgraded,
    /// A command left work for the next command, because it may only do so much at once.
    LeftForLater,
    /// A waiter left the queue for a newer waiter.
    Superseded,
    /// A touch found a superseded waiter.
    FoundSuperseded,
    /// The fast path did not serve an acquire, which was then sent as a script.
    NotServed,
}

impl Event {
    pub(crate) const ALL: [Self; 18] = [
        Self::HandedOver,
        Self::AskedTogether,
        Self::Skipped,
        Self::CameBack,
        Self::LateCopyRefused,
        Self::LateCopyFoundItsGrant,
        Self::LeaseRanOut,
        Self::PositionLost,
        Self::Confirmed,
        Self::ForcedOff,
        Self::GrantedTogether,
        Self::GrantedBatch,
        Self::KeptForTheHead,
        Self::Downgraded,
        Self::LeftForLater,
        Self::Superseded,
        Self::FoundSuperseded,
        Self::NotServed,
    ];
}

impl Locking {
    pub(crate) fn meet(&self, event: Event) {
        let bit = 1 << event as u32;
        if self.met.load(Ordering::Relaxed) & bit == 0 {
            self.met.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn met(&self) -> Vec<Event> {
        let met = self.met.load(Ordering::Relaxed);
        Event::ALL.into_iter().filter(|event| met & (1 << *event as u32) != 0).collect()
    }

    /// Returns the events required in a model of this size.
    pub(crate) fn must_meet(&self) -> Vec<Event> {
        let budget = self.scope.budget;
        // Requires two clients able to hold together, and a third to make them wait.
        let is_mixed = self.some_go_together() && self.some_wait();
        let some_wait_together = is_mixed && self.scope.homes.len() > 2;
        let is_possible = |event: &Event| match event {
            Event::HandedOver => self.some_wait(),
            // The first is sent alone, and two in the tick after it.
            Event::AskedTogether => {
                self.scope.homes.starts_with(&[0, 0, 0])
                    && matches!(self.scope.wants, [Want::Lock, ..])
            }
            Event::GrantedBatch => self.scope.batch_limit > 1,
            Event::GrantedTogether => some_wait_together && !self.scope.one_by_one,
            Event::KeptForTheHead | Event::LeftForLater if !some_wait_together => false,
            Event::KeptForTheHead => true,
            Event::LeftForLater => self.scope.one_by_one,
            Event::Downgraded => budget.downgrades > 0,
            Event::Skipped | Event::CameBack if !self.some_wait() => false,
            Event::Skipped => budget.crashes + budget.cuts > 0,
            // The Redisson layout leaves skipped members in their positions.
            Event::CameBack => budget.cuts > 0 && !self.scope.beside_jvms,
            Event::LateCopyRefused => budget.losses > 0 && budget.cancels > 0,
            Event::LateCopyFoundItsGrant => budget.losses > 0,
            Event::LeaseRanOut => budget.passes > 0,
            Event::PositionLost => budget.passes > 1 || budget.losses > 0 && budget.passes > 0,
            Event::Confirmed => budget.passes > 1,
            Event::ForcedOff => budget.forced > 0,
            Event::Superseded => self.some_supersede(),
            Event::NotServed => self.scope.is_fast && self.some_wait(),
            Event::FoundSuperseded => self.some_supersede() && budget.losses > 0,
        };
        Event::ALL.into_iter().filter(is_possible).collect()
    }
}
