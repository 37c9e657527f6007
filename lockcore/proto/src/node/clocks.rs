//! The server's clock beside the node's.
//!
//! Leases end by the server's clock and are counted here by the node's. Where that one stood still
//! unnoticed, as it may while a virtual machine is paused, or the server's was set forward, leases
//! end earlier than is thought here. How far the server's clock got since its last answer shows it.
//! The answer is only a reason to ask: a clock that is set takes no hold away.
//!
//! The servers of a Redis Cluster have clocks of their own, so an answer is compared with the last
//! one of the same slot. After a slot has moved it may be another clock: that renews holds in vain.

use std::time::Duration;

use super::Core;
use crate::Answer;
use crate::node::effect::{Ask, Effect, Note};
use crate::node::entry::Mirror;
use crate::node::lease;
use crate::node::moment::Moment;

/// The last answer of a server, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    /// The time of the server's clock, µs.
    at_us: u64,
    /// The earliest moment at which it can have been answered, by the node's clock.
    sent: Moment,
}

impl<P: Mirror> Core<P> {
    /// Has every hold renewed that was asked for before `ask`, if the server's clock ran ahead
    /// between its last answer and this one.
    pub(super) fn compare_clocks(&mut self, ask: &Ask, answer: &Answer) {
        let Some(at_us) = answer.now_us() else { return };
        let reading = ClockReading { at_us, sent: ask.sent };
        // Of the same slot, and so of the same server, unless the slot has moved.
        let slot = self.table.slot(&ask.lock);
        let Some(last) = self.last_readings.insert(slot, reading) else { return };
        let there = Duration::from_micros(at_us.saturating_sub(last.at_us));
        // As much as can have passed here: the last answer may be as old as its request, and this
        // one as young as its arrival.
        let here = self.now.since(last.sent);
        let ahead = there.saturating_sub(here);
        if ahead > lease::margin(here) {
            self.doubt = ask.sent;
            self.renew_all = Some((0, ask.sent));
            self.push(Effect::Observe(Note::ServerAhead { ahead }));
        }
    }
}
