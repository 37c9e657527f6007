//! Compares the server's clock with the node's, to notice leases that expire early.
//!
//! Leases expire by the server's clock, but the node counts them by its own. If the node's clock
//! stopped unnoticed, as while a virtual machine is paused, or if the server's clock was set
//! forward, leases expire earlier than the node assumes. The node notices this because more time
//! has passed on the server than here since the last response that stated the server's time. Short
//! responses do not, but the response to each renewal does. The node then only renews the holds: a
//! changed clock takes no hold away.
//!
//! The servers of a Redis Cluster have separate clocks, so a response is compared with the last
//! response for the same slot. A server's other slots would show the same step of the clock again,
//! so this response replaces their last ones, too. After a slot has moved to another server, the
//! comparison may be wrong. Then holds are renewed in vain.

use std::time::Duration;

use super::Core;
use crate::Answer;
use crate::node::effect::{Effect, Note, StoreRequest};
use crate::node::entry::Mirror;
use crate::node::lease;
use crate::node::moment::Moment;

/// The time of a server's last response, by the server's clock and by the node's, to compare their
/// progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    /// The time that the server stated, in µs since the epoch.
    at_us: u64,
    /// When the request for it was sent, by the node's clock. The server's time was read at this
    /// moment or later.
    sent: Moment,
}

impl<P: Mirror> Core<P> {
    /// Compares how far the server's clock and the node's have advanced since the last response for
    /// the same Cluster slot. If the server's has advanced more, leases may expire early, so all
    /// holds with leases requested before `request` are renewed.
    pub(super) fn compare_clocks(&mut self, request: &StoreRequest, answer: &Answer) {
        let Some(at_us) = answer.now_us() else { return };
        let reading = ClockReading { at_us, sent: request.sent };
        // Two responses for the same slot come from the same server, unless the slot has moved.
        let slot = self.table.slot(&request.lock);
        let Some(last) = self.last_readings.insert(slot, reading) else { return };
        let there = Duration::from_micros(at_us.saturating_sub(last.at_us));
        // The maximum time that can have passed here: the last response may be as old as its
        // request, and this response as new as its arrival.
        let here = self.now.since(last.sent);
        let ahead = there.saturating_sub(here);
        if ahead > lease::margin(here) {
            let lane = self.table.lane_of_slot(slot);
            let of_server = self
                .last_readings
                .iter_mut()
                .filter(|(slot, _)| self.table.lane_of_slot(**slot) == lane);
            of_server.for_each(|(_, last)| *last = reading);
            self.doubt(request.sent);
            self.renew_all_since(request.sent);
            self.push(Effect::Observe(Note::ServerAhead { ahead }));
        }
    }

    /// Doubts all leases requested before `before`. An earlier doubt may reach further: responses
    /// arrive in any order.
    pub(super) fn doubt(&mut self, before: Moment) {
        self.doubted_before = self.doubted_before.max(before);
    }

    /// Begins to renew all holds with leases requested before `since`, or before the time of a
    /// renewal under way if that is later.
    pub(super) fn renew_all_since(&mut self, since: Moment) {
        let later = self.renew_all.map_or(since, |(_, before)| before.max(since));
        self.renew_all = Some((0, later));
    }
}
