//! Runs any command on a lock's state, as the scripts do on the server.

use proto::NodeId;

use super::Message;
use super::{Answer, Call, Command, LockState, Renewed};

impl LockState {
    /// Runs a command on this lock's state as the scripts do on its Redis keys, and returns the
    /// answer. The command's messages to nodes and JVM threads are appended to [`Call::messages`].
    pub fn step(&mut self, call: &mut Call<'_>, command: &Command) -> Answer {
        match command {
            Command::Acquire { members, mode, queue_limit } => {
                Answer::Acquired(self.acquire(call, members, *mode, *queue_limit))
            }
            Command::Release { member } => Answer::Released(self.release(call, member)),
            Command::Renew { members } => Answer::Renewed(self.renew(call, members)),
            Command::Confirm { member } => {
                Answer::Renewed(self.renew(call, std::slice::from_ref(member)))
            }
            // This layout has no shared holds, so no hold can be reduced.
            Command::Reduce { .. } => Answer::Renewed(self.reply(call, vec![Renewed::NotHeld])),
            Command::Touch { members } => Answer::Touched(self.touch(call, members)),
            Command::Leave { leaving } => Answer::Left(self.leave(call, leaving)),
            Command::ForceRelease { member } => {
                Answer::Released(self.force_release(call, member.as_ref()))
            }
            Command::Inspect { from, most } => {
                Answer::Inspected(self.inspect(call.now_us, *from, *most))
            }
        }
    }
}

/// Runs a command from `node` on a lock's state. No JVM thread is subscribed. Returns the answer to
/// `node` and the published messages, in order. `now_us` is the server time in µs since the epoch.
/// `connected` is as in [`Call::connected`].
pub fn step(
    state: &mut LockState,
    connected: &dyn Fn(&str) -> bool,
    node: &NodeId,
    command: &Command,
    now_us: u64,
) -> (Answer, Vec<Message>) {
    let mut call = Call::new(node, connected, now_us);
    let answer = state.step(&mut call, command);
    (answer, call.messages)
}
