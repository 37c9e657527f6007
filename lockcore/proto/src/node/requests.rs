//! Requests on their way, and the room for more of each kind in each lane.

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

    /// The number of acquires of callers that may be sent now.
    pub(super) fn room_to_ask(&self, lane: &Lane) -> usize {
        lane.traffic.bound(self.rules.acquires).saturating_sub(lane.traffic.asking)
    }

    /// The number of acquires that may be repeated now.
    pub(super) fn room_to_repeat(&self, lane: &Lane) -> usize {
        lane.traffic.bound(self.rules.window).saturating_sub(lane.traffic.repeating)
    }

    /// The number of leaves that may be sent now. Each leave ends one acquire, and twice as many
    /// may be on their way: leaves never fall behind acquires, however these come.
    pub(super) fn room_to_leave(&self, lane: &Lane) -> usize {
        let most = self.rules.acquires.saturating_mul(2);
        lane.traffic.bound(most).saturating_sub(lane.traffic.leaving)
    }

    /// The number of holds that may be renewed now.
    pub(super) fn room_to_renew(&self, lane: &Lane) -> usize {
        lane.traffic.bound(MAX_AT_ONCE).saturating_sub(lane.traffic.renewing)
    }

    /// The weight of the touches that may be sent now.
    pub(super) fn room_to_touch(&self, lane: &Lane) -> usize {
        let most = lane.traffic.bound(lines::MAX_TOUCHING / lines::MIN_WEIGHT) * lines::MIN_WEIGHT;
        let is_up = self.commands.is_up();
        if is_up { most.saturating_sub(lane.traffic.touching) } else { 0 }
    }

    /// A request of a caller that changes nothing here.
    pub fn aside(&self, lock: LockName, command: Command, sent: Moment) -> Ask {
        let lane = self.table.lane_of(&lock);
        Ask { lock, command, sent, background: false, lane, way: Way::Script }
    }

    /// A request that is sent now.
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
        // A failover or a power loss takes back a renewal that is in the memory of its server only:
        // no guard may rely on such a renewal.
        let is_confirmed = self.rules.confirms_writes && !ask.command.renews().is_empty();
        self.push(if is_confirmed { Effect::Confirm(ask) } else { Effect::Send(ask) });
    }

    /// Counts a request that is not on its way any more, in the lane in which it was sent: its slot
    /// may have moved since.
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
        // The request is the core's own, whatever the server answers: each is answered once.
        debug_assert!(*count >= less, "{less} of {count} have arrived: {ask:?}");
        *count = count.saturating_sub(less);
    }

    /// The server has answered a request.
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

    /// The server has not answered a request, or has refused it.
    pub(super) fn failed(&mut self, ask: &Ask, error: &StoreError) {
        self.arrived(ask);
        let traffic = self.table.traffic(ask.lane);
        traffic.is_silent |= error.may_have_run && traffic.last_success < ask.sent;
    }
}
