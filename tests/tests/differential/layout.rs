//! `Layout`: the differences between the layouts of the keys.

use std::collections::BTreeSet;
use std::fmt::Debug;

use lock_tests::Raw;
use proto::wire::{TokenFloors, Wire};
use proto::{Answer, Command, Demand, LockName, Member, StoreError};
use redis::Cmd;

use crate::random::Random;

/// The demands of a sequence, and the events besides its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Locks,
    ReadWrite,
    Semaphore,
    MixedLimits,
    Jvms,
    /// Parts of the keys disappear.
    Damaged,
    /// Other programs use the names.
    Strange,
}

/// One command of a node on a lock, with its circumstances.
pub(crate) struct Request<'a> {
    pub(crate) wire: &'a Wire,
    pub(crate) lock: &'a LockName,
    pub(crate) command: &'a Command,
    pub(crate) floors: TokenFloors,
    /// One of several ways to run it: within small bounds, or beside other commands.
    pub(crate) way: usize,
    /// The nodes that are connected.
    pub(crate) connected: &'a BTreeSet<String>,
}

/// A message: its channel and its text.
pub(crate) type Message = (String, String);

/// The effects of one command, by the function.
pub(crate) struct Stepped<S> {
    pub(crate) answer: Answer,
    pub(crate) state: S,
    pub(crate) messages: Vec<Message>,
    /// The rare cases that it was.
    pub(crate) met: Vec<&'static str>,
}

/// One layout: its keys, its events, and both its protocols, in Lua and in Rust.
pub(crate) trait Layout: Sized {
    /// All keys of a lock, read in one step.
    type Snapshot: Debug;
    /// The state of the function, and all else on the server that it depends on.
    type State: Clone + PartialEq + Debug;

    /// Whether JVMs share the queues.
    const PEERS: bool;

    /// The layout on this server, with any scripts that need to be loaded.
    async fn load(redis: &mut Raw) -> Self;

    /// The cases that all sequences of a kind must have met besides those of [`crate::case::MET`],
    /// or they compare too little. The second list is of those that need not be met.
    fn met(kind: Kind) -> [&'static [&'static str]; 2];

    async fn take(redis: &mut Raw, lock: &LockName) -> Self::Snapshot;

    /// Writes all keys of a lock anew. None of them is another program's.
    async fn put(redis: &mut Raw, lock: &LockName, state: &Self::State);

    /// The server's time at a snapshot.
    fn at_us(seen: &Self::Snapshot) -> u64;

    fn state(seen: &Self::Snapshot) -> Self::State;

    /// Everything but the time: equal before and after is unchanged.
    fn content(seen: &Self::Snapshot) -> impl PartialEq + Debug;

    /// The last number of the tokens.
    fn counter(state: &Self::State) -> u64;

    /// The times at which a key or a lease ends.
    fn ends(state: &Self::State) -> Vec<u64>;

    /// The members of ours that hold.
    fn holders(state: &Self::State) -> Vec<Member>;

    /// The members of ours that wait, or did.
    fn waiters(state: &Self::State) -> Vec<Member>;

    fn demand(kind: Kind, random: &mut Random) -> Demand;

    /// The acts of time, operators and JVMs.
    fn disturb(state: &mut Self::State, random: &mut Random, now_ms: u64);

    /// The loss of a part of the keys.
    fn damage(state: &mut Self::State, random: &mut Random);

    /// The acts of another program that uses the names of the lock.
    fn act_as_another_program(
        seen: &Self::Snapshot,
        lock: &LockName,
        random: &mut Random,
    ) -> Vec<Cmd>;

    /// Whether another program's key is among those of the lock.
    fn is_strange(seen: &Self::Snapshot) -> bool;

    /// Whether a command meets another program's key, by the function's own rules. Nothing where a
    /// short way may not have looked.
    fn is_refused(seen: &Self::Snapshot, command: &Command) -> Option<bool>;

    /// Whether a command that was run left the keys of other programs alone.
    fn spares_others(before: &Self::Snapshot, after: &Self::Snapshot, command: &Command) -> bool;

    /// Runs a command by its script.
    async fn run(&self, redis: &mut Raw, request: &Request<'_>) -> Result<Answer, StoreError>;

    /// Runs a command by the function.
    fn step(
        &self,
        request: &Request<'_>,
        before: &Self::State,
        now_us: u64,
    ) -> Stepped<Self::State>;

    /// Whether the answer may leave out the time and the first end.
    fn is_short(command: &Command, answer: &Answer) -> bool;

    /// Gives `expected` the times of `actual` where they are `near`, and the parts that may be
    /// there or not.
    fn settle(
        before: &Self::State,
        answer: &Answer,
        expected: &mut Self::State,
        actual: &Self::State,
        near: Near,
    );
}

/// The difference between two readings of the server's clock that the length of a command allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near {
    pub(crate) ms: u64,
}

impl Near {
    /// Makes `expected` equal to `actual` if they are near.
    pub(crate) fn settle(self, expected: &mut u64, actual: u64) {
        if expected.abs_diff(actual) <= self.ms {
            *expected = actual;
        }
    }

    pub(crate) fn settle_end(self, expected: &mut Option<u64>, actual: Option<u64>) {
        if let (Some(expected), Some(actual)) = (expected, actual) {
            self.settle(expected, actual);
        }
    }
}
