//! All commands behind one function, for those who treat them alike: model checkers and
//! comparisons.

use super::{Answer, Call, Command, LockState, Message, Renewed};
use crate::member::NodeId;

/// Runs one command of `node` at `now_us`; `connected` tells whether a node would receive a
/// message.
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
        // Of a mutex there is no part to give back.
        Command::Downgrade { .. } => Answer::Renewed(state.reply(&call, Renewed::NotHeld, false)),
        Command::Inspect => Answer::Inspected(state.inspect(call.now_us)),
    };
    (answer, call.messages)
}
