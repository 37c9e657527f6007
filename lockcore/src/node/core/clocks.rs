//! The server's clock beside the node's.
//!
//! Leases end by the server's clock and are counted here by the node's. Where that one stood still
//! unnoticed, as it may while a virtual machine is paused, or the server's was set forward, leases
//! end earlier than is thought here. How far the server's clock got since its last answer shows it.
//! What it shows is only a reason to ask: a clock that is set takes no hold away.

use std::time::Duration;

use super::{Core, Effects};
use crate::node::effect::{Ask, Effect, Note};
use crate::node::entry::Seat;
use crate::node::lease;
use crate::node::moment::Moment;
use crate::store::protocol::Answer;

/// When the server last answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    /// By its clock, µs.
    at_us: u64,
    /// Not before this, by the node's.
    sent: Moment,
    /// The same of the answer before on this connection, µs; 0 if there was none.
    previous_us: u64,
    /// Whether the next answer comes on the same connection.
    goes_on: bool,
}

impl Answered {
    /// Whether the answer before was given later than this one: the tasks that take answers in run
    /// in any order.
    pub(super) fn is_overtaken(&self) -> bool {
        self.at_us < self.previous_us
    }

    /// The next answer comes on another connection, perhaps of another server, whose clock may be
    /// behind: that says nothing of which was given first.
    pub(super) fn reconnected(&mut self) {
        self.goes_on = false;
    }
}

impl<P: Seat> Core<P> {
    /// Has every hold renewed that was asked for before `ask`, if the server's clock ran ahead
    /// between its last answer and this one.
    pub(super) fn compare_clocks(
        &mut self,
        now: Moment,
        ask: &Ask,
        answer: &Answer,
        fx: &mut Effects<P>,
    ) {
        let at_us = answer.now_us();
        if at_us == 0 {
            return;
        }
        let previous = self.answered.filter(|last| last.goes_on);
        let previous_us = previous.map_or(0, |last| last.at_us);
        let answered = Answered { at_us, sent: ask.sent, previous_us, goes_on: true };
        let Some(last) = self.answered.replace(answered) else { return };
        let there = Duration::from_micros(at_us.saturating_sub(last.at_us));
        // As much as can have passed here: the last answer may be as old as its request, and this
        // one as young as its arrival.
        let here = now.since(last.sent);
        let ahead = there.saturating_sub(here);
        if ahead > lease::margin(here) {
            self.doubt = ask.sent;
            self.renew_all = Some((0, ask.sent));
            fx.push(Effect::Observe(Note::ServerAhead { ahead }));
        }
    }
}
