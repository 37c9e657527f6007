//! The network: requests and answers in their order as long as a connection lasts, and their fate
//! when it breaks.

use proto::node::Ask;
use proto::{Acquired, Answer, Event, Link, LockErrorKind, NodeId, StoreError};

use crate::agenda::{Place, What};
use crate::fault::Fault;
use crate::process::Seen;
use crate::world::{MS, World};

/// The time after which a request counts as not answered, and its connection is given up.
pub(crate) const REQUEST_TIMEOUT_US: u64 = 2_000 * MS;
/// The longest time that a copy of a request may sit in some buffer.
pub(crate) const BUFFERED_US: u64 = 55_000 * MS;
/// The longest time after a request that a copy of it may run, while the connection lasts.
const REPEATED_US: u64 = 600 * MS;

impl World {
    pub(crate) fn latency(&mut self) -> u64 {
        match self.strikes(Fault::Late) {
            true => self.dice.below(4_000 * MS),
            false => self.dice.of(20, 400),
        }
    }

    pub(crate) fn send(&mut self, place: Place, ask: Ask) -> u64 {
        self.send_by(place, ask, false)
    }

    /// Sends by a connection of its own, and waits there until the replica has the write.
    pub(crate) fn confirm(&mut self, place: Place, ask: Ask) {
        self.send_by(place, ask, true);
    }

    fn send_by(&mut self, place: Place, ask: Ask, waits: bool) -> u64 {
        self.tell(place, "sends", &ask);
        self.requests += 1;
        let request = self.requests;
        let latency = self.latency();
        let process = &mut self.processes[place.slot];
        process.open.insert(request, ask.clone());
        if !process.is_connected {
            let answer = Err(StoreError::refused(LockErrorKind::Unavailable, "no connection"));
            let answered = What::Answered { request, answer, replicas: None };
            self.at(self.now + 300 * MS, place, answered);
            return request;
        }
        let mut arrival = self.now + latency;
        if !waits {
            arrival = arrival.max(process.last_arrival + 1);
            process.last_arrival = arrival;
        }
        let era = process.era;
        let sent = self.now;
        let seen = process.seen;
        self.at(arrival, place, What::Arrive { request, ask, era, sent, seen, waits });
        self.times_out(place, request, arrival);
        if self.strikes(Fault::Break) {
            self.disconnect(place);
        }
        request
    }

    /// Lets a copy of a request run as well. Returns the delay of the answer: an acquire's comes
    /// after the copy has run.
    pub(crate) fn repeat(
        &mut self,
        place: Place,
        ask: &Ask,
        answer: &Answer,
        (era, seen): (u64, Seen),
    ) -> u64 {
        let acquired = match answer {
            Answer::Acquired(reply) => Some(reply.outcome.as_slice()),
            _ => None,
        };
        // The copy of an acquire that got nothing could be granted, and its caller would not know.
        let got_nothing =
            |one: &Acquired| matches!(one, Acquired::Busy | Acquired::Full | Acquired::Refused);
        let may_run = !acquired.unwrap_or_default().iter().any(got_nothing);
        if !may_run || !self.strikes(Fault::Repeat) {
            return 0;
        }
        let late = self.dice.below(REPEATED_US);
        self.at(self.now + late, place, What::Repeated { ask: ask.clone(), era, seen });
        acquired.map_or(0, |_| late)
    }

    /// Plans the end of a request's time: an answer that is late may be too late.
    pub(crate) fn times_out(&mut self, place: Place, request: u64, at: u64) {
        if at > self.now + REQUEST_TIMEOUT_US / 4 {
            self.at(self.now + REQUEST_TIMEOUT_US, place, What::TimedOut { request });
        }
    }

    /// Breaks the connection for requests: no open request is answered any more.
    pub(crate) fn disconnect(&mut self, place: Place) {
        let process = &mut self.processes[place.slot];
        if !process.is_connected {
            return;
        }
        process.is_connected = false;
        (process.last_arrival, process.last_reply) = (0, 0);
        for ask in std::mem::take(&mut process.open) {
            // The answer has another number: no request has both its arrival and its answer.
            let (request, ask) = ask;
            self.requests += 1;
            let renamed = self.requests;
            self.processes[place.slot].open.insert(renamed, ask);
            if let Some(caller) = self.releases.remove(&request) {
                self.releases.insert(renamed, caller);
            }
            let answer = Err(StoreError::ambiguous("the connection broke"));
            let answered = What::Answered { request: renamed, answer, replicas: None };
            self.at(self.now + 10, place, answered);
        }
        self.linked(place);
        let again = self.dice.of(5 * MS, 600 * MS);
        self.at(self.server.reachable(self.now) + again, place, What::Connected);
    }

    pub(crate) fn connected(&mut self, place: Place) {
        if self.server.reachable(self.now) > self.now {
            return self.at(self.server.reachable(self.now) + MS, place, What::Connected);
        }
        let process = &mut self.processes[place.slot];
        let old = std::mem::replace(&mut process.era, self.server.era);
        process.is_connected = true;
        let is_another = old != self.server.era;
        process.seen.greet(self.server.time_us(self.now), is_another);
        if is_another {
            self.event(place, |core| core.moved());
        }
        self.linked(place);
    }

    pub(crate) fn cut(&mut self, place: Place) {
        let process = &mut self.processes[place.slot];
        if !process.is_subscribed {
            return;
        }
        process.is_subscribed = false;
        let noticed = self.dice.below(3_000 * MS);
        self.notice(place, noticed);
        self.linked(place);
        let again = self.dice.of(5 * MS, 900 * MS);
        self.at(self.server.reachable(self.now) + again, place, What::Subscribed);
    }

    /// Plans for the server to notice after this time that a subscription is gone, if it is the
    /// last one.
    pub(crate) fn notice(&mut self, place: Place, after: u64) {
        if let Some(subscription) = self.server.subscription(place.name) {
            let at = self.server.reachable(self.now) + after;
            self.at(at, place, What::Unheard { subscription });
        }
    }

    pub(crate) fn subscribed(&mut self, place: Place) {
        if self.server.reachable(self.now) > self.now {
            return self.at(self.server.reachable(self.now) + MS, place, What::Subscribed);
        }
        self.server.subscribe(place.name);
        self.processes[place.slot].is_subscribed = true;
        self.linked(place);
        self.looks(place, |core| core.heard(Event::Resubscribed));
        self.hears_again(place);
    }

    fn linked(&mut self, place: Place) {
        let of = |is_up: bool| match is_up {
            true => Link::Up,
            false => Link::down("cut"),
        };
        let process = &self.processes[place.slot];
        let commands = of(process.is_connected);
        let subscription = of(process.is_subscribed);
        self.event(place, |core| core.linked(commands, subscription));
    }

    pub(crate) fn publish(&mut self, node: &NodeId, event: Event) {
        let name: u64 = node.as_str().parse().expect("nodes are numbers");
        let Some(slot) = self.slots[name as usize] else { return };
        let place = Place { slot, name };
        if !self.processes[slot].is_subscribed {
            return;
        }
        if self.strikes(Fault::Cut) {
            return self.at(self.now, place, What::Cut);
        }
        if self.strikes(Fault::LostMessage) {
            return;
        }
        let told_at = self.now + self.latency();
        self.at(told_at, place, What::Told { event });
    }
}
