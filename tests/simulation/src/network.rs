//! The network: requests and responses in order while a connection lasts, and what happens to them
//! when it breaks.

use std::collections::BTreeMap;

use proto::node::StoreRequest;
use proto::{Acquired, Answer, Event, Link, LockErrorKind, NodeId, StoreError};

use crate::event_queue::{Place, Sent, What};
use crate::fault::Fault;
use crate::pairs::Mechanism;
use crate::process::Open;
use crate::routing::Way;
use crate::server::index;
use crate::world::{MS, World};

/// The time after which a request counts as unanswered, and the connection is abandoned.
pub(crate) const REQUEST_TIMEOUT_US: u64 = 2_000 * MS;
/// The longest time for a request's copy in a buffer.
pub(crate) const BUFFERED_US: u64 = 55_000 * MS;
/// The longest time after a request until a copy of it may run, while the connection lasts.
const REPEATED_US: u64 = 600 * MS;

impl World {
    pub(crate) fn latency(&mut self) -> u64 {
        match self.strikes(Fault::Late) {
            true => self.dice.below(4_000 * MS),
            false => self.dice.of(20, 400),
        }
    }

    pub(crate) fn send(&mut self, place: Place, request: StoreRequest) -> u64 {
        self.send_by(place, request, false)
    }

    /// Sends on a separate connection, and waits there until the replica has the write.
    pub(crate) fn confirm(&mut self, place: Place, request: StoreRequest) {
        self.send_by(place, request, true);
    }

    fn send_by(&mut self, place: Place, store_request: StoreRequest, waits: bool) -> u64 {
        self.requests += 1;
        let way = self.way(place, &store_request, waits);
        self.dispatch(place, self.requests, Open { store_request, way })
    }

    /// Sends a request to the routed server.
    pub(crate) fn dispatch(&mut self, place: Place, request: u64, open: Open) -> u64 {
        let Open { store_request, way: Way { server, waits, asking, .. } } = open.clone();
        self.print(place, "sends", &store_request);
        let latency = self.latency();
        let can_send = self.can_send(&self.processes[place.slot].shards[server], &store_request);
        let process = &mut self.processes[place.slot];
        process.open.insert(request, open);
        if !can_send {
            let answer = Err(StoreError::refused(LockErrorKind::Unavailable, "no connection"));
            let answered = What::Answered { request, answer, replicas: None };
            self.at(self.now + 300 * MS, place, answered);
            return request;
        }
        let slot = self.plan.slot(index(&store_request));
        let shard = &mut process.shards[server];
        let mut arrival = self.now + latency;
        if !waits {
            arrival = arrival.max(shard.last_arrival + 1);
            shard.last_arrival = arrival;
        }
        let (era, seen) = (shard.era, shard.seen[slot]);
        let greatest_token = process.greatest_tokens[slot];
        let sent = Sent { server, era, at: self.now, seen, greatest_token, asking };
        self.at(arrival, place, What::Arrive { request, store_request, sent, waits });
        self.times_out(place, request, arrival);
        if self.strikes(Fault::Break) {
            self.disconnect(place, server);
        }
        request
    }

    /// Lets a copy of a request run as well. Returns the delay of the response: the response to an
    /// acquire arrives after the copy has run.
    pub(crate) fn repeat(
        &mut self,
        place: Place,
        request: &StoreRequest,
        answer: &Answer,
        sent: Sent,
    ) -> u64 {
        let acquired = match answer {
            Answer::Acquired(reply) => Some(reply.outcome.as_slice()),
            _ => None,
        };
        // The copy of a refused acquire might be granted, and the caller would not know.
        let got_nothing = |one: &Acquired| {
            matches!(one, Acquired::Busy | Acquired::Full { .. } | Acquired::Refused)
        };
        let may_run = !acquired.unwrap_or_default().iter().any(got_nothing);
        if !may_run || !self.strikes(Fault::Repeat) {
            return 0;
        }
        let late = self.dice.below(REPEATED_US);
        self.at(self.now + late, place, What::Repeated { store_request: request.clone(), sent });
        acquired.map_or(0, |_| late)
    }

    /// Plans the request's timeout: a late response may be too late.
    pub(crate) fn times_out(&mut self, place: Place, request: u64, at: u64) {
        if at > self.now + REQUEST_TIMEOUT_US / 4 {
            self.at(self.now + REQUEST_TIMEOUT_US, place, What::TimedOut { request });
        }
    }

    /// Breaks a server's request connection: pending requests there get no response any more.
    pub(crate) fn disconnect(&mut self, place: Place, server: usize) {
        let process = &mut self.processes[place.slot];
        let shard = &mut process.shards[server];
        if !shard.is_connected {
            return;
        }
        shard.is_connected = false;
        self.may_be_overtaken(place.name);
        let process = &mut self.processes[place.slot];
        let shard = &mut process.shards[server];
        (shard.last_arrival, shard.last_reply) = (0, 0);
        let is_there = |open: &Open| open.way.is_sent && open.way.server == server;
        let (broken, kept) =
            std::mem::take(&mut process.open).into_iter().partition(|(_, open)| is_there(open));
        process.open = kept;
        let broken: BTreeMap<u64, Open> = broken;
        for (request, open) in broken {
            self.meets(index(&open.store_request), Mechanism::LostAnswer);
            // The response has another number, so that no request gets two responses.
            self.requests += 1;
            let renamed = self.requests;
            self.processes[place.slot].open.insert(renamed, open);
            if let Some(caller) = self.releases.remove(&request) {
                self.releases.insert(renamed, caller);
            }
            let answer = Err(StoreError::ambiguous("the connection broke"));
            let answered = What::Answered { request: renamed, answer, replicas: None };
            self.at(self.now + 10, place, answered);
        }
        self.linked(place, server);
        let again = self.dice.of(5 * MS, 600 * MS);
        self.at(
            self.servers[server].reachable(self.now) + again,
            place,
            What::Connected { server },
        );
    }

    pub(crate) fn connected(&mut self, place: Place, server: usize) {
        let at = self.servers[server].reachable(self.now);
        if at > self.now {
            return self.at(at + MS, place, What::Connected { server });
        }
        let shard = &mut self.processes[place.slot].shards[server];
        let of = &self.servers[server];
        let is_another = std::mem::replace(&mut shard.era, of.era) != of.era;
        shard.is_connected = true;
        self.own_meet(place.name, Mechanism::Reconnect);
        let of = &self.servers[server];
        let shard = &mut self.processes[place.slot].shards[server];
        shard.greet(of.time_us(self.now), is_another);
        if is_another {
            self.another_server(place);
        }
        self.linked(place, server);
    }

    pub(crate) fn cut(&mut self, place: Place, server: usize) {
        let shard = &mut self.processes[place.slot].shards[server];
        if !shard.is_subscribed {
            return;
        }
        shard.is_subscribed = false;
        self.may_be_overtaken(place.name);
        let noticed = self.dice.below(3_000 * MS);
        self.notice(place, server, noticed);
        self.linked(place, server);
        let again = self.dice.of(5 * MS, 900 * MS);
        self.at(
            self.servers[server].reachable(self.now) + again,
            place,
            What::Subscribed { server },
        );
    }

    /// Reopens the subscription at a server that does not count it. Each shard of a Cluster does so
    /// separately.
    pub(crate) fn reopen(&mut self, place: Place) {
        for server in 0..self.servers.len() {
            if self.servers.len() == 1 || !self.servers[server].hears(place.name) {
                self.cut(place, server);
            }
        }
    }

    /// Plans for the server to notice, after this time, that a subscription is gone, if no later
    /// subscription has replaced it.
    pub(crate) fn notice(&mut self, place: Place, server: usize, after: u64) {
        let of = &self.servers[server];
        if let Some(subscription) = of.subscription(place.name) {
            let at = of.reachable(self.now) + after;
            self.at(at, place, What::Unheard { server, subscription });
        }
    }

    pub(crate) fn subscribed(&mut self, place: Place, server: usize) {
        let at = self.servers[server].reachable(self.now);
        if at > self.now {
            return self.at(at + MS, place, What::Subscribed { server });
        }
        self.servers[server].subscribe(place.name);
        self.own_meet(place.name, Mechanism::Reconnect);
        self.processes[place.slot].shards[server].is_subscribed = true;
        self.linked(place, server);
        self.looks(place, |core| core.heard(Event::Resubscribed));
        self.hears_again(place);
    }

    /// Notifies the core of the connection states: up while any connection is up.
    pub(crate) fn notify_links(&mut self, place: Place) {
        let of = |is_up: bool| match is_up {
            true => Link::Up,
            false => Link::down("cut"),
        };
        let process = &self.processes[place.slot];
        let commands = of(process.shards.iter().any(|shard| shard.is_connected));
        let subscription = of(process.shards.iter().any(|shard| shard.is_subscribed));
        self.event(place, |core| core.linked(commands, subscription));
    }

    pub(crate) fn publish(&mut self, (server, slot): (usize, usize), node: &NodeId, event: Event) {
        self.outcome.messages += 1;
        let name: u64 = node.as_str().parse().expect("nodes are numbers");
        let Some(at) = self.slots[name as usize] else { return };
        let place = Place { slot: at, name };
        if !self.processes[at].shards[server].is_subscribed {
            return;
        }
        if self.strikes(Fault::Cut) {
            return self.at(self.now, place, What::Cut { server });
        }
        if self.strikes(Fault::LostMessage) {
            self.may_be_overtaken(name);
            return;
        }
        let heard_at = self.now + self.latency();
        self.at(heard_at, place, What::Heard { slot, event });
    }
}
