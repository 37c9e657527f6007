//! The wire to Redis: how the commands of a node are written as calls of scripts, how the answers
//! and messages are read, and the scripts themselves. No client of Redis is needed for that: see
//! [`Call`] and [`Value`].
//!
//! A [`Wire`] speaks the protocol of its [layout](crate::layout).

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

pub use call::{Begin, Call, Commands, Context, Floors, Reading};
pub use message::message;
pub use queue::{FreeAcquire, FreeRelease, script as queue_script};
pub use scripts::Script;
pub use value::{Told, Value, fencing_token, is_nonsense, nonsense};

use crate::error::{LockErrorKind, StoreError};
use crate::layout::{Fast, Layout};
use crate::member::{Member, NodeId};
use crate::name::LockName;
use crate::{Acquired, Answer, Answers, Command, Topology};

/// Reads the error of a server that stands as a text in an answer of this layout.
pub type OfError = fn(&str, &dyn Layout) -> StoreError;

/// The way of one node to write and read.
#[derive(Debug, Clone)]
pub struct Wire {
    /// The node.
    pub node: NodeId,
    /// The first part of the grants channels.
    pub prefix: Arc<str>,
    /// The layout of the keys.
    pub layout: &'static dyn Layout,
    /// How the servers are put together.
    pub topology: Topology,
    /// Reads the errors that stand in answers.
    pub of_error: OfError,
}

impl Wire {
    /// The call of the script that runs the commands, for a node that has seen so much.
    ///
    /// # Errors
    /// The layout has no script for these commands.
    pub fn write<C: Call>(&self, commands: &Commands<'_>, floors: Floors) -> Result<C, StoreError> {
        let mut call = None;
        let written = self.layout.write(commands, self.context(floors), &mut call);
        call.filter(|_| written.is_some()).ok_or_else(no_such_command)
    }

    /// The acquire of a lock without a script, for a lock that is free.
    ///
    /// Nothing where there is no such way: for other commands, in another layout, in a Redis
    /// Cluster, where a counter that is made while its slot moves would stop the move, and on a
    /// primary of a quorum, where the floor has the tokens of the others, and the number of a
    /// transaction would seldom be above it.
    pub fn free_acquire<'a>(
        &self,
        command: (&'a LockName, &'a Command),
    ) -> Option<FreeAcquire<'a>> {
        match self.fast(command)? {
            Fast::Acquire(free) => Some(free).filter(|_| self.has_fast_acquire()),
            Fast::Release(_) => None,
        }
    }

    /// Whether there is an acquire without a script at all.
    pub fn has_fast_acquire(&self) -> bool {
        self.topology == Topology::Single
    }

    /// The release of a lock without a script, for a lock without waiters. Nothing for other
    /// commands, in another layout, and in a Redis Cluster, where a server to which a slot moves
    /// serves one command of those that ask for it, and not the script after it.
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

    /// The call of the script that tries every right of the others, on the keys of `probe`. Unless
    /// they are `declared`, the keys follow as arguments: then a server cannot refuse the whole
    /// script for the sake of one.
    pub fn preflight<C: Call>(&self, probe: &LockName, declared: bool) -> C {
        let (script, keys) = self.layout.preflight(probe, self.context(Floors::default()));
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

    fn context(&self, floors: Floors) -> Context<'_> {
        Context { node: &self.node, prefix: &self.prefix, topology: self.topology, floors }
    }

    fn of_error(&self) -> impl Fn(&str) -> StoreError {
        |said| (self.of_error)(said, self.layout)
    }

    fn reading<'a>(&'a self, of_error: &'a dyn Fn(&str) -> StoreError) -> Reading<'a> {
        Reading { node: &self.node, of_error }
    }

    /// The answer to a command that was alone in its script.
    ///
    /// # Errors
    /// The server's for this lock, or that the answer has no known form or is one to another
    /// request: see [`is_nonsense`].
    pub fn answer(
        &self,
        (lock, command): (&LockName, &Command),
        answer: &Value<'_>,
    ) -> Result<Answer, StoreError> {
        let of_error = self.of_error();
        let answer = self.layout.answer(self.reading(&of_error), (lock, command), answer)?;
        if hides_a_grant(command, &answer) { Err(nonsense()) } else { Ok(answer) }
    }

    /// An answer for each command of a script.
    ///
    /// # Errors
    /// The answer has no known form, or is one to another request: see [`is_nonsense`]. That of
    /// [`answer`](Self::answer) if there is one command.
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

/// Whether the answer says that a member was granted its demand, and does not tell its hold.
fn hides_a_grant(command: &Command, answer: &Answer) -> bool {
    let (Command::Acquire { members, .. }, Answer::Acquired(reply)) = (command, answer) else {
        return false;
    };
    let is_told = |member: &Member| reply.grants.iter().any(|grant| grant.serves(member));
    let mut each = members.iter().zip(&reply.outcome);
    each.any(|(member, outcome)| *outcome == Acquired::Granted && !is_told(member))
}

/// The error of commands for which the layout has no script.
pub fn no_such_command() -> StoreError {
    StoreError::refused(LockErrorKind::Protocol, "there is no script for these commands")
}
