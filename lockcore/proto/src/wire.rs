//! The Redis wire format: how a node's commands are written as script calls, how replies and
//! messages are parsed, and the scripts themselves. It works with any Redis client, which only has
//! to implement [`Call`] and build [`Value`]s.
//!
//! A [`Wire`] writes and parses for one [layout](crate::layout).

pub(crate) mod call;
pub mod keys;
mod message;
pub mod outcome;
pub(crate) mod queue;
pub mod redirect;
pub mod scripts;
pub mod slot;
pub(crate) mod value;

use std::sync::Arc;

use smallvec::smallvec;

pub use call::{Begin, Call, Commands, Context, Reading, TokenFloors};
pub use message::message;
pub use queue::{FreeAcquire, FreeRelease, script as queue_script};
pub use scripts::Script;
pub use value::{ReplyBody, Value, fencing_token, is_nonsense, nonsense};

use crate::error::{LockErrorKind, StoreError};
use crate::layout::{Fast, Layout};
use crate::member::{Member, NodeId};
use crate::name::LockName;
use crate::{Acquired, Answer, Answers, Command, Topology};

/// A function that turns the text of a server error in a script's reply into a [`StoreError`]. If a
/// key contains data of another program, the layout describes the key.
pub type OfError = fn(&str, &dyn Layout) -> StoreError;

/// Translates between a node and Redis servers: writes the node's commands as script calls, and
/// parses the servers' replies and messages.
#[derive(Debug, Clone)]
pub struct Wire {
    /// The node that sends the commands.
    pub node: NodeId,
    /// The prefix of the channels on which nodes receive their messages.
    pub prefix: Arc<str>,
    /// The key layout, which determines the scripts.
    pub layout: &'static dyn Layout,
    /// The arrangement of the servers.
    pub topology: Topology,
    /// The function that parses the text of a server error in a reply.
    pub of_error: OfError,
}

impl Wire {
    /// Returns the script call that runs the commands. New tokens are above the token floor in
    /// `floors`, the greatest token or time that the node has seen.
    ///
    /// # Errors
    /// The layout has no script for these commands.
    pub fn write<C: Call>(
        &self,
        commands: &Commands<'_>,
        floors: TokenFloors,
    ) -> Result<C, StoreError> {
        let mut call = None;
        let written = self.layout.write(commands, self.context(floors), &mut call);
        call.filter(|_| written.is_some()).ok_or_else(no_such_command)
    }

    /// Returns the plain Redis commands for an acquire of a lock that may be free.
    ///
    /// `None` for other commands, in a layout without such commands, in a Redis Cluster, and on a
    /// quorum primary. In a Cluster, a counter created during a slot migration would stop the
    /// migration. On a quorum primary, new tokens must be above the tokens of other primaries, and
    /// the number drawn from the counter would seldom be.
    pub fn free_acquire<'a>(
        &self,
        command: (&'a LockName, &'a Command),
    ) -> Option<FreeAcquire<'a>> {
        match self.fast(command)? {
            Fast::Acquire(free) => Some(free).filter(|_| self.has_fast_acquire()),
            Fast::Release(_) => None,
        }
    }

    /// Returns true if acquires without a script are possible in this topology.
    pub fn has_fast_acquire(&self) -> bool {
        self.topology == Topology::Single
    }

    /// Returns the plain Redis commands for a release of a lock that may have no waiters.
    ///
    /// `None` for other commands, in a layout without such commands, and in a Redis Cluster. There,
    /// the target server of a slot migration runs only a single command after ASKING, and would
    /// refuse a script sent after it.
    pub fn free_release<'a>(
        &self,
        command: (&'a LockName, &'a Command),
    ) -> Option<FreeRelease<'a>> {
        match self.fast(command)? {
            Fast::Release(free) => Some(free),
            Fast::Acquire(_) => None,
        }
    }

    fn fast<'a>(&self, (lock, command): (&'a LockName, &'a Command)) -> Option<Fast<'a>> {
        match self.topology {
            Topology::Cluster => None,
            Topology::Single | Topology::Quorum => self.layout.fast(lock, command),
        }
    }

    /// Creates the script call that tries every right needed by the scripts, on the keys of the
    /// lock `probe`. If `declared` is false, the keys are passed as plain arguments. Then a server
    /// does not refuse the whole script because of a missing right to a single key.
    pub fn preflight<C: Call>(&self, probe: &LockName, declared: bool) -> C {
        let (script, keys) = self.layout.preflight(probe, self.context(TokenFloors::default()));
        let (declared, others) = if declared { (&keys[..], &[][..]) } else { (&[][..], &keys[..]) };
        let mut call = C::begin(script, declared.len());
        for key in declared {
            call.text(key);
        }
        call.text(self.node.as_str()).text(&self.prefix);
        for key in others {
            call.text(key);
        }
        call
    }

    fn context(&self, floors: TokenFloors) -> Context<'_> {
        Context { node: &self.node, prefix: &self.prefix, topology: self.topology, floors }
    }

    fn of_error(&self) -> impl Fn(&str) -> StoreError {
        |said| (self.of_error)(said, self.layout)
    }

    fn reading<'a>(&'a self, of_error: &'a dyn Fn(&str) -> StoreError) -> Reading<'a> {
        Reading { node: &self.node, of_error }
    }

    /// Parses the reply to a script call with a single command.
    ///
    /// # Errors
    /// The server's error for this lock, or a protocol error if the reply has an unknown form or
    /// belongs to another request: see [`is_nonsense`].
    pub fn answer(
        &self,
        (lock, command): (&LockName, &Command),
        answer: &Value<'_>,
    ) -> Result<Answer, StoreError> {
        let of_error = self.of_error();
        let answer = self.layout.answer(self.reading(&of_error), (lock, command), answer)?;
        if hides_a_grant(command, &answer) { Err(nonsense()) } else { Ok(answer) }
    }

    /// Parses the reply to a script call into a result for each command, in order.
    ///
    /// # Errors
    /// The reply has no known form, or belongs to another request: see [`is_nonsense`]. For a
    /// single command, the errors of [`answer`](Self::answer).
    pub fn answers(
        &self,
        commands: &Commands<'_>,
        answer: &Value<'_>,
    ) -> Result<Answers, StoreError> {
        if let [command] = commands {
            return Ok(smallvec![Ok(self.answer(*command, answer)?)]);
        }
        let of_error = self.of_error();
        self.layout.answers(self.reading(&of_error), commands, answer)
    }
}

/// Returns true if a reply states that a member was granted the lock, but does not contain the
/// grant. Such a reply is refused.
fn hides_a_grant(command: &Command, answer: &Answer) -> bool {
    let (Command::Acquire { members, .. }, Answer::Acquired(reply)) = (command, answer) else {
        return false;
    };
    let is_reported = |member: &Member| reply.grants.iter().any(|grant| grant.serves(member));
    let mut each = members.iter().zip(&reply.outcome);
    each.any(|(member, outcome)| *outcome == Acquired::Granted && !is_reported(member))
}

/// Returns the error for commands that no script of the layout can run.
pub fn no_such_command() -> StoreError {
    StoreError::refused(LockErrorKind::Protocol, "the layout has no script for these commands")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::QUEUE;
    use crate::{Demand, Label, Mode};

    #[test]
    fn in_a_cluster_nothing_goes_without_a_script_and_on_a_primary_only_a_release() {
        let node = NodeId::from(7);
        let member = Member::new(&node, 1, 30_000, Demand::EXCLUSIVE, &Label::new("test"));
        let release = Command::Release { member: member.clone() };
        let acquire =
            Command::Acquire { members: vec![member], mode: Mode::Wait, queue_limit: 1_000 };
        let lock = LockName::from("k");
        let goes = |topology| {
            let (node, prefix) = (node.clone(), "lockcore".into());
            let of_error: OfError = |text, _| StoreError::ambiguous(text);
            let wire = Wire { node, prefix, layout: QUEUE, topology, of_error };
            (
                wire.free_acquire((&lock, &acquire)).is_some(),
                wire.free_release((&lock, &release)).is_some(),
            )
        };
        assert_eq!(goes(Topology::Single), (true, true));
        assert_eq!(goes(Topology::Cluster), (false, false));
        assert_eq!(goes(Topology::Quorum), (false, true));
    }
}
