//! The servers as a Redis Cluster: which primary has each hash slot, and slots that move, key by
//! key or all at once.
//!
//! A lock moves in two parts: the lock key with the holds, and all other keys. In between, a
//! command finds only some of the keys.

use proto::node::StoreRequest;
use proto::queue::QueueState;
use proto::{Command, Demand, LockErrorKind, Member, StoreError};

use crate::event_queue::{Place, What};
use crate::fault::Fault;
use crate::pairs::Mechanism;
use crate::plan::Plan;
use crate::resource::Resource;
use crate::routing::HOST;
use crate::server::{Server, index};
use crate::world::{MS, World};

/// The longest time until all servers know a slot's new owner.
const AGREED_US: u64 = 500 * MS;
/// The longest time between two keys of a moving slot.
const OPEN_US: u64 = 10_000 * MS;

/// The servers as a Redis Cluster: who has each hash slot, and which slots are moving.
pub(crate) struct Cluster {
    /// The primary of each slot, as all servers will know it.
    owners: Vec<usize>,
    /// The primary of each slot, as each server knows it.
    views: Vec<Vec<usize>>,
    /// The slots open between two servers.
    moves: Vec<Option<Move>>,
    number: u64,
}

/// A slot moving from one server to another.
struct Move {
    from: usize,
    to: usize,
    number: u64,
    /// The keys still to be moved, the next key last.
    keys: Vec<Keys>,
}

/// Keys that move in a single step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// The token counter.
    Counter,
    /// The lock key, and the holds.
    Holds(usize),
    /// The lock's waiters and tombstones.
    Waiters(usize),
}

impl Cluster {
    pub(crate) fn new(plan: &Plan) -> Self {
        let slots = plan.slots();
        let owners: Vec<usize> = (0..slots).map(|slot| slot % plan.primaries as usize).collect();
        let views = vec![owners.clone(); plan.primaries as usize];
        Self { owners, views, moves: (0..slots).map(|_| None).collect(), number: 0 }
    }

    pub(crate) fn owners(&self) -> &[usize] {
        &self.owners
    }

    /// Returns the primary of each slot, as reported by this server.
    pub(crate) fn view(&self, server: usize) -> Vec<usize> {
        self.views[server].clone()
    }

    /// Informs a server of a slot's owner.
    pub(crate) fn agreed(&mut self, server: usize, slot: usize) {
        self.views[server][slot] = self.owners[slot];
    }
}

/// Moves some of a lock's keys, with their ends converted to a clock that is `ahead_ms` ahead: a
/// key moves with the remaining time, but times within a key stay as they are.
fn take(state: &mut QueueState, keys: Keys, ahead_ms: i64, into: &mut QueueState) {
    let later = |end_ms: &mut u64| *end_ms = end_ms.saturating_add_signed(ahead_ms);
    match keys {
        Keys::Counter => {}
        Keys::Holds(_) => {
            (into.lock_key, into.holds) = (state.lock_key.take(), std::mem::take(&mut state.holds));
            into.reduced = std::mem::take(&mut state.reduced);
            into.holds_end_ms = state.holds_end_ms.take();
            into.lock_key
                .iter_mut()
                .filter_map(|lock_key| lock_key.ends_ms.as_mut())
                .for_each(later);
            into.holds_end_ms.iter_mut().for_each(later);
        }
        Keys::Waiters(_) => {
            (into.queue, into.tombstones) =
                (std::mem::take(&mut state.queue), std::mem::take(&mut state.tombstones));
            into.patience = std::mem::take(&mut state.patience);
            into.set_aside = std::mem::take(&mut state.set_aside);
            into.queue_ends_ms = state.queue_ends_ms.take();
            into.patience.values_mut().for_each(later);
            into.set_aside.values_mut().for_each(|passed| later(&mut passed.ends_ms));
            into.queue_ends_ms.iter_mut().for_each(later);
        }
    }
}

/// Whether a renewal takes the short path, which only reads keys of holds.
fn is_short(members: &[Member], state: &QueueState) -> bool {
    let is_held = |member: &Member| state.holds.get(member).is_some();
    members.iter().all(|member| member.demand() == Demand::EXCLUSIVE || is_held(member))
}

fn stopped() -> StoreError {
    StoreError::ambiguous("ERR Script attempted to access a non local key in a cluster node")
}

fn refused(detail: String) -> StoreError {
    StoreError::refused(LockErrorKind::Unsupported, detail)
}

impl World {
    /// Returns the server that has the lock key and the holds.
    pub(crate) fn home(&self, lock: usize) -> &Server {
        &self.servers[self.homes[lock]]
    }

    /// Returns the error if a server refuses a command because of its hash slot; otherwise `None`.
    pub(crate) fn turns_away(
        &mut self,
        server: usize,
        request: &StoreRequest,
        asking: bool,
    ) -> Option<StoreError> {
        if self.servers.len() == 1 {
            return None;
        }
        let (lock, number) = (index(request), request.lock.slot());
        let slot = self.plan.slot(lock);
        let covers_all = self.plan.seed.is_multiple_of(2);
        if covers_all && self.servers.iter().any(|server| server.down_until > self.now) {
            return Some(refused("CLUSTERDOWN The cluster is down".into()));
        }
        let owner = self.cluster.views[server][slot];
        let moving = self.cluster.moves[slot].as_ref();
        let (is_target, is_source) = moving.map_or((false, false), |moving| {
            (moving.to == server && owner != server, moving.from == server && owner == server)
        });
        if owner != server && !(asking && is_target) {
            return Some(refused(format!("MOVED {number} {HOST}:{owner}")));
        }
        // A settled slot is served.
        let Move { to, keys: left, .. } = moving.filter(|_| is_target || is_source)?;
        let Server { locks, counters, .. } = &self.servers[server];
        let has_lock_key = self.homes[lock] == server && locks[lock].0.lock_key.is_some();
        let has_counter = counters[slot].is_some();
        let try_again = || refused("TRYAGAIN Multiple keys request during rehashing".into());
        let ask_there = || refused(format!("ASK {number} {HOST}:{to}"));
        // The lock key is the only declared key.
        if let Command::Renew { members, .. } = &request.command {
            return match has_lock_key {
                true => (!is_short(members, &locks[lock].0)).then(stopped),
                false if is_source => Some(ask_there()),
                // The lock key ended during the move. The target runs scripts with a single key,
                // and only the long path is stopped there, at its first write.
                false => match &members[..] {
                    [member] if member.demand() == Demand::EXCLUSIVE => None,
                    _ => Some(stopped()),
                },
            };
        }
        match (has_lock_key, has_counter) {
            (false, false) if is_source => return Some(ask_there()),
            (true, true) => {}
            _ => return Some(try_again()),
        }
        // A script that accesses a missing key is stopped before the first write. So it creates no
        // key that would stay behind.
        let are_elsewhere = !left.contains(&Keys::Waiters(lock));
        if is_source && (are_elsewhere || self.dice.one_in(2)) {
            return Some(stopped());
        }
        None
    }

    /// Whether the lock's hash slot is open between two servers.
    pub(crate) fn is_moving(&self, lock: usize) -> bool {
        self.cluster.moves[self.plan.slot(lock)].is_some()
    }

    /// Lets the lock's hash slot move to another server, now and then.
    pub(crate) fn shift(&mut self, lock: usize) {
        let servers = self.servers.len();
        if servers == 1 || !self.strikes(Fault::MoveSlot) {
            return;
        }
        let slot = self.plan.slot(lock);
        let from = self.cluster.owners[slot];
        let to = (from + self.dice.of(1, servers as u64 - 1) as usize) % servers;
        let knows = |server: usize| self.cluster.views[server][slot] == from;
        let is_up = |server: usize| self.servers[server].reachable(self.now) <= self.now;
        if self.cluster.moves[slot].is_some()
            || ![from, to].into_iter().all(|server| knows(server) && is_up(server))
        {
            return;
        }
        let locks = (0..self.plan.locks as usize).filter(|lock| self.plan.slot(*lock) == slot);
        let locks: Vec<usize> = locks.collect();
        locks.iter().for_each(|lock| self.meets(*lock, Mechanism::MoveSlot));
        let mut keys: Vec<Keys> =
            locks.into_iter().flat_map(|lock| [Keys::Holds(lock), Keys::Waiters(lock)]).collect();
        keys.push(Keys::Counter);
        for at in (1..keys.len()).rev() {
            keys.swap(at, self.dice.below(at as u64 + 1) as usize);
        }
        self.cluster.number += 1;
        let number = self.cluster.number;
        let moving = Move { from, to, number, keys };
        self.cluster.moves[slot] = Some(moving);
        if self.dice.one_in(4) {
            // All keys move at once: no other command runs meanwhile.
            while self.moves_key(slot) {}
            return self.has_moved(slot);
        }
        self.go_on(slot, number);
    }

    fn go_on(&mut self, slot: usize, number: u64) {
        let longest = if self.dice.one_in(60) { OPEN_US } else { 4 * MS };
        let at = self.now + self.dice.below(longest);
        self.at(at, Place { slot: 0, name: 0 }, What::Moves { slot, number });
    }

    /// Moves a slot's next key, or assigns the slot to the new server once no key is left.
    pub(crate) fn moves(&mut self, slot: usize, number: u64) {
        let Some(moving) = &self.cluster.moves[slot] else { return };
        if moving.number != number {
            return;
        }
        let ends = [moving.from, moving.to].map(|server| self.servers[server].reachable(self.now));
        if ends.into_iter().any(|at| at > self.now) || self.moves_key(slot) {
            return self.go_on(slot, number);
        }
        self.has_moved(slot);
    }

    /// Moves the next key. Returns whether there was a key.
    fn moves_key(&mut self, slot: usize) -> bool {
        let Some(moving) = &mut self.cluster.moves[slot] else { return false };
        let Some(keys) = moving.keys.pop() else { return false };
        let (from, to) = (moving.from, moving.to);
        self.carry(keys, slot, (from, to));
        true
    }

    fn carry(&mut self, keys: Keys, slot: usize, (from, to): (usize, usize)) {
        let Ok([from, into]) = self.servers.get_disjoint_mut([from, to]) else { return };
        let ahead = |a: u64, b: u64| (b / MS) as i64 - (a / MS) as i64;
        let ahead_ms = ahead(from.time_us(self.now), into.time_us(self.now));
        match keys {
            Keys::Counter => into.counters[slot] = from.counters[slot].take(),
            Keys::Holds(lock) | Keys::Waiters(lock) => {
                let now_ms = from.clock_ms(self.now);
                let state = &mut from.locks[lock].0;
                state.expire(now_ms);
                take(state, keys, ahead_ms, &mut into.locks[lock].0);
                if matches!(keys, Keys::Holds(_)) {
                    self.homes[lock] = to;
                    let set_back = ahead(from.set_back_us, into.set_back_us);
                    self.records[lock].change_clock(ahead_ms, ahead_ms + set_back);
                }
            }
        }
    }

    /// Assigns the slot to the server with the keys. The other servers are informed later.
    fn has_moved(&mut self, slot: usize) {
        let Some(Move { from, to, .. }) = self.cluster.moves[slot].take() else { return };
        self.cluster.owners[slot] = to;
        for server in 0..self.servers.len() {
            if server == from || server == to {
                self.cluster.agreed(server, slot);
            } else {
                let at = self.now + self.dice.below(AGREED_US);
                self.at(at, Place { slot: 0, name: 0 }, What::Agreed { server, slot });
            }
        }
        self.all_look();
    }

    /// Moves keys back that were moved from or to a server that is replaced: the new server has no
    /// open slot.
    pub(crate) fn takes_back(&mut self, server: usize) {
        for slot in 0..self.plan.slots() {
            let moving = self.cluster.moves[slot].take_if(|it| [it.from, it.to].contains(&server));
            let Some(Move { from, to, keys: left, .. }) = moving else { continue };
            let locks = (0..self.plan.locks as usize).filter(|lock| self.plan.slot(*lock) == slot);
            let all = locks.flat_map(|lock| [Keys::Holds(lock), Keys::Waiters(lock)]);
            let moved: Vec<Keys> =
                all.chain([Keys::Counter]).filter(|keys| !left.contains(keys)).collect();
            for keys in moved {
                self.carry(keys, slot, (to, from));
            }
        }
    }

    /// Drops a new server's keys in slots of other servers.
    pub(crate) fn drop_foreign(&mut self, server: usize) {
        for lock in 0..self.plan.locks as usize {
            if self.cluster.owners[self.plan.slot(lock)] != server {
                self.servers[server].locks[lock] = Resource::default();
            }
        }
        for (slot, owner) in self.cluster.owners.iter().enumerate() {
            if *owner != server {
                self.servers[server].counters[slot] = None;
            }
        }
    }
}
