//! The commands of the queue as they are written to a server, and its answers.

use redis::{Cmd, Value};

use super::keys::{COUNTER, Key};
use super::permits::{add_members, all, inspection, left, reduced, renewed, touched};
use super::reply::{nonsense, text};
use super::scripts::{self, Script};
use crate::demand::Demand;
use crate::error::{LockErrorKind, StoreError};
use crate::key::LockName;
use crate::member::{Member, NodeId};
use crate::store::protocol::claim_ms;
use crate::store::{Acquired, Answer, Command, Grant, Mode, Released, Renewed, Reply};
use crate::token::FencingToken;

/// The queue limit that is not sent.
const USUAL_LIMIT: u32 = 1_000;
/// The prefix of channels that is not sent.
const USUAL_PREFIX: &str = "lockcore";
/// A position in a short answer is below this.
const POSITIONS: i64 = 1 << 20;

/// The circumstances of one command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) node: &'a NodeId,
    pub(crate) prefix: &'a str,
    /// The greatest token and time that the node has seen on a server, µs since the epoch.
    pub(crate) floor_us: u64,
    /// The latest time that it has seen on servers before this one; 0 if there was none.
    pub(crate) elsewhere_us: u64,
}

/// Whether the command is about everything alone: then it has a script that looks at the door.
fn is_whole(command: &Command) -> bool {
    match command {
        Command::Acquire { member, .. } | Command::Release { member } => {
            member.demand() == Demand::WRITE
        }
        Command::Renew { members } => matches!(&**members, [one] if one.demand() == Demand::WRITE),
        _ => false,
    }
}

/// The name of the script that runs the command.
pub(crate) fn script_name(command: &Command) -> &'static str {
    match (command, is_whole(command)) {
        (Command::Acquire { .. }, true) => "lock",
        (Command::Acquire { .. }, false) => "acquire",
        (Command::Release { .. }, true) => "unlock",
        (Command::Release { .. }, false) => "release",
        (Command::Renew { .. }, true) => "extend",
        (Command::Renew { .. }, false) => "renew",
        (Command::Reduce { .. }, _) => "reduce",
        (Command::Touch { .. }, _) => "touch",
        (Command::Leave { .. }, _) => "leave",
        (Command::ForceRelease { .. }, _) => "force_release",
        (Command::Inspect, _) => "inspect",
    }
}

/// The script that runs the command.
pub(crate) fn script(command: &Command) -> &'static Script {
    let scripts = scripts::of_queue();
    match script_name(command) {
        "lock" => &scripts.lock,
        "acquire" => &scripts.acquire,
        "unlock" => &scripts.unlock,
        "release" => &scripts.release,
        "extend" => &scripts.extend,
        "renew" => &scripts.renew,
        "reduce" => &scripts.reduce,
        "touch" => &scripts.touch,
        "leave" => &scripts.leave,
        "force_release" => &scripts.force_release,
        _ => &scripts.inspect,
    }
}

/// Its call.
pub(crate) fn command(lock: &LockName, terms: Terms<'_>, command: &Command) -> Cmd {
    match command {
        Command::Renew { members } if is_whole(command) => {
            let mut call = script(command).command(1);
            call.arg(Key::door(lock));
            for member in members {
                call.arg(member.as_str()).arg(member.lease_ms());
            }
            return call;
        }
        _ => {}
    }
    let mut call = script(command).command(2);
    call.arg(Key::door(lock)).arg(COUNTER);
    match command {
        Command::Acquire { member, mode, queue_limit } if is_whole(command) => {
            call.arg(member.as_str()).arg(member.lease_ms()).arg(terms.floor_us);
            add_unusual(&mut call, Some(limit_of(*mode, *queue_limit)), terms);
            return call;
        }
        Command::Release { member } if is_whole(command) => {
            call.arg(member.as_str()).arg(terms.floor_us);
            add_unusual(&mut call, None, terms);
            return call;
        }
        Command::Inspect => return call,
        _ => {}
    }
    call.arg(terms.node.as_str()).arg(terms.floor_us).arg(terms.elsewhere_us).arg(terms.prefix);
    add_members(&mut call, command);
    if let Command::Acquire { mode, queue_limit, .. } = command {
        call.arg(limit_of(*mode, *queue_limit));
    }
    call
}

/// The queue limit as it is sent: 0 lets the member not wait.
fn limit_of(mode: Mode, queue_limit: u32) -> u32 {
    match mode {
        Mode::Try => 0,
        Mode::Wait => queue_limit.max(1),
    }
}

/// The last arguments of the hot scripts, up to the last that is not the usual one: each argument
/// costs the server as much as half a command.
fn add_unusual(call: &mut Cmd, limit: Option<u32>, terms: Terms<'_>) {
    let has_prefix = terms.prefix != USUAL_PREFIX;
    let has_elsewhere = has_prefix || terms.elsewhere_us > 0;
    if let Some(limit) = limit.filter(|limit| has_elsewhere || *limit != USUAL_LIMIT) {
        call.arg(limit);
    }
    if has_elsewhere {
        call.arg(terms.elsewhere_us);
    }
    if has_prefix {
        call.arg(terms.prefix);
    }
}

/// The answer to the command.
///
/// # Errors
/// It has no known form.
pub(crate) fn answer(
    command: &Command,
    terms: Terms<'_>,
    answer: &Value,
) -> Result<Answer, StoreError> {
    let strange = is_whole(command) && matches!(command, Command::Renew { .. });
    if strange && text(answer).is_some_and(|told| told.ends_with('s')) {
        let detail = "the key lock:{…} holds what does not belong to a lock";
        return Err(StoreError::refused(LockErrorKind::WrongType, detail));
    }
    read(command, terms, answer).ok_or_else(nonsense)
}

fn read(command: &Command, terms: Terms<'_>, answer: &Value) -> Option<Answer> {
    Some(match command {
        Command::Acquire { member, .. } => Answer::Acquired(acquired(answer, member, terms)?),
        Command::Release { .. } | Command::ForceRelease { .. } => {
            Answer::Released(released(answer, terms)?)
        }
        Command::Renew { members } if is_whole(command) => {
            Answer::Renewed(extended(answer, members.len())?)
        }
        Command::Renew { members } => Answer::Renewed(all_renewed(answer, members.len())?),
        Command::Reduce { member, .. } => Answer::Renewed(reduced(answer, member)?),
        Command::Touch { members } => Answer::Touched(touched(answer, members)?),
        Command::Leave { .. } => Answer::Left(all(answer, |letters, _| {
            letters.chars().map(left).collect::<Option<_>>()
        })?),
        Command::Inspect => Answer::Inspected(inspection(answer)?),
    })
}

/// Granted: a token and the member's own text, so that an answer which went missing on the way does
/// not make this one another member's. Queued: a number. Else in full.
fn acquired(answer: &Value, member: &Member, terms: Terms<'_>) -> Option<Reply<Acquired>> {
    if let Value::Int(packed) = answer {
        let (left_ms, position) = (packed / POSITIONS, packed % POSITIONS);
        let (left_ms, position) = (u64::try_from(left_ms).ok()?, u64::try_from(position).ok()?);
        let outcome = (left_ms > 0).then_some(Acquired::Queued { position })?;
        return Some(Reply { first_end_ms: Some(left_ms), ..short(outcome) });
    }
    if let Some(told) = text(answer) {
        let granted = told.strip_suffix(member.as_str())?;
        let (token, now_us) = match granted.split_once(' ') {
            Some((token, clock)) => (token.parse().ok()?, Some(clock.parse().ok()?)),
            None => (terms.floor_us.checked_add(granted.parse().ok()?)?, None),
        };
        let (token, left_ms) = (FencingToken::try_from(token).ok()?, member.lease_ms());
        let grants = vec![Grant { member: member.clone(), token, left_ms }];
        return Some(Reply { grants, now_us, ..short(Acquired::Granted) });
    }
    all(answer, |outcome, number| match outcome {
        "granted" => Some(Acquired::Granted),
        "queued" => Some(Acquired::Queued { position: number }),
        "busy" => Some(Acquired::Busy),
        "full" => Some(Acquired::Full),
        "refused" => Some(Acquired::Refused),
        _ => None,
    })
}

/// 1 says that it was released and there are no waiters; 2, that it was handed to another node; a
/// token and a member, that it was handed to this one of the caller's node.
fn released(answer: &Value, terms: Terms<'_>) -> Option<Reply<Released>> {
    if let Value::Int(1 | 2) = answer {
        return Some(short(Released::Released));
    }
    if let Some(told) = text(answer) {
        let (ahead, member) = told.split_at_checked(told.find('~')?)?;
        let member = Member::parse(member).filter(|one| one.node() == terms.node.as_str())?;
        let token = terms.floor_us.checked_add(ahead.parse().ok()?)?;
        let left_ms = claim_ms(member.lease_ms());
        let token = FencingToken::try_from(token).ok()?;
        let grants = vec![Grant { member, token, left_ms }];
        return Some(Reply { grants, ..short(Released::Released) });
    }
    all(answer, |outcome, _| match outcome {
        "released" => Some(Released::Released),
        "not_held" => Some(Released::NotHeld),
        _ => None,
    })
}

/// The clock, and a letter for each hold.
fn extended(answer: &Value, members: usize) -> Option<Reply<Vec<Renewed>>> {
    let told = text(answer)?;
    let (clock, letters) = told.split_at_checked(told.len().checked_sub(members)?)?;
    let outcome = letters.chars().map(renewed).collect::<Option<_>>()?;
    Some(Reply { now_us: Some(clock.parse().ok()?), ..short(outcome) })
}

/// The clock says that all hold.
fn all_renewed(answer: &Value, members: usize) -> Option<Reply<Vec<Renewed>>> {
    if let Some(clock) = text(answer) {
        let now_us = Some(clock.parse().ok()?);
        return Some(Reply { now_us, ..short(vec![Renewed::Held; members]) });
    }
    all(answer, |letters, _| letters.chars().map(renewed).collect())
}

/// A short answer: nothing else happened.
fn short<T>(outcome: T) -> Reply<T> {
    Reply {
        outcome,
        grants: Vec::new(),
        first_end_ms: None,
        now_us: None,
        passed_over: 0,
        more: false,
        foreign: false,
    }
}
