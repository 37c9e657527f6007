//! Requests in flight, and how many more of each kind may be sent in each lane.

use super::lane::Lane;
use super::{Core, MAX_AT_ONCE, lines};
use crate::Command;
use crate::error::StoreError;
use crate::name::LockName;
use crate::node::effect::{Effect, StoreRequest, Way};
use crate::node::entry::Mirror;
use crate::node::moment::Moment;

impl<P: Mirror> Core<P> {
    pub(super) fn is_up(&self) -> bool {
        self.commands.is_up() && self.subscription.is_up()
    }

    /// Returns how many more first acquires may be sent in a lane (to a server) now.
    pub(super) fn room_to_ask(&self, lane: &Lane) -> usize {
        lane.traffic.bound(self.rules.acquires).saturating_sub(lane.traffic.asking)
    }

    /// Returns how many more retried acquires may be sent in a lane (to a server) now.
    pub(super) fn room_to_repeat(&self, lane: &Lane) -> usize {
        lane.traffic.bound(self.rules.window).saturating_sub(lane.traffic.repeating)
    }

    /// Returns how many more leaves, requests that remove members, may be sent in a lane (to a
    /// server) now. The limit is twice that of first acquires, so that leaves never fall behind:
    /// each leave ends an acquire.
    pub(super) fn room_to_leave(&self, lane: &Lane) -> usize {
        let most = self.rules.acquires.saturating_mul(2);
        lane.traffic.bound(most).saturating_sub(lane.traffic.leaving)
    }

    /// Returns how many more holds may be renewed in a lane (on a server) now.
    pub(super) fn room_to_renew(&self, lane: &Lane) -> usize {
        lane.traffic.bound(MAX_AT_ONCE).saturating_sub(lane.traffic.renewing)
    }

    /// Returns how much more may be touched in a lane (on a server) now, as a total weight: see
    /// `lines::weight`. 0 without a connection.
    pub(super) fn room_to_touch(&self, lane: &Lane) -> usize {
        let most = lane.traffic.bound(lines::MAX_TOUCHING / lines::MIN_WEIGHT) * lines::MIN_WEIGHT;
        let is_up = self.commands.is_up();
        if is_up { most.saturating_sub(lane.traffic.touching) } else { 0 }
    }

    /// Creates a request of the driver itself, such as an inspection. It belongs to no attempt or
    /// hold, so the core does not count it as in flight.
    pub fn untracked_request(
        &self,
        lock: LockName,
        command: Command,
        sent: Moment,
    ) -> StoreRequest {
        let lane = self.table.lane_of(&lock);
        StoreRequest { lock, command, sent, background: false, lane, way: Way::Script }
    }

    /// Creates a request that is sent now. `background` is true if the core sends it by itself. A
    /// release takes the fast path, which needs no script, unless the lock was busy when this node
    /// last used it.
    pub(super) fn request(
        &self,
        lock: LockName,
        command: Command,
        background: bool,
    ) -> StoreRequest {
        let is_release = matches!(command, Command::Release { .. });
        let way = if is_release && !self.busy.has(&lock) { Way::Fast } else { Way::Script };
        StoreRequest { background, way, ..self.untracked_request(lock, command, self.now) }
    }

    pub(super) fn background(&mut self, request: StoreRequest) {
        let traffic = self.table.traffic(request.lane);
        match &request.command {
            Command::Renew { .. } | Command::Confirm { .. } => {
                traffic.renewing += request.command.renews().len();
            }
            Command::Touch { members } => traffic.touching += lines::weight(members),
            Command::Acquire { .. } => traffic.repeating += 1,
            _ => traffic.leaving += 1,
        }
        let request = StoreRequest { background: true, ..request };
        // A failover or a power loss undoes a renewal that is only in the server's memory, so no
        // guard may rely on it before the store has confirmed it.
        let is_confirmed = self.rules.confirms_writes && !request.command.renews().is_empty();
        self.push(if is_confirmed { Effect::Confirm(request) } else { Effect::Send(request) });
    }

    /// Counts a request as no longer in flight, because its response or error has arrived. Uses the
    /// lane (server) to which it was sent, even if the lock has moved since.
    fn arrived(&mut self, request: &StoreRequest) {
        if request.way == Way::FellBack {
            self.busy.note(&request.lock, true);
        }
        let traffic = self.table.traffic(request.lane);
        let (count, less) = match &request.command {
            Command::Acquire { members, .. } if !request.background => {
                (&mut traffic.asking, members.len())
            }
            Command::Acquire { members, .. } => (&mut traffic.repeating, members.len()),
            _ if !request.background => return,
            Command::Renew { .. } | Command::Confirm { .. } => {
                (&mut traffic.renewing, request.command.renews().len())
            }
            Command::Touch { members } => (&mut traffic.touching, lines::weight(members)),
            _ => (&mut traffic.leaving, 1),
        };
        // The core counted this request when it made it, and each request has one response or
        // error.
        debug_assert!(*count >= less, "{less} of {count} have arrived: {request:?}");
        *count = count.saturating_sub(less);
    }

    /// Records that a request got a response, so that its server is alive.
    pub(super) fn succeeded(&mut self, request: &StoreRequest) {
        self.arrived(request);
        if request.way == Way::Fast && matches!(request.command, Command::Release { .. }) {
            self.busy.note(&request.lock, false);
        }
        self.last_success = self.now;
        self.round_trip = self.now.since(request.sent);
        let traffic = self.table.traffic(request.lane);
        traffic.last_success = self.now;
        traffic.is_silent = false;
        // A server that refuses writes still replies to reads. It also replies to an acquire that
        // finds the lock busy: then the leaves fail once more.
        traffic.gave_up &= matches!(request.command, Command::Inspect { .. });
    }

    /// Records that a request failed. If it may have run, and no other response has arrived since
    /// it was sent, its server is considered silent. Fewer requests are then in flight to it.
    pub(super) fn failed(&mut self, request: &StoreRequest, error: &StoreError) {
        self.arrived(request);
        let traffic = self.table.traffic(request.lane);
        traffic.is_silent |= error.may_have_run && traffic.last_success < request.sent;
    }
}
