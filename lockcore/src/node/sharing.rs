//! A command of the table as one of a resource with permits, and its answer as one of the table.

use std::num::NonZeroU32;

use crate::error::{LockErrorKind, StoreError};
use crate::member::Member;
use crate::store::protocol::permits::{self, Grant};
use crate::store::protocol::{Answer, Command};
use crate::store::{Grant as Held, Presence, Renewed, Reply, Share, Touched};

/// The weight of a read: what is left of a write that is downgraded.
const READ: NonZeroU32 = NonZeroU32::MIN;

/// The same command for a resource with permits.
///
/// # Errors
/// A member asks for no part of a resource.
pub fn command(command: &Command) -> Result<permits::Command, StoreError> {
    Ok(match command {
        Command::Acquire { member, mode, queue_limit } => permits::Command::Acquire {
            member: sharing(member)?,
            mode: *mode,
            queue_limit: *queue_limit,
        },
        Command::Release { member } => permits::Command::Release { member: sharing(member)? },
        Command::Renew { member } => renewal([member])?,
        Command::Touch { members } => permits::Command::Touch { members: all(members)? },
        Command::Leave { leaving } => {
            let one = |one: &crate::store::Leaving| {
                let (member, ambiguous) = (sharing(&one.member)?, one.ambiguous);
                Ok(permits::Leaving { member, ambiguous })
            };
            permits::Command::Leave { leaving: leaving.iter().map(one).collect::<Result<_, _>>()? }
        }
        Command::Downgrade { member } => {
            permits::Command::Reduce { member: sharing(member)?, weight: READ }
        }
        Command::ForceRelease => permits::Command::ForceRelease { member: None },
        Command::Inspect => permits::Command::Inspect,
    })
}

/// Renews holds of one resource together.
pub(super) fn renewal<'a>(
    members: impl IntoIterator<Item = &'a Member>,
) -> Result<permits::Command, StoreError> {
    let members = members.into_iter().map(sharing).collect::<Result<_, _>>()?;
    Ok(permits::Command::Renew { members })
}

/// The answer to a command for one of ours, or for all of a line.
///
/// # Errors
/// The answer is that to another command.
pub fn answer(asked: &permits::Command, answer: permits::Answer) -> Result<Answer, StoreError> {
    match (asked, answer) {
        (_, permits::Answer::Acquired(reply)) => Ok(Answer::Acquired(told(reply, |of| of))),
        (_, permits::Answer::Released(reply)) => Ok(Answer::Released(told(reply, |of| of))),
        (_, permits::Answer::Left(reply)) => Ok(Answer::Left(told(reply, |of| of))),
        (permits::Command::Touch { members }, permits::Answer::Touched(mut reply)) => {
            for (member, presence) in members.iter().zip(&reply.outcome.members) {
                if let permits::Presence::Holding { left_ms } = *presence {
                    reply.grants.push(Grant { member: member.clone(), left_ms });
                }
            }
            Ok(Answer::Touched(told(reply, |of| touched(&of))))
        }
        (asked, permits::Answer::Renewed(reply)) => {
            renewed(asked, reply).pop().ok_or_else(nonsense)
        }
        (_, permits::Answer::Inspected(found)) => Ok(Answer::SharedInspected(found)),
        _ => Err(nonsense()),
    }
}

/// The answers to a renewal or a reduction, one for each member.
pub(super) fn renewed(
    asked: &permits::Command,
    reply: permits::Reply<Vec<Renewed>>,
) -> Vec<Answer> {
    let members: Vec<&permits::Member> = match asked {
        permits::Command::Renew { members } => members.iter().collect(),
        permits::Command::Reduce { member, .. } => vec![member],
        _ => Vec::new(),
    };
    if members.len() != reply.outcome.len() {
        return Vec::new();
    }
    let token = reply.token;
    let Reply { outcome, mut several, mut more, now_us, .. } = told(reply, |each| each);
    let each = members.into_iter().zip(outcome).map(|(member, outcome)| {
        let is_held = outcome == Renewed::Held;
        let held = token.filter(|_| is_held);
        let grant = held.map(|token| Held { member: Member::from(member.as_str()), token });
        Answer::Renewed(Reply {
            outcome,
            left_ms: if is_held { member.lease_ms() } else { 0 },
            grant,
            foreign: false,
            now_us,
            passed_over: 0,
            // What else was granted is told once.
            several: std::mem::take(&mut several),
            more: std::mem::take(&mut more),
        })
    });
    each.collect()
}

fn told<T, U>(reply: permits::Reply<T>, outcome: impl FnOnce(T) -> U) -> Reply<U> {
    // Nothing is granted without a token.
    let holds = reply.token.into_iter().flat_map(|token| {
        reply.grants.iter().map(move |Grant { member, left_ms }| Share {
            member: Member::from(member.as_str()),
            token,
            left_ms: *left_ms,
        })
    });
    Reply {
        several: holds.collect(),
        outcome: outcome(reply.outcome),
        left_ms: reply.first_end_ms.unwrap_or(0),
        grant: None,
        foreign: false,
        now_us: reply.now_us.unwrap_or(0),
        passed_over: reply.passed_over,
        more: reply.more,
    }
}

fn touched(of: &permits::Touched) -> Touched {
    let presence = |presence: &permits::Presence| match presence {
        permits::Presence::Waiting => Presence::Waiting,
        permits::Presence::Holding { .. } => Presence::Holding,
        permits::Presence::Gone => Presence::Gone,
    };
    Touched { members: of.members.iter().map(presence).collect(), listeners: of.listeners }
}

fn sharing(member: &Member) -> Result<permits::Member, StoreError> {
    permits::Member::parse(member.as_str()).ok_or_else(|| {
        StoreError::refused(LockErrorKind::Protocol, "it asks for no part of a resource")
    })
}

fn all(members: &[Member]) -> Result<Vec<permits::Member>, StoreError> {
    members.iter().map(sharing).collect()
}

pub(super) fn nonsense() -> StoreError {
    StoreError::ambiguous("the answer is that to another command")
}
