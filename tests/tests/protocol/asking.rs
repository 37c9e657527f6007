//! Short helpers for a node's commands; a test whose command may fail runs it itself.

use std::fmt::Debug;
use std::num::NonZeroU32;

use proto::{
    Acquired, Answer, Command, Demand, Event, Grant, Inspection, Leaving, Left, Member, Mode,
    Released, Renewed, Reply, Touched,
};

use crate::node::Node;

impl Node {
    async fn answer(&self, command: Command) -> Answer {
        self.run(command).await.expect("answered")
    }

    pub(crate) async fn acquire(&self, member: &Member, mode: Mode, limit: u32) -> Reply<Acquired> {
        self.acquire_all(&[member], mode, limit).await.map(|outcomes| outcomes[0])
    }

    pub(crate) async fn acquire_all(
        &self,
        members: &[&Member],
        mode: Mode,
        limit: u32,
    ) -> Reply<Vec<Acquired>> {
        let command = acquire_all(members, mode, limit);
        let Answer::Acquired(reply) = self.answer(command).await else { unreachable!() };
        reply
    }

    pub(crate) async fn wait_all(&self, members: &[&Member]) -> Reply<Vec<Acquired>> {
        self.acquire_all(members, Mode::Wait, 1_000).await
    }

    pub(crate) async fn wait(&self, member: &Member) -> Reply<Acquired> {
        self.acquire(member, Mode::Wait, 1_000).await
    }

    pub(crate) async fn try_now(&self, member: &Member) -> Reply<Acquired> {
        self.acquire(member, Mode::Try, 1_000).await
    }

    /// Acquires a free lock.
    pub(crate) async fn hold(&self, lease_ms: u64) -> Member {
        self.hold_for(Demand::EXCLUSIVE, lease_ms).await
    }

    /// Acquires a demand that fits.
    pub(crate) async fn hold_for(&self, demand: Demand, lease_ms: u64) -> Member {
        let member = self.member_for(demand, lease_ms);
        assert_eq!(self.wait(&member).await.outcome, Acquired::Granted);
        member
    }

    /// Queues for a held lock.
    pub(crate) async fn queue(&self, lease_ms: u64) -> Member {
        self.queue_for(Demand::EXCLUSIVE, lease_ms).await
    }

    /// Queues for a demand that does not fit.
    pub(crate) async fn queue_for(&self, demand: Demand, lease_ms: u64) -> Member {
        let member = self.member_for(demand, lease_ms);
        let outcome = self.wait(&member).await.outcome;
        assert!(matches!(outcome, Acquired::Queued { .. }), "{outcome:?}");
        member
    }

    pub(crate) async fn release(&self, member: &Member) -> Reply<Released> {
        let command = Command::Release { member: member.clone() };
        let Answer::Released(reply) = self.answer(command).await else { unreachable!() };
        reply
    }

    pub(crate) async fn renew(&self, member: &Member) -> Reply<Vec<Renewed>> {
        let command = Command::Renew { members: vec![member.clone()] };
        let Answer::Renewed(reply) = self.answer(command).await else { unreachable!() };
        reply
    }

    pub(crate) async fn confirm(&self, member: &Member) -> Reply<Vec<Renewed>> {
        let command = Command::Confirm { member: member.clone() };
        let Answer::Renewed(reply) = self.answer(command).await else { unreachable!() };
        reply
    }

    /// Downgrades a lock to a read.
    pub(crate) async fn reduce(&self, member: &Member) -> Reply<Vec<Renewed>> {
        let Answer::Renewed(reply) = self.answer(reduce(member)).await else { unreachable!() };
        reply
    }

    pub(crate) async fn touch(&self, members: &[&Member]) -> Reply<Touched> {
        let Answer::Touched(reply) = self.answer(touch(members)).await else { unreachable!() };
        reply
    }

    pub(crate) async fn leave(&self, member: &Member) -> Reply<Vec<Left>> {
        self.leave_all(&[(member, false)]).await
    }

    pub(crate) async fn leave_ambiguous(&self, member: &Member) -> Reply<Vec<Left>> {
        self.leave_all(&[(member, true)]).await
    }

    pub(crate) async fn leave_all(&self, leaving: &[(&Member, bool)]) -> Reply<Vec<Left>> {
        let Answer::Left(reply) = self.answer(leave(leaving)).await else { unreachable!() };
        reply
    }

    pub(crate) async fn force_release(&self) -> Reply<Released> {
        let command = Command::ForceRelease { member: None };
        let Answer::Released(reply) = self.answer(command).await else { unreachable!() };
        reply
    }

    pub(crate) async fn inspect(&self) -> Inspection {
        let Answer::Inspected(found) = self.answer(Command::INSPECT).await else { unreachable!() };
        found
    }
}

pub(crate) fn acquire(member: &Member, mode: Mode, queue_limit: u32) -> Command {
    acquire_all(&[member], mode, queue_limit)
}

pub(crate) fn acquire_all(members: &[&Member], mode: Mode, queue_limit: u32) -> Command {
    let members = members.iter().copied().cloned().collect();
    Command::Acquire { members, mode, queue_limit }
}

pub(crate) fn reduce(member: &Member) -> Command {
    Command::reduce(member.clone(), NonZeroU32::MIN)
}

pub(crate) fn touch(members: &[&Member]) -> Command {
    Command::Touch { members: members.iter().copied().cloned().collect() }
}

/// Ambiguous members leave a tombstone.
pub(crate) fn leave(leaving: &[(&Member, bool)]) -> Command {
    let one = |(member, ambiguous): &(&Member, bool)| Leaving::new((*member).clone(), *ambiguous);
    Command::Leave { leaving: leaving.iter().map(one).collect() }
}

/// The only grant of a reply.
pub(crate) fn grant<T: Debug>(reply: &Reply<T>) -> &Grant {
    let [grant] = reply.grants.as_slice() else { panic!("one grant in {reply:?}") };
    grant
}

/// The remaining lease in a reply, in ms.
pub(crate) fn left_ms<T: Debug>(reply: &Reply<T>) -> u64 {
    reply.first_end_ms.unwrap_or_else(|| panic!("no end in {reply:?}"))
}

/// The server's time in a reply, µs since the epoch.
pub(crate) fn now_us<T: Debug>(reply: &Reply<T>) -> u64 {
    reply.now_us.unwrap_or_else(|| panic!("no time in {reply:?}"))
}

/// The token in a message about grants.
pub(crate) fn token_of(event: &Event) -> u64 {
    let Event::Granted { token, .. } = event else { panic!("{event:?}") };
    token.get()
}
