//! Comparison between the server's clock and the node's.
//!
//! Leases expire by the server's clock and are counted here by the node's. If the node's clock
//! stopped unnoticed, as it may while a virtual machine is paused, or the server's clock was set
//! forward, leases expire earlier than assumed here. The server's clock progress since the last
//! response reveals this. The response only triggers a renewal: a changed clock takes no hold away.
//!
//! The servers in a Redis Cluster have separate clocks, so a response is compared with the last
//! response for the same slot. After a slot has moved, the clock may be different: then holds are
//! renewed in vain.

use std::time::Duration;

use super::Core;
use crate::Answer;
use crate::node::effect::{Ask, Effect, Note};
use crate::node::entry::Mirror;
use crate::node::lease;
use crate::node::moment::Moment;

/// A server's last response, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    /// The server's time, in µs.
    at_us: u64,
    /// The earliest possible response time, by the node's clock.
    sent: Moment,
}

impl<P: Mirror> Core<P> {
    /// Renews all holds requested before `ask`, if the server's clock ran ahead between the last
    /// and this response.
    pub(super) fn compare_clocks(&mut self, ask: &Ask, answer: &Answer) {
        let Some(at_us) = answer.now_us() else { return };
        let reading = ClockReading { at_us, sent: ask.sent };
        // The same slot means the same server, unless the slot has moved.
        let slot = self.table.slot(&ask.lock);
        let Some(last) = self.last_readings.insert(slot, reading) else { return };
        let there = Duration::from_micros(at_us.saturating_sub(last.at_us));
        // Maximum time passed here: the last response may be as old as the request, and this
        // response as new as the arrival.
        let here = self.now.since(last.sent);
        let ahead = there.saturating_sub(here);
        if ahead > lease::margin(here) {
            self.doubt = ask.sent;
            self.renew_all = Some((0, ask.sent));
            self.push(Effect::Observe(Note::ServerAhead { ahead }));
        }
    }
}
