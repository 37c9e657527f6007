//! Pairs of mechanisms that met during a hold.

use std::fmt;

use proto::{Acquired, Answer, Command};

use crate::judge::{Who, is_not_served};
use crate::world::World;

/// A mechanism with an effect on a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// Several waiters of a process are granted a hold together.
    Batch,
    /// A holder downgrades the lock to a read.
    Downgrade,
    /// A guard is leaked.
    Leak,
    /// A guard is forgotten.
    Forget,
    /// A holder acquires the lock twice.
    Reenter,
    /// A guard is dropped.
    Drop,
    /// An attempt is cancelled.
    Cancel,
    /// A wait ends by the time limit.
    TimedWait,
    /// A hold is force-released.
    Force,
    /// A member whose hold has a maximum time requests or holds.
    LongestHold,
    /// A member with a fixed lease requests or holds.
    FixedLease,
    /// A hold is renewed at least three times, so for longer than a lease.
    Renewals,
    /// A queue is full.
    QueueLimit,
    /// A waiter leaves the queue for a newer waiter.
    Newest,
    /// A request is refused because the wait would be too long.
    EarlyRefusal,
    /// A holder's or waiter's process is shut down.
    ShutDown,
    /// A request gets no response.
    LostAnswer,
    /// A response arrives at least half a second after the request.
    LateAnswer,
    /// A holder's or waiter's process reconnects or resubscribes.
    Reconnect,
    /// Another server takes over.
    FailOver,
    /// The lock's hash slot moves.
    MoveSlot,
    /// The server is frozen.
    Silence,
    /// A request is refused because memory is full.
    FullMemory,
    /// A read or a permit is requested or held.
    Parts,
    /// The fast path does not serve an acquire, and the node sends it again by the script.
    NotServed,
    /// The lock is in the layout shared with JVMs.
    Peers,
    /// The lock is on a quorum.
    Quorum,
}

const MECHANISMS: usize = 27;

impl Mechanism {
    /// The mechanisms with their names.
    pub const TABLE: [(Self, &'static str); MECHANISMS] = [
        (Self::Batch, "batch"),
        (Self::Downgrade, "downgrade"),
        (Self::Leak, "leak"),
        (Self::Forget, "forget"),
        (Self::Reenter, "re-enter"),
        (Self::Drop, "drop"),
        (Self::Cancel, "cancel"),
        (Self::TimedWait, "timed-wait"),
        (Self::Force, "force"),
        (Self::LongestHold, "max-hold"),
        (Self::FixedLease, "fixed-lease"),
        (Self::Renewals, "renewals"),
        (Self::QueueLimit, "queue-limit"),
        (Self::Newest, "newest"),
        (Self::EarlyRefusal, "early-refusal"),
        (Self::ShutDown, "shut-down"),
        (Self::LostAnswer, "lost-answer"),
        (Self::LateAnswer, "late-answer"),
        (Self::Reconnect, "reconnect"),
        (Self::FailOver, "fail-over"),
        (Self::MoveSlot, "move-slot"),
        (Self::Silence, "silence"),
        (Self::FullMemory, "full-memory"),
        (Self::Parts, "parts"),
        (Self::NotServed, "not-served"),
        (Self::Peers, "peers"),
        (Self::Quorum, "quorum"),
    ];

    /// Mechanisms without a simulation: they meet no other mechanism here. `docs/pairs.md` explains
    /// why, and lists the tests of their pairs.
    pub const ELSEWHERE: [Self; 3] = [Self::EarlyRefusal, Self::Peers, Self::Quorum];

    /// Mechanisms that cannot meet: a Cluster's servers have no fast path.
    const APART: [Self; 2] = [Self::MoveSlot, Self::NotServed];

    /// Returns the mechanism's name.
    pub fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// How many holds each pair of mechanisms met in: both occurred on the hold's lock between its
/// grant and the command that ended it or found it gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs([[u64; MECHANISMS]; MECHANISMS]);

impl Pairs {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (sums, counts) in self.0.iter_mut().zip(&other.0) {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }

    /// In how many holds these two mechanisms met.
    pub fn met(&self, one: Mechanism, other: Mechanism) -> u64 {
        self.0[one as usize][other as usize]
    }

    /// Returns the pairs possible here, with their counts.
    pub fn all(&self) -> impl Iterator<Item = (Mechanism, Mechanism, u64)> {
        let all = Mechanism::TABLE.into_iter().map(|(of, _)| of);
        let here = move || all.clone().filter(|of| !Mechanism::ELSEWHERE.contains(of));
        here().enumerate().flat_map(move |(at, one)| {
            let can_meet = move |other: &Mechanism| {
                ![one, *other].iter().all(|of| Mechanism::APART.contains(of))
            };
            let others = here().take(at).filter(can_meet);
            others.map(move |other| (one, other, self.met(one, other)))
        })
    }

    fn note(&mut self, marks: u32) {
        let of = |marks: u32| (0..MECHANISMS).filter(move |at| marks & (1 << at) != 0);
        for one in of(marks) {
            for other in of(marks) {
                self.0[one][other] += 1;
            }
        }
    }
}

/// The table: a row and a column for each mechanism; the diagonal has each mechanism's own count.
impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>14}", "")?;
        for at in 0..MECHANISMS {
            write!(f, "{:>7}", at + 1)?;
        }
        for (at, (one, name)) in Mechanism::TABLE.into_iter().enumerate() {
            write!(f, "\n{name:>14}")?;
            for (other, _) in &Mechanism::TABLE[..=at] {
                match self.met(one, *other) {
                    0 => write!(f, "{:>7}", "-")?,
                    count @ 0..100_000 => write!(f, "{count:>7}")?,
                    count => write!(f, "{:>6}k", count / 1_000)?,
                }
            }
        }
        Ok(())
    }
}

/// What happened to a hold so far.
#[derive(Debug)]
pub(crate) struct Life {
    of: Who,
    marks: u32,
    renewals: u32,
}

impl World {
    /// Records a mechanism on a lock.
    pub(crate) fn meets(&mut self, lock: usize, mechanism: Mechanism) {
        if let Some(life) = &mut self.lives[lock] {
            life.marks |= mechanism.bit();
        }
    }

    /// Records a mechanism on all locks on a server.
    pub(crate) fn all_meet(&mut self, server: usize, mechanism: Mechanism) {
        for lock in 0..self.lives.len() {
            if self.homes[lock] == server {
                self.meets(lock, mechanism);
            }
        }
    }

    /// Records a mechanism on all locks that a process holds or waits for.
    pub(crate) fn own_meet(&mut self, name: u64, mechanism: Mechanism) {
        for lock in 0..self.lives.len() {
            if self.records[lock].has(name) {
                self.meets(lock, mechanism);
            }
        }
    }

    /// Records the mechanisms of an executed command, and starts another hold's life if the last
    /// has ended.
    pub(crate) fn live_on(&mut self, lock: usize, command: &Command, answer: &Answer) {
        match (command, answer) {
            (Command::Acquire { .. }, Answer::Acquired(reply))
                if reply.outcome.iter().any(|one| matches!(one, Acquired::Full { .. })) =>
            {
                self.meets(lock, Mechanism::QueueLimit);
            }
            (Command::Acquire { .. }, answer) if is_not_served(answer) => {
                self.meets(lock, Mechanism::NotServed);
            }
            (Command::ForceRelease { .. }, _) => self.meets(lock, Mechanism::Force),
            _ => {}
        }
        let home = self.home(lock);
        let holds = home.locks[lock].holds(home.clock_ms(self.now));
        let is_batch = !home.locks[lock].0.batch().is_empty();
        let is_full = self.now < home.full_until;
        let mut live = holds.iter().filter(|held| held.is_live);
        match &mut self.lives[lock] {
            Some(life) if live.clone().any(|held| held.member == life.of) => {
                let is_it = |member| crate::judge::who(member) == life.of;
                if command.renews().iter().any(is_it) {
                    life.renewals += 1;
                }
                if life.renewals >= 3 {
                    life.marks |= Mechanism::Renewals.bit();
                }
            }
            life => {
                if let Some(life) = life.take() {
                    self.outcome.pairs.note(life.marks);
                }
                let Some(held) = live.next() else { return };
                let parts = if held.is_whole() { 0 } else { Mechanism::Parts.bit() };
                *life = Some(Life { of: held.member, marks: parts, renewals: 0 });
                if self.is_moving(lock) {
                    self.meets(lock, Mechanism::MoveSlot);
                }
                if is_full {
                    self.meets(lock, Mechanism::FullMemory);
                }
            }
        }
        if is_batch {
            self.meets(lock, Mechanism::Batch);
        }
    }
}
