//! The shard of each slot. A *shard* is one primary as a node speaks to it: a store of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use client::topology::{Address, Primary};
use proto::node::Lanes;
use proto::wire::redirect::Place;
use proto::wire::slot::SLOTS;
use proto::{Link, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::Store as _;
use crate::store::redis::RedisStore;
use crate::store::redis::server_time::ServerTime;

/// The time without an answer after which a server that owes one may stand still.
const SILENT: Duration = Duration::from_millis(500);

/// One primary.
pub(super) struct Shard {
    /// The name of the server within the Cluster.
    pub(super) id: String,
    pub(super) place: Place,
    redirects: Place,
    pub(super) store: RedisStore,
    pub(super) server_time: Arc<ServerTime>,
    pub(super) commands: watch::Receiver<Link>,
    pub(super) subscription: watch::Receiver<Link>,
    /// It said last that its Cluster is down: the others may have another primary in its place.
    is_cut_off: AtomicBool,
}

impl Shard {
    pub(super) fn new(primary: &Primary, store: RedisStore, server_time: Arc<ServerTime>) -> Self {
        let Primary { id, place, redirects, .. } = primary.clone();
        let [place, redirects] =
            [place, redirects].map(|Address { host, port }| Place { host, port });
        let (commands, subscription) = (store.commands(), store.subscription());
        let is_cut_off = AtomicBool::new(false);
        Self { id, place, redirects, store, server_time, commands, subscription, is_cut_off }
    }

    /// The place at which it is reached.
    pub(super) fn address(&self) -> Address {
        let Place { host, port } = self.place.clone();
        Address { host, port }
    }

    /// Whether it does its work, as far as the last requests have shown.
    pub(super) fn answers(&self) -> bool {
        // Looked at by itself: the task that changes it holds a mutex that the next line waits for.
        let is_up = self.commands.borrow().is_up();
        let link = &self.store.server.link;
        let is_silent = link.unanswered() > Some(0) && link.silent_for() > SILENT;
        is_up && !is_silent && !self.is_cut_off.load(Relaxed)
    }

    /// Notes whether its last answer was that its Cluster is down.
    pub(super) fn note_cut_off(&self, is_cut_off: bool) {
        if self.is_cut_off.load(Relaxed) != is_cut_off {
            self.is_cut_off.store(is_cut_off, Relaxed);
        }
    }

    /// Whether a redirect to this place leads here.
    pub(super) fn is_at(&self, place: &Place) -> bool {
        [&self.place, &self.redirects].contains(&place)
    }

    /// Refuses at once a request that would wait for a connection.
    pub(super) fn check(&self, hears: bool) -> Result<(), StoreError> {
        let down = |link: &watch::Receiver<Link>, what: &str| {
            let error = link.borrow().why_down()?;
            let detail = format!("{}: {what}{}", self.place, error.detail);
            Some(StoreError::refused(error.kind, detail))
        };
        let of_messages = || down(&self.subscription, "subscription: ").filter(|_| hears);
        down(&self.commands, "").or_else(of_messages).map_or(Ok(()), Err)
    }
}

/// The open shards, and the slots of each.
pub(super) struct Slots {
    owners: Box<[Option<Arc<Shard>>]>,
    open: Vec<OpenShard>,
}

struct OpenShard {
    shard: Arc<Shard>,
    /// No other open shard has it, and another server at the same place has another one.
    lane: u16,
    /// The moment since which it has no slot, and is not told as a primary.
    retired: Option<Instant>,
}

/// The lane of slots that no shard serves.
const NO_SHARD: u16 = 0;

impl Slots {
    pub(super) fn new() -> Self {
        let owners = (0..SLOTS).map(|_| None).collect();
        Self { owners, open: Vec::new() }
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Shard>> {
        self.owners.get(usize::from(slot))?.as_ref()
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.open.iter().map(|open| &open.shard)
    }

    /// The shards that serve at least one slot.
    pub(super) fn serving(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.open().filter(|shard| serves(&self.owners, shard))
    }

    /// The open shards, each with the number of its slots.
    pub(super) fn counted(&self) -> Vec<(Arc<Shard>, u16)> {
        let is_same = |a: &Option<Arc<Shard>>, b: &Option<Arc<Shard>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => a.is_none() && b.is_none(),
        };
        let mut counted: Vec<_> = self.open().map(|shard| (Arc::clone(shard), 0)).collect();
        for range in self.owners.chunk_by(is_same) {
            let owner = range.first().and_then(Option::as_ref);
            let mut of = counted.iter_mut();
            if let Some((_, count)) =
                of.find(|(shard, _)| owner.is_some_and(|owner| Arc::ptr_eq(owner, shard)))
            {
                *count += u16::try_from(range.len()).unwrap_or(SLOTS);
            }
        }
        counted
    }

    pub(super) fn add(&mut self, shard: &Arc<Shard>) {
        let lane = self.free_lane();
        self.open.push(OpenShard { shard: Arc::clone(shard), lane, retired: None });
    }

    /// Notes that the server of a shard is another one at the same place.
    pub(super) fn renew(&mut self, shard: &Arc<Shard>) {
        let lane = self.free_lane();
        let mut all = self.open.iter_mut();
        if let Some(open) = all.find(|open| Arc::ptr_eq(&open.shard, shard)) {
            open.lane = lane;
        }
    }

    fn free_lane(&self) -> u16 {
        let is_free = |lane: &u16| self.open.iter().all(|open| open.lane != *lane);
        (NO_SHARD + 1..).find(is_free).unwrap_or(NO_SHARD)
    }

    /// The lane of each slot.
    pub(super) fn lanes(&self) -> Lanes {
        let lane_of = |owner: &Option<Arc<Shard>>| {
            let owner = owner.as_ref()?;
            self.open.iter().find(|open| Arc::ptr_eq(&open.shard, owner)).map(|open| open.lane)
        };
        self.owners.iter().map(|owner| lane_of(owner).unwrap_or(NO_SHARD)).collect()
    }

    /// Gives the slot to this shard. Returns whether it had another one, or none.
    pub(super) fn give(&mut self, slot: u16, shard: &Arc<Shard>) -> bool {
        let Some(owner) = self.owners.get_mut(usize::from(slot)) else { return false };
        match owner.replace(Arc::clone(shard)) {
            Some(before) if Arc::ptr_eq(&before, shard) => false,
            Some(before) => {
                shard.server_time.take_over(slot, &before.server_time);
                true
            }
            None => true,
        }
    }

    /// Notes that a shard has answered: all that it told counts where the slot is by now.
    pub(super) fn note_answer(&self, slot: u16, shard: &Arc<Shard>) {
        if let Some(owner) = self.owner(slot)
            && !Arc::ptr_eq(owner, shard)
        {
            owner.server_time.take_over(slot, &shard.server_time);
        }
    }

    /// Notes which shards have no slot, and are not named by `is_primary`. Returns those of which
    /// this is new.
    pub(super) fn replaced(
        &mut self,
        is_primary: impl Fn(&Shard) -> bool,
        now: Instant,
    ) -> Vec<Arc<Shard>> {
        let Self { owners, open } = self;
        let mut replaced = Vec::new();
        for OpenShard { shard, retired, .. } in open {
            if is_primary(shard) || serves(owners, shard) {
                *retired = None;
            } else if retired.is_none() {
                *retired = Some(now);
                replaced.push(Arc::clone(shard));
            }
        }
        replaced
    }

    /// Takes out the shards that were replaced before this moment: the grants of their last moments
    /// have been told.
    pub(super) fn retire(&mut self, before: Option<Instant>) -> Vec<Arc<Shard>> {
        let is_over =
            |open: &mut OpenShard| open.retired.is_some_and(|retired| Some(retired) <= before);
        self.open.extract_if(.., is_over).map(|open| open.shard).collect()
    }
}

fn serves(owners: &[Option<Arc<Shard>>], shard: &Arc<Shard>) -> bool {
    owners.iter().flatten().any(|owner| Arc::ptr_eq(owner, shard))
}
