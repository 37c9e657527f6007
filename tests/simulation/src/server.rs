//! A server: the protocol's function on each lock, a clock, and the subscriptions.

use proto::node::{StoreRequest, Way};
use proto::queue::{Bounds, Call, Message};
use proto::{
    Acquired, Answer, Command, Demand, Event, Left, LockErrorKind, Member, NodeId, Presence,
    Released, Reply, StoreError,
};

use crate::dice::Dice;
use crate::event_queue::{Place, Sent, What};
use crate::facts::Before;
use crate::fault::Fault;
use crate::judge::{Who, who};
use crate::network::BUFFERED_US;
use crate::pairs::Mechanism;
use crate::plan::Plan;
use crate::process::Seen;
use crate::replica::{Counters, Replica};
use crate::resource::{Resource, bounds};
use crate::world::{MS, World};

/// The server's time at the start, µs.
const START_US: u64 = 1_700_000_000_000_000;
/// The greatest difference between two primaries' clocks: a tombstone must outlast a buffered
/// request, even if the lock moves.
const APART_US: u64 = 4_000 * MS;
/// A request older than this, in µs, has been in a buffer once.
const FRESH_US: u64 = 5_000 * MS;

pub(crate) struct Server {
    pub(crate) locks: Vec<Resource>,
    /// The token counters by hash slot.
    pub(crate) counters: Counters,
    /// Whether the server has the command that deletes a key only if it has a given value.
    can_compare: bool,
    /// How much a single command may do.
    bounds: Bounds,
    /// The clock: until the first time, in world time, it shows the second time, and then it runs.
    pub(crate) clock: (u64, u64),
    /// The clock rate, in millionths.
    rate: u64,
    /// How far the clock was set back in total.
    pub(crate) set_back_us: u64,
    /// The latest time shown by the clock before the last step.
    pub(crate) peak_us: u64,
    /// The subscription counted for each process, by name; 0 without a subscription.
    heard: Vec<u64>,
    subscriptions: u64,
    /// The server number, which rises with each replacement.
    pub(crate) era: u64,
    pub(crate) down_until: u64,
    pub(crate) frozen_until: u64,
    pub(crate) full_until: u64,
    pub(crate) read_only_until: u64,
    pub(crate) stepped_at: u64,
    pub(crate) replica: Replica,
}

impl Server {
    /// Creates a server whose clock has this rate, and is ahead by `ahead_us`.
    pub(crate) fn new(plan: &Plan, rate: u64, ahead_us: u64) -> Self {
        Self {
            locks: Resource::all(plan),
            counters: vec![None; plan.slots()],
            can_compare: !plan.seed.is_multiple_of(3),
            bounds: bounds(plan),
            clock: (0, START_US + ahead_us),
            rate,
            set_back_us: 0,
            peak_us: START_US + ahead_us,
            heard: Vec::new(),
            subscriptions: 0,
            era: 0,
            down_until: 0,
            frozen_until: 0,
            full_until: 0,
            read_only_until: 0,
            stepped_at: 0,
            replica: Replica::default(),
        }
    }

    /// Returns the server's time, µs.
    pub(crate) fn time_us(&self, now: u64) -> u64 {
        let (since, showed) = self.clock;
        let passed = now.saturating_sub(since);
        showed + (u128::from(passed) * u128::from(self.rate) / 1_000_000) as u64
    }

    /// Returns the server's time, ms.
    pub(crate) fn clock_ms(&self, now: u64) -> u64 {
        self.time_us(now) / MS
    }

    /// Sets the server's clock.
    pub(crate) fn show(&mut self, now: u64, time_us: u64) {
        self.set_back_us += self.time_us(now).saturating_sub(time_us);
        self.clock = (now.max(self.clock.0), time_us);
    }

    /// Returns the world time at which the clock shows `time_us`, unless the clock is set.
    pub(crate) fn world_us(&self, time_us: u64) -> u64 {
        let (since, showed) = self.clock;
        let passed = u128::from(time_us.saturating_sub(showed)) * 1_000_000;
        since + (passed / u128::from(self.rate)) as u64
    }

    /// Returns the earliest time for a new connection.
    pub(crate) fn reachable(&self, now: u64) -> u64 {
        now.max(self.frozen_until).max(self.down_until)
    }

    pub(crate) fn subscribe(&mut self, name: u64) {
        self.subscriptions += 1;
        let name = name as usize;
        if self.heard.len() <= name {
            self.heard.resize(name + 1, 0);
        }
        self.heard[name] = self.subscriptions;
    }

    pub(crate) fn subscription(&self, name: u64) -> Option<u64> {
        self.heard.get(name as usize).copied().filter(|subscription| *subscription > 0)
    }

    pub(crate) fn unheard(&mut self, name: u64, subscription: u64) {
        if self.subscription(name) == Some(subscription) {
            self.heard[name as usize] = 0;
        }
    }

    pub(crate) fn hears(&self, name: u64) -> bool {
        self.subscription(name).is_some()
    }

    pub(crate) fn forget_subscriptions(&mut self) {
        self.heard.fill(0);
    }

    /// Returns the error if the server refuses this command; otherwise `None`.
    fn refuses(&self, now: u64, lock: usize, command: &Command) -> Option<StoreError> {
        if now < self.read_only_until {
            let text = "READONLY You can't write against a read only replica.";
            return Some(StoreError::refused(LockErrorKind::ReadOnly, text));
        }
        // A release frees memory, so it is allowed; so is an acquire by a holder.
        let Command::Acquire { members, .. } = command else { return None };
        let now_ms = self.time_us(now) / 1_000;
        let has = members.iter().all(|member| self.locks[lock].knows(member, now_ms));
        let text = "OOM command not allowed when used memory > 'maxmemory'.";
        let refused = || StoreError::refused(LockErrorKind::OutOfMemory, text);
        (now < self.full_until && !has).then(refused)
    }
}

/// Returns a run's servers. Their clocks only differ if that is a fault.
pub(crate) fn servers(plan: &Plan, dice: &mut Dice) -> Vec<Server> {
    // Together with a process's rate, this is at most three quarters of the margin.
    let rate = dice.of(998_000, 1_002_000);
    let apart = plan.faults.have_any([Fault::Apart]);
    let ahead = |dice: &mut Dice| if apart { dice.below(APART_US) } else { 0 };
    (0..plan.primaries).map(|_| Server::new(plan, rate, ahead(dice))).collect()
}

impl World {
    pub(crate) fn arrive(&mut self, place: Place, what: What) {
        let What::Arrive { request, store_request, sent, waits } = what else { return };
        let again = |store_request| What::Arrive { request, store_request, sent, waits };
        let server = sent.server;
        let process = &self.processes[place.slot];
        let is_open = process.name == place.name && process.open.contains_key(&request);
        if sent.era != self.servers[server].era {
            return;
        }
        if self.servers[server].frozen_until > self.now {
            if is_open {
                self.times_out(place, request, u64::MAX);
            }
            let until = self.servers[server].frozen_until;
            return self.at(until, place, again(store_request));
        }
        if !is_open {
            // A request from a broken connection: lost, or in a buffer.
            let is_first = self.now < sent.at + FRESH_US;
            if self.now > sent.at + BUFFERED_US {
                return;
            }
            match self.dice.below(4) {
                0 if is_first => {
                    let later = self.now.max(sent.at + self.dice.below(BUFFERED_US));
                    return self.at(later, place, again(store_request));
                }
                1 if is_first => return,
                _ => {}
            }
        }
        if self.upset(server) {
            // The primary was replaced, or is down.
            return self.arrive(place, again(store_request));
        }
        let lock = index(&store_request);
        if self.deletes_nothing(server, lock, &store_request) {
            return self.falls_back(place, request, again(store_request));
        }
        self.shift(lock);
        let refusal = self.turns_away(server, &store_request, sent.asking);
        let refusal = refusal
            .or_else(|| self.servers[server].refuses(self.now, lock, &store_request.command));
        let answer = match refusal {
            Some(error) => {
                if error.kind == LockErrorKind::OutOfMemory {
                    self.meets(lock, Mechanism::FullMemory);
                }
                Err(error)
            }
            None if self.strikes(Fault::Refuse) => {
                let text = "BUSY Redis is busy running a script.";
                Err(StoreError::refused(LockErrorKind::Unavailable, text))
            }
            None => Ok(self.serve(place.name, lock, &store_request, sent)),
        };
        self.print(place, "has run", &(&store_request, &answer));
        if is_open && self.processes[place.slot].open.contains_key(&request) {
            let again = match &answer {
                Ok(answer) => self.repeat(place, &store_request, answer, sent),
                Err(_) => 0,
            };
            if self.strikes(Fault::Swallow) {
                return self.times_out(place, request, u64::MAX);
            }
            let late = self.latency().max(again);
            let (reply_at, replicas) = match waits {
                true => self.wait_for_replica(server, lock, late),
                false => {
                    let shard = &mut self.processes[place.slot].shards[server];
                    (shard.replies_at(self.now + late), None)
                }
            };
            self.at(reply_at, place, What::Answered { request, answer, replicas });
            self.times_out(place, request, reply_at);
        }
    }

    pub(crate) fn arrive_again(&mut self, place: Place, what: What) {
        let What::Repeated { store_request, sent } = what else { return };
        let lock = index(&store_request);
        let server = &self.servers[sent.server];
        // While the server is frozen the copy is lost: otherwise it would run after the response.
        let is_lost = sent.era != server.era
            || self.deletes_nothing(sent.server, lock, &store_request)
            || server.frozen_until > self.now
            || server.refuses(self.now, lock, &store_request.command).is_some()
            || self.turns_away(sent.server, &store_request, sent.asking).is_some();
        if !is_lost {
            let answer = self.serve(place.name, lock, &store_request, sent);
            self.print(place, "has run once more", &(&store_request, &answer));
        }
    }

    /// Whether a release by a plain command, which compares the lock key, changes nothing.
    fn deletes_nothing(&self, server: usize, lock: usize, request: &StoreRequest) -> bool {
        let Command::Release { member } = &request.command else { return false };
        let Server { locks, can_compare, .. } = &self.servers[server];
        let is_plain =
            *can_compare && request.way == Way::Fast && member.demand() == Demand::EXCLUSIVE;
        is_plain && !locks[lock].stores_only(member, self.servers[server].clock_ms(self.now))
    }

    /// Lets the store send a release that has deleted nothing once more, by the script. Without a
    /// caller, such a release is over.
    fn falls_back(&mut self, place: Place, request: u64, what: What) {
        let What::Arrive { mut store_request, sent, waits, .. } = what else { return };
        let process = &mut self.processes[place.slot];
        let is_open = process.name == place.name;
        let Some(open) = process.open.get_mut(&request).filter(|_| is_open) else { return };
        store_request.way = Way::FellBack;
        open.store_request.way = Way::FellBack;
        let arrival = self.now + self.latency() + self.latency();
        self.at(arrival, place, What::Arrive { request, store_request, sent, waits });
        self.times_out(place, request, arrival);
    }

    fn wait_for_replica(&mut self, server: usize, lock: usize, late: u64) -> (u64, Option<u32>) {
        let arrives = self.now + self.dice.of(20, 400);
        let Server { replica, locks, counters, .. } = &mut self.servers[server];
        let is = (&locks[lock], &*counters);
        let (until, count) = replica.wait_for([self.now, arrives], lock, is);
        (until + late, Some(count))
    }

    fn serve(&mut self, name: u64, lock: usize, request: &StoreRequest, sent: Sent) -> Answer {
        self.outcome.size.events += 1;
        let Sent { server, seen, .. } = sent;
        let now_us = self.servers[server].time_us(self.now);
        let node = match self.slots[name as usize] {
            Some(slot) => self.processes[slot].id.clone(),
            None => NodeId::from(&*format!("{name:022}")),
        };
        if !self.is_moving(lock) {
            self.homes[lock] = server;
        }
        let slot = self.plan.slot(lock);
        let server = &mut self.servers[server];
        let state = &mut server.locks[lock];
        state.0.expire(now_us / 1_000);
        let before = Before::of(state, now_us / 1_000, sent, &request.command);
        let (answer, events) = server.step((lock, slot), (&node, request), now_us, seen);
        let reported = reported_tokens(&answer, &events);
        self.judge(lock, &before, (name, &reported), &request.command, &answer);
        self.live_on(lock, &request.command, &answer);
        for (node, event) in events {
            self.publish((sent.server, slot), &node, event);
        }
        in_short(answer, &request.command, before.is_free(), &self.home(lock).locks[lock])
    }
}

impl Server {
    /// Runs a command, by the rules of the protocol.
    fn step(
        &mut self,
        (lock, slot): (usize, usize),
        (node, request): (&NodeId, &StoreRequest),
        now_us: u64,
        seen: Seen,
    ) -> (Answer, Vec<(NodeId, Event)>) {
        let Self { locks, heard, bounds, counters, .. } = self;
        let connected = |text: &str| {
            text.parse::<usize>().is_ok_and(|name| heard.get(name).is_some_and(|is| *is > 0))
        };
        let mut call = Call::new(node, &connected, now_us);
        (call.bounds, call.counter) = (*bounds, counters[slot]);
        (call.floor_us, call.elsewhere_us) = (seen.floor_us(), seen.elsewhere_us);
        let answer = match request.way {
            Way::Fast if matches!(request.command, Command::Acquire { .. }) => {
                locks[lock].0.step_fast(&mut call, &request.command)
            }
            _ => locks[lock].0.step(&mut call, &request.command),
        };
        counters[slot] = call.counter;
        (answer, call.messages.into_iter().map(Message::event).collect())
    }
}

/// Returns the tokens reported in the reply and the events, with the members receiving them.
fn reported_tokens(answer: &Answer, events: &[(NodeId, Event)]) -> Vec<(Who, u64)> {
    let mut reported = reported_by(answer);
    for (node, event) in events {
        let name: u64 = node.as_str().parse().expect("nodes are numbers");
        let granted = granted_by(event).into_iter();
        reported.extend(granted.map(|(number, token)| ((name, number), token)));
    }
    reported
}

/// Returns the tokens reported in the reply, with the members receiving them.
pub(crate) fn reported_by(answer: &Answer) -> Vec<(Who, u64)> {
    let mut reported = Vec::new();
    for grant in answer.grants() {
        let (name, number) = who(&grant.member);
        let alone = [number];
        let batch = if grant.batch.is_empty() { &alone[..] } else { &grant.batch };
        reported.extend(
            batch.iter().zip(grant.token.get()..).map(|(one, token)| ((name, *one), token)),
        );
    }
    reported
}

/// Returns the numbers of the members that a message grants, each with the token.
pub(crate) fn granted_by(event: &Event) -> Vec<(u64, u64)> {
    match event {
        Event::Granted { token, grants } => {
            grants.iter().map(|(number, _)| (*number, token.get())).collect()
        }
        Event::GrantedBatch { token, numbers, .. } => {
            numbers.iter().copied().zip(token.get()..).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the reply as sent over the wire: short forms omit most of it.
fn in_short(mut answer: Answer, command: &Command, was_free: bool, is: &Resource) -> Answer {
    let is_lock = |member: &Member| member.demand() == Demand::EXCLUSIVE;
    let is_alone = is.queue_len() == 0;
    match (&mut answer, command) {
        (Answer::Acquired(reply), Command::Acquire { members, .. }) => {
            let ([member], [outcome]) = (members.as_slice(), reply.outcome.as_slice()) else {
                let are_queued =
                    reply.outcome.iter().all(|one| matches!(one, Acquired::Queued { .. }));
                if are_queued && is.is_held_whole() {
                    reply.now_us = None;
                }
                return answer;
            };
            match outcome {
                Acquired::Granted if is_lock(member) && was_free => leave_out(reply, true),
                Acquired::Granted if !is_lock(member) && is_alone => leave_out(reply, false),
                Acquired::Queued { .. } if is_lock(member) && is.is_held_whole() => {
                    reply.now_us = None;
                }
                _ => {}
            }
        }
        (Answer::Released(reply), Command::Release { member })
            if reply.outcome == Released::Released && (is_alone || is_lock(member)) =>
        {
            let is_one = reply.grants.len() < 2 && !reply.more && reply.skipped == 0;
            if is_one && (reply.grants.is_empty() || is_lock(&reply.grants[0].member)) {
                leave_out(reply, true);
            }
        }
        (Answer::Renewed(reply), Command::Renew { .. }) => leave_out(reply, false),
        (Answer::Touched(reply), Command::Touch { members })
            if !members.is_empty()
                && is.is_held_whole()
                && reply.outcome.members.iter().all(|is| *is == Presence::Waiting) =>
        {
            reply.now_us = None;
        }
        (Answer::Left(reply), Command::Leave { leaving })
            if is.is_held_whole()
                && leaving.iter().all(|leaving| !leaving.ambiguous)
                && !reply.outcome.contains(&Left::Absent) =>
        {
            reply.now_us = None;
        }
        _ => {}
    }
    answer
}

fn leave_out<T>(reply: &mut Reply<T>, with_time: bool) {
    reply.first_end_ms = None;
    if with_time {
        reply.now_us = None;
    }
}

/// Returns the index of a lock, whose name is the number, behind the hash tag if there is one.
pub(crate) fn index(request: &StoreRequest) -> usize {
    let name = request.lock.as_str();
    let number = name.rsplit_once('}').map_or(name, |(_, number)| number);
    number.parse().expect("locks are numbers")
}
