//! Routes a process's requests to the primary of their hash slot, and follows redirects: the
//! decisions are `lockcore-proto`'s, as in the Cluster store.

use std::time::Duration;

use proto::node::{Lanes, StoreRequest};
use proto::wire::redirect::{Redirect, Route, Step};
use proto::wire::slot::SLOTS;
use proto::{Answer, Command, LockErrorKind, Mode, StoreError};

use crate::event_queue::{Place, What};
use crate::network::REQUEST_TIMEOUT_US;
use crate::process::{Process, Shard};
use crate::server::index;
use crate::world::{MS, World};

/// The host of all servers. A server's port is the index.
pub(crate) const HOST: &str = "server";
/// The interval at which a process asks a server for the topology, in µs.
const FOLLOW_US: u64 = 2_000 * MS;
/// The least time between two such requests, in µs.
const LEAST_US: u64 = 100 * MS;

/// The hash slots' primaries, as known to a process.
pub(crate) struct Routing {
    owners: Vec<usize>,
    /// Whether a hash slot has moved since the core was last notified.
    has_moved: bool,
    /// When the process refreshes the topology next.
    looks_at: Option<u64>,
    /// Whether any server was reachable when the core was last notified.
    was_up: bool,
}

impl Routing {
    pub(crate) fn new(owners: Vec<usize>) -> Self {
        Self { owners, has_moved: false, looks_at: None, was_up: true }
    }

    /// Returns the hash slot's owner, as known to the process.
    pub(crate) fn owner(&self, slot: usize) -> usize {
        self.owners[slot]
    }
}

/// How a request is routed.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    /// The last receiving server's index.
    pub(crate) server: usize,
    /// Whether the request is under way to that server: a paused request outlives the connection.
    pub(crate) is_sent: bool,
    /// Whether the request waits for replicas.
    pub(crate) waits: bool,
    /// Whether the request is preceded by ASKING.
    pub(crate) asking: bool,
    route: Route,
    since: u64,
}

impl Way {
    /// Returns when the request was first sent.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }
}

impl World {
    /// Returns a new request's route.
    pub(crate) fn way(&self, place: Place, request: &StoreRequest, waits: bool) -> Way {
        let slot = self.plan.slot(index(request));
        let server = self.processes[place.slot].routing.owners[slot];
        let timeout = Duration::from_micros(REQUEST_TIMEOUT_US);
        let route = match waits {
            true => Route::new(timeout),
            false => Route::of(&[(&request.lock, &request.command)], timeout),
        };
        Way { server, is_sent: true, waits, asking: false, route, since: self.now }
    }

    /// Whether the process can send the request on this connection. On a Cluster it sends no
    /// acquire if the grant could not be received.
    pub(crate) fn can_send(&self, shard: &Shard, request: &StoreRequest) -> bool {
        let hears = matches!(request.command, Command::Acquire { mode: Mode::Wait, .. });
        shard.is_connected && (shard.is_subscribed || !hears || self.servers.len() == 1)
    }

    /// Sends a request again that was refused because of the hash slot. Returns the response if it
    /// goes to the core.
    pub(crate) fn routed(
        &mut self,
        place: Place,
        request: u64,
        answer: Result<Answer, StoreError>,
    ) -> Option<Result<Answer, StoreError>> {
        let process = &mut self.processes[place.slot];
        let (Err(error), Some(open), true) =
            (&answer, process.open.get_mut(&request), self.servers.len() > 1)
        else {
            return Some(answer);
        };
        let Some(redirect) = Redirect::read(error, HOST) else {
            self.look_by(place, self.now + LEAST_US);
            return Some(answer);
        };
        let given_up = StoreError::refused(LockErrorKind::Unavailable, error.detail.clone());
        // A request sent right behind ASKING goes back to the server that has the slot.
        let is_back = std::mem::take(&mut open.way.asking);
        let step = if is_back { Step::Pause } else { open.way.route.after(redirect) };
        let store_request = open.store_request.clone();
        let is_sent = match step {
            Step::Follow(at) => {
                let server = at.port.into();
                self.finds(place, self.plan.slot(index(&store_request)), server);
                self.send_again(place, request, server, false)
            }
            Step::Asking(at) => {
                let server = at.port.into();
                let shard = &self.processes[place.slot].shards[server];
                self.can_send(shard, &store_request)
                    && self.send_again(place, request, server, true)
            }
            Step::Pause => false,
            Step::End => {
                self.look_by(place, self.now + LEAST_US);
                return Some(Err(given_up));
            }
        };
        if is_sent {
            return None;
        }
        let spread = self.dice.of(50, 150) as f64 / 100.0;
        let now = self.now;
        let open = self.processes[place.slot].open.get_mut(&request)?;
        let passed = Duration::from_micros(now - open.way.since);
        let Some(pause) = open.way.route.pause(passed, spread) else {
            return Some(Err(given_up));
        };
        open.way.is_sent = false;
        self.at(now + pause.as_micros() as u64, place, What::SentAgain { request });
        None
    }

    /// Sends a request after the pause.
    pub(crate) fn sent_again(&mut self, place: Place, request: u64) {
        let process = &self.processes[place.slot];
        if let Some(open) = process.open.get(&request) {
            let owner = process.routing.owners[self.plan.slot(index(&open.store_request))];
            self.send_again(place, request, owner, false);
        }
    }

    fn send_again(&mut self, place: Place, request: u64, server: usize, asking: bool) -> bool {
        let Some(mut open) = self.processes[place.slot].open.remove(&request) else { return false };
        (open.way.server, open.way.asking, open.way.is_sent) = (server, asking, true);
        // The request gets another number, so that it never gets two responses.
        self.requests += 1;
        let renamed = self.requests;
        if let Some(caller) = self.releases.remove(&request) {
            self.releases.insert(renamed, caller);
        }
        self.dispatch(place, renamed, open);
        true
    }

    /// Records that a hash slot is at this server.
    fn finds(&mut self, place: Place, slot: usize, server: usize) {
        let process = &mut self.processes[place.slot];
        let before = std::mem::replace(&mut process.routing.owners[slot], server);
        if before != server {
            let latest = process.shards[before].latest(slot);
            process.shards[server].seen[slot].take_over(latest);
            process.routing.has_moved = true;
            let late = self.dice.below(FOLLOW_US);
            self.look_by(place, self.now + late);
        }
    }

    /// Notifies the core that commands go to another server, for some or all hash slots.
    pub(crate) fn another_server(&mut self, place: Place) {
        match self.lanes(&self.processes[place.slot]) {
            Some(lanes) => self.event(place, |core| core.set_lanes(lanes)),
            None => self.event(place, |core| core.moved()),
        }
    }

    /// Returns the lanes of all locks' hash slots on a Cluster. A restarted server has another
    /// lane.
    pub(crate) fn lanes(&self, process: &Process) -> Option<Lanes> {
        let count = self.servers.len();
        let mut lanes = vec![0; usize::from(SLOTS)];
        for (lock, name) in self.names.iter().enumerate() {
            let owner = process.routing.owners[self.plan.slot(lock)];
            let era = (process.shards[owner].era % 2) as usize;
            lanes[usize::from(name.slot())] = (owner + era * count) as u16;
        }
        (count > 1).then(|| lanes.into())
    }

    /// Plans a topology refresh for the process.
    pub(crate) fn look_by(&mut self, place: Place, at: u64) {
        let routing = &mut self.processes[place.slot].routing;
        if routing.looks_at.is_none_or(|planned| at < planned) {
            routing.looks_at = Some(at);
            self.at(at, place, What::Looked);
        }
    }

    /// Plans a topology refresh for each process, within the usual time.
    pub(crate) fn all_look(&mut self) {
        for slot in 0..self.processes.len() {
            let place = Place { slot, name: self.processes[slot].name };
            let at = self.now + self.dice.below(FOLLOW_US);
            self.look_by(place, at);
        }
    }

    /// Refreshes the topology from a server, and notifies the core of moved slots.
    pub(crate) fn looked(&mut self, place: Place) {
        let routing = &mut self.processes[place.slot].routing;
        if routing.looks_at.is_none_or(|planned| planned > self.now) {
            return;
        }
        routing.looks_at = None;
        let shards = self.processes[place.slot].shards.iter().zip(&self.servers).enumerate();
        let up: Vec<usize> = shards
            .filter(|(_, (shard, server))| {
                shard.is_connected && server.reachable(self.now) <= self.now
            })
            .map(|(server, _)| server)
            .collect();
        if up.is_empty() {
            return self.look_by(place, self.now + FOLLOW_US);
        }
        let server = up[self.dice.below(up.len() as u64) as usize];
        for (slot, owner) in self.cluster.view(server).into_iter().enumerate() {
            self.finds(place, slot, owner);
        }
        let routing = &mut self.processes[place.slot].routing;
        if std::mem::take(&mut routing.has_moved) {
            self.another_server(place);
            self.notify_links(place);
        }
    }

    /// Notifies the core that a connection to this server was lost or recovered. While other
    /// connections are up, a lost connection changes nothing for them.
    pub(crate) fn linked(&mut self, place: Place, server: usize) {
        let process = &mut self.processes[place.slot];
        let shard = &process.shards[server];
        let is_up = shard.is_connected && shard.is_subscribed;
        let is_any_up = process.shards.iter().any(|shard| shard.is_connected)
            && process.shards.iter().any(|shard| shard.is_subscribed);
        let was_up = std::mem::replace(&mut process.routing.was_up, is_any_up);
        if self.servers.len() == 1 {
            return self.notify_links(place);
        }
        if !is_up {
            self.look_by(place, self.now + LEAST_US);
        }
        if is_up || !was_up || !is_any_up {
            self.notify_links(place);
        }
    }
}
