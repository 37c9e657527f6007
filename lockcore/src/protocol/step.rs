//! All commands behind one function, for those who treat them alike: model checkers and comparisons.

use super::{Call, LockState, Message};
use crate::member::{Member, NodeId};
use crate::store::{Acquired, Inspection, Leaving, Left, Mode, Released, Renewed, Reply, Touched};

/// One command, for those who treat all alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Takes the lock or queues for it.
    Acquire {
        /// Who.
        member: Member,
        /// Whether it may queue.
        mode: Mode,
        /// Most live waiters.
        queue_limit: u32,
    },
    /// Gives a hold back.
    Release {
        /// Whose.
        member: Member,
    },
    /// Extends a hold to the full lease.
    Renew {
        /// Whose.
        member: Member,
    },
    /// Keeps waiters alive.
    Touch {
        /// Which.
        members: Vec<Member>,
    },
    /// Takes members out.
    Leave {
        /// Which.
        leaving: Vec<Leaving>,
    },
    /// Drops the hold, whoever has it.
    ForceRelease,
    /// Looks.
    Inspect,
}

/// The answer to a [`Command`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To an acquire.
    Acquired(Reply<Acquired>),
    /// To a release or a force release.
    Released(Reply<Released>),
    /// To a renew.
    Renewed(Reply<Renewed>),
    /// To a touch.
    Touched(Reply<Touched>),
    /// To a leave.
    Left(Reply<Vec<Left>>),
    /// To an inspect.
    Inspected(Inspection),
}

/// Runs one command of `node` at `now_us`; `connected` tells whether a node would receive a message.
pub fn step(
    state: &mut LockState,
    connected: &dyn Fn(&str) -> bool,
    node: &NodeId,
    command: &Command,
    now_us: u64,
) -> (Answer, Vec<Message>) {
    run(state, Call::new(node, connected, now_us), command)
}

/// As [`step`], in a queue that is shared with JVMs; `listens` tells whether a foreign member would
/// hear that it is to come.
#[cfg(feature = "unstable-internals")]
pub fn step_with_peers(
    state: &mut LockState,
    connected: &dyn Fn(&str) -> bool,
    listens: &dyn Fn(&str) -> bool,
    node: &NodeId,
    command: &Command,
    now_us: u64,
) -> (Answer, Vec<Message>) {
    let mut call = Call::new(node, connected, now_us);
    call.peers = Some(super::Peers { listens });
    run(state, call, command)
}

fn run(state: &mut LockState, mut call: Call<'_>, command: &Command) -> (Answer, Vec<Message>) {
    let answer = match command {
        Command::Acquire { member, mode, queue_limit } => {
            Answer::Acquired(state.acquire(&mut call, member, *mode, *queue_limit))
        }
        Command::Release { member } => Answer::Released(state.release(&mut call, member)),
        Command::Renew { member } => Answer::Renewed(state.renew(&mut call, member)),
        Command::Touch { members } => Answer::Touched(state.touch(&mut call, members)),
        Command::Leave { leaving } => Answer::Left(state.leave(&mut call, leaving)),
        Command::ForceRelease => Answer::Released(state.force_release(&mut call)),
        Command::Inspect => Answer::Inspected(state.inspect(call.now_us)),
    };
    (answer, call.messages)
}
