//! `Wire`: how the commands of a node are written to a server, and the answers read. It speaks the
//! protocol of the queue or, where JVMs share the queues, Redisson's layout; nothing else knows
//! which.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::scripts::{self, Script};
use super::seen::{Floors, Seen};
use super::terms::Terms;
use super::value::{is_nonsense, nonsense};
use super::{queue, redisson};
use crate::error::{LockErrorKind, StoreError};
use crate::key::LockName;
use crate::member::NodeId;
use crate::store::{Answer, Answers, Command};

/// One node's way to write and read.
pub(super) struct Wire {
    pub(super) node: NodeId,
    /// The first part of the grants channels.
    pub(super) prefix: Arc<str>,
    /// Whether JVMs share the queues.
    pub(super) peers: bool,
    pub(super) seen: Arc<Seen>,
}

/// The commands that one script runs.
pub(super) enum Asked {
    One(LockName, Command),
    /// Several renewals; several touches, where JVMs share the queues.
    Together(Vec<(LockName, Command)>),
}

impl Asked {
    pub(super) fn one((lock, command): (&LockName, &Command)) -> Self {
        Self::One(lock.clone(), command.clone())
    }
}

impl Wire {
    /// The commands by the scripts that run them.
    pub(super) fn by_script(&self, commands: &[(&LockName, &Command)]) -> Vec<Asked> {
        let are_touches = matches!(commands.first(), Some((_, Command::Touch { .. })));
        if commands.len() < 2 || are_touches && !self.peers {
            return commands.iter().copied().map(Asked::one).collect();
        }
        let owned = |(lock, command): &(&LockName, &Command)| {
            (LockName::clone(lock), Command::clone(command))
        };
        vec![Asked::Together(commands.iter().map(owned).collect())]
    }

    /// The script that runs the commands, and its call.
    pub(super) fn write(
        &self,
        asked: &Asked,
        floors: Floors,
    ) -> Result<(&'static Script, Cmd), StoreError> {
        let terms = self.terms(floors);
        let written = match (asked, self.peers) {
            (Asked::One(lock, command), false) => {
                Some((queue::script(command), queue::command(lock, terms, command)))
            }
            (Asked::One(lock, command), true) => redisson::command(lock, terms, command),
            (Asked::Together(commands), false) => {
                Some((&scripts::of_queue().extend, queue::renewals(&borrowed(commands))))
            }
            (Asked::Together(commands), true) => redisson::together(&borrowed(commands), terms),
        };
        written.ok_or_else(no_such_command)
    }

    fn terms(&self, floors: Floors) -> Terms<'_> {
        Terms { node: &self.node, prefix: &self.prefix, floors }
    }

    /// The answer to the only command, from the server with this number.
    pub(super) fn answer(
        &self,
        asked: &Asked,
        (floors, server): (Floors, u64),
        answer: &Value,
    ) -> Result<Answer, StoreError> {
        let Asked::One(_, command) = asked else { return Err(nonsense()) };
        let answer = match self.peers {
            false => queue::reply::answer(command, self.terms(floors), answer)?,
            true => redisson::reply::answer(command, answer)?,
        };
        self.note(&answer, server);
        Ok(answer)
    }

    /// An answer for each command, from the server with this number.
    pub(super) fn answers(
        &self,
        asked: &Asked,
        (floors, server): (Floors, u64),
        answer: &Value,
    ) -> Result<Answers, StoreError> {
        let Asked::Together(commands) = asked else {
            return match self.answer(asked, (floors, server), answer) {
                // Said of this lock.
                Err(error) if !is_nonsense(&error) => Ok(vec![Err(error)]),
                answer => Ok(vec![Ok(answer?)]),
            };
        };
        let answers = match self.peers {
            false => queue::reply::renewals(commands.len(), answer)?,
            true => {
                let commands: Vec<_> = commands.iter().map(|(_, command)| command).collect();
                redisson::reply::answers(&commands, answer)?
            }
        };
        for answer in answers.iter().flatten() {
            self.note(answer, server);
        }
        Ok(answers)
    }

    /// Remembers the time and the tokens that it tells.
    fn note(&self, answer: &Answer, server: u64) {
        if let Some(now_us) = answer.now_us() {
            self.seen.note(now_us, server);
        }
        if let Some(token) = answer.grants().iter().map(|grant| grant.token).max() {
            self.seen.note_token(token, server);
        }
    }
}

fn borrowed(commands: &[(LockName, Command)]) -> Vec<(&LockName, &Command)> {
    commands.iter().map(|(lock, command)| (lock, command)).collect()
}

pub(super) fn no_such_command() -> StoreError {
    StoreError::refused(LockErrorKind::Protocol, "there is no script for these commands")
}
