//! In-flight requests, and the room for more of each kind in each lane.

use super::lane::Lane;
use super::{Core, MAX_AT_ONCE, lines};
use crate::Command;
use crate::error::StoreError;
use crate::name::LockName;
use crate::node::effect::{Ask, Effect, Way};
use crate::node::entry::Mirror;
use crate::node::moment::Moment;

impl<P: Mirror> Core<P> {
    pub(super) fn is_up(&self) -> bool {
        self.commands.is_up() && self.subscription.is_up()
    }

    /// Returns how many acquires callers may send now.
    pub(super) fn room_to_ask(&self, lane: &Lane) -> usize {
        lane.traffic.bound(self.rules.acquires).saturating_sub(lane.traffic.asking)
    }

    /// Returns how many acquires may be repeated now.
    pub(super) fn room_to_repeat(&self, lane: &Lane) -> usize {
        lane.traffic.bound(self.rules.window).saturating_sub(lane.traffic.repeating)
    }

    /// Returns how many leaves may be sent now. Each leave ends an acquire, and twice as many
    /// leaves may be in flight: leaves never fall behind acquires, however acquires arrive.
    pub(super) fn room_to_leave(&self, lane: &Lane) -> usize {
        let most = self.rules.acquires.saturating_mul(2);
        lane.traffic.bound(most).saturating_sub(lane.traffic.leaving)
    }

    /// Returns how many holds may be renewed now.
    pub(super) fn room_to_renew(&self, lane: &Lane) -> usize {
        lane.traffic.bound(MAX_AT_ONCE).saturating_sub(lane.traffic.renewing)
    }

    /// Returns how much touch weight may be sent now.
    pub(super) fn room_to_touch(&self, lane: &Lane) -> usize {
        let most = lane.traffic.bound(lines::MAX_TOUCHING / lines::MIN_WEIGHT) * lines::MIN_WEIGHT;
        let is_up = self.commands.is_up();
        if is_up { most.saturating_sub(lane.traffic.touching) } else { 0 }
    }

    /// Returns a caller's request without effect on this node.
    pub fn aside(&self, lock: LockName, command: Command, sent: Moment) -> Ask {
        let lane = self.table.lane_of(&lock);
        Ask { lock, command, sent, background: false, lane, way: Way::Script }
    }

    /// Returns a request to send now.
    pub(super) fn request(&self, lock: LockName, command: Command, background: bool) -> Ask {
        let is_release = matches!(command, Command::Release { .. });
        let way = if is_release && !self.busy.has(&lock) { Way::Fast } else { Way::Script };
        Ask { background, way, ..self.aside(lock, command, self.now) }
    }

    pub(super) fn background(&mut self, ask: Ask) {
        let traffic = self.table.traffic(ask.lane);
        match &ask.command {
            Command::Renew { .. } | Command::Confirm { .. } => {
                traffic.renewing += ask.command.renews().len();
            }
            Command::Touch { members } => traffic.touching += lines::weight(members),
            Command::Acquire { .. } => traffic.repeating += 1,
            _ => traffic.leaving += 1,
        }
        let ask = Ask { background: true, ..ask };
        // A failover or a power loss reverts a renewal held only in the server's memory, so no
        // guard may rely on it before it is confirmed.
        let is_confirmed = self.rules.confirms_writes && !ask.command.renews().is_empty();
        self.push(if is_confirmed { Effect::Confirm(ask) } else { Effect::Send(ask) });
    }

    /// Counts a request as no longer in flight, in the lane it was sent in: the slot may have moved
    /// since.
    fn arrived(&mut self, ask: &Ask) {
        if ask.way == Way::FellBack {
            self.busy.note(&ask.lock, true);
        }
        let traffic = self.table.traffic(ask.lane);
        let (count, less) = match &ask.command {
            Command::Acquire { members, .. } if !ask.background => {
                (&mut traffic.asking, members.len())
            }
            Command::Acquire { members, .. } => (&mut traffic.repeating, members.len()),
            _ if !ask.background => return,
            Command::Renew { .. } | Command::Confirm { .. } => {
                (&mut traffic.renewing, ask.command.renews().len())
            }
            Command::Touch { members } => (&mut traffic.touching, lines::weight(members)),
            _ => (&mut traffic.leaving, 1),
        };
        // The core made this request, and each request is answered once, whatever the server
        // replies.
        debug_assert!(*count >= less, "{less} of {count} have arrived: {ask:?}");
        *count = count.saturating_sub(less);
    }

    /// Handles an answered request.
    pub(super) fn succeeded(&mut self, ask: &Ask) {
        self.arrived(ask);
        if ask.way == Way::Fast && matches!(ask.command, Command::Release { .. }) {
            self.busy.note(&ask.lock, false);
        }
        self.last_success = self.now;
        self.round_trip = self.now.since(ask.sent);
        let traffic = self.table.traffic(ask.lane);
        traffic.last_success = self.now;
        traffic.is_silent = false;
    }

    /// Handles an unanswered or refused request.
    pub(super) fn failed(&mut self, ask: &Ask, error: &StoreError) {
        self.arrived(ask);
        let traffic = self.table.traffic(ask.lane);
        traffic.is_silent |= error.may_have_run && traffic.last_success < ask.sent;
    }
}
