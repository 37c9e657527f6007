//! What is written to a server for a resource with permits, and read from it.

use redis::{Cmd, Value};

use super::keys::{Key, permit_tombstone};
use super::reply::{self, fencing_token, integer, nonsense, text};
use super::scripts::{self, Script};
use crate::error::StoreError;
use crate::key::LockName;
use crate::member::{Member, NodeId};
use crate::store::{
    Acquired, Answer, Command, Grant, Inspection, Left, Mode, Presence, Released, Renewed, Reply,
    Touched,
};
use crate::token::FencingToken;

/// The script that runs the command.
pub(crate) fn script(command: &Command) -> &'static Script {
    let scripts = scripts::of_permits();
    match command {
        Command::Acquire { .. } => &scripts.acquire,
        Command::Release { .. } => &scripts.release,
        Command::Renew { .. } => &scripts.renew,
        Command::Reduce { .. } => &scripts.reduce,
        Command::Touch { .. } => &scripts.touch,
        Command::Leave { .. } => &scripts.leave,
        Command::ForceRelease { .. } => &scripts.force_release,
        Command::Inspect => &scripts.inspect,
    }
}

/// Its call.
pub(crate) fn command(lock: &LockName, node: &NodeId, prefix: &str, command: &Command) -> Cmd {
    let tombstones: Vec<&Member> = match command {
        Command::Acquire { member, .. } => vec![member],
        Command::Leave { leaving } => {
            leaving.iter().filter(|one| one.ambiguous).map(|one| &one.member).collect()
        }
        _ => Vec::new(),
    };
    let mut call = script(command).command(4 + tombstones.len());
    for key in Key::of_permits(lock) {
        call.arg(key);
    }
    for member in tombstones {
        call.arg(permit_tombstone(lock, member));
    }
    call.arg(node.as_str()).arg(prefix);
    add_members(&mut call, command);
    if let Command::Acquire { mode, queue_limit, .. } = command {
        let mode = match mode {
            Mode::Try => "try",
            Mode::Wait => "wait",
        };
        call.arg(mode).arg(queue_limit);
    }
    call
}

/// Adds the members of a command with their figures: the last arguments of most scripts.
pub(super) fn add_members(call: &mut Cmd, command: &Command) {
    match command {
        Command::Acquire { member, .. } => {
            let demand = member.demand();
            call.arg(member.as_str()).arg(member.lease_ms());
            call.arg(demand.weight()).arg(demand.limit());
        }
        Command::Release { member } => {
            call.arg(member.as_str()).arg(member.demand().weight());
        }
        Command::Renew { members } => {
            for member in members {
                call.arg(member.as_str()).arg(member.lease_ms());
            }
        }
        Command::Reduce { member, weight } => {
            call.arg(member.as_str()).arg(weight.get());
        }
        Command::Touch { members } => {
            for member in members {
                call.arg(member.as_str());
            }
        }
        Command::Leave { leaving } => {
            for one in leaving {
                call.arg(one.member.as_str()).arg(u8::from(one.ambiguous));
            }
        }
        Command::ForceRelease { member } => {
            if let Some(member) = member {
                call.arg(member.as_str());
            }
        }
        Command::Inspect => {}
    }
}

/// The answer to the command.
///
/// # Errors
/// It has no known form.
pub(crate) fn answer(command: &Command, answer: &Value) -> Result<Answer, StoreError> {
    read(command, answer).ok_or_else(nonsense)
}

fn read(command: &Command, answer: &Value) -> Option<Answer> {
    Some(match command {
        Command::Acquire { member, .. } => Answer::Acquired(acquired(answer, member)?),
        Command::Release { .. } | Command::ForceRelease { .. } => {
            Answer::Released(released(answer)?)
        }
        Command::Renew { members } => Answer::Renewed(all_renewed(answer, members)?),
        Command::Reduce { member, .. } => Answer::Renewed(reduced(answer, member)?),
        Command::Touch { members } => Answer::Touched(touched(answer, members)?),
        Command::Leave { .. } => Answer::Left(all(answer, |letters, _| {
            letters.chars().map(left).collect::<Option<_>>()
        })?),
        Command::Inspect => Answer::Inspected(inspection(answer)?),
    })
}

/// Clock with the member's number, and token, say that the member has its full lease, and that no
/// member waits.
fn acquired(answer: &Value, member: &Member) -> Option<Reply<Acquired>> {
    if let Value::Array(parts) = answer
        && let [clock, token] = parts.as_slice()
    {
        let clock = reply::clock_for(text(clock)?, member.number())?;
        let granted = Grant {
            member: member.clone(),
            token: fencing_token(text(token)?)?,
            left_ms: member.lease_ms(),
        };
        return short(Acquired::Granted, Some(clock), vec![granted]);
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

/// A bare 1 says that it was released and none waits; clock, token and claim, that what came free
/// was handed to another node, or to the member that follows.
fn released(answer: &Value) -> Option<Reply<Released>> {
    if let Value::Int(1) = answer {
        return short(Released::Released, None, Vec::new());
    }
    if let Value::Array(parts) = answer
        && let [clock, token, claim, head] = parts.as_slice()
    {
        let token = fencing_token(text(token)?)?;
        let grants = match text(head) {
            Some(head) => {
                let (member, left_ms) = (Member::parse(head)?, integer(claim)?);
                vec![Grant { member, token, left_ms }]
            }
            None => Vec::new(),
        };
        return short(Released::Released, Some(text(clock)?), grants);
    }
    all(answer, |outcome, _| match outcome {
        "released" => Some(Released::Released),
        "not_held" => Some(Released::NotHeld),
        _ => None,
    })
}

/// Clock and token say that all hold.
fn all_renewed(answer: &Value, members: &[Member]) -> Option<Reply<Vec<Renewed>>> {
    let grant = |member: &Member, token| {
        let left_ms = member.lease_ms();
        Grant { member: member.clone(), token, left_ms }
    };
    if let Value::Array(parts) = answer
        && let [clock, token] = parts.as_slice()
    {
        let token = fencing_token(text(token)?)?;
        let grants = members.iter().map(|member| grant(member, token)).collect();
        return short(vec![Renewed::Held; members.len()], Some(text(clock)?), grants);
    }
    let (mut reply, token) =
        full(answer, |letters, _| letters.chars().map(renewed).collect::<Option<Vec<_>>>())?;
    let each = members.iter().zip(&reply.outcome);
    let held = each.filter(|(_, outcome)| **outcome == Renewed::Held);
    let told: Option<Vec<Grant>> =
        held.map(|(member, _): (&Member, _)| Some(grant(member, token?))).collect();
    reply.grants.splice(0..0, told?);
    (reply.outcome.len() == members.len()).then_some(reply)
}

pub(super) fn reduced(answer: &Value, member: &Member) -> Option<Reply<Vec<Renewed>>> {
    let (mut reply, token) =
        full(answer, |letters, _| letters.chars().map(renewed).collect::<Option<Vec<_>>>())?;
    if let (Some(token), [Renewed::Held]) = (token, reply.outcome.as_slice()) {
        reply.grants.insert(0, Grant { member: member.clone(), token, left_ms: 0 });
    }
    Some(reply)
}

pub(super) fn renewed(letter: char) -> Option<Renewed> {
    match letter {
        'h' => Some(Renewed::Held),
        'n' => Some(Renewed::NotHeld),
        _ => None,
    }
}

pub(super) fn left(letter: char) -> Option<Left> {
    match letter {
        'l' => Some(Left::Left),
        'a' => Some(Left::Absent),
        _ => None,
    }
}

/// As all others, and the milliseconds left of those that hold.
pub(super) fn touched(answer: &Value, members: &[Member]) -> Option<Reply<Touched>> {
    let Value::Array(parts) = answer else { return None };
    let (Value::Array(lefts), rest) = parts.split_last()? else { return None };
    let presence = |letter| match letter {
        'w' => Some(Presence::Waiting),
        'h' => Some(Presence::Holding),
        'g' => Some(Presence::Gone),
        _ => None,
    };
    let (mut reply, token) = reply_of(rest, |letters, listeners| {
        let members = letters.chars().map(presence).collect::<Option<_>>()?;
        Some(Touched { members, listeners })
    })?;
    let each = members.iter().zip(&reply.outcome.members);
    let holding = each.filter(|(_, presence)| **presence == Presence::Holding);
    let told: Option<Vec<_>> = holding
        .zip(lefts)
        .map(|((member, _), left)| {
            Some(Grant { member: member.clone(), token: token?, left_ms: integer(left)? })
        })
        .collect();
    let told = told.filter(|told| told.len() == lefts.len())?;
    reply.grants.splice(0..0, told);
    Some(reply)
}

pub(super) fn inspection(answer: &Value) -> Option<Inspection> {
    let Value::Array(parts) = answer else { return None };
    let [token, clock, Value::Array(holds), Value::Array(weights), waiting, deadlines] =
        parts.as_slice()
    else {
        return None;
    };
    let (Value::Array(waiting), Value::Array(deadlines)) = (waiting, deadlines) else {
        return None;
    };
    let now_us: u64 = text(clock)?.parse().ok()?;
    let time = |value: &Value| Some(text(value)?.parse::<f64>().ok()?.max(0.0) as u64);
    let held = |(hold, weight): (&[Value], &Value)| {
        let [member, ends] = hold else { return None };
        let left_ms = time(ends)?.saturating_sub(now_us / 1_000);
        Some((member_of(member)?.into(), integer(weight)?, left_ms))
    };
    let waits = |(member, at): (&Value, &Value)| Some((member_of(member)?.into(), time(at)?));
    Some(Inspection {
        // One whose lease has ended stays until its room is needed, but holds nothing.
        holds: (holds.chunks(2).zip(weights).map(held))
            .filter(|hold| hold.as_ref().is_none_or(|(.., left_ms)| *left_ms > 0))
            .collect::<Option<_>>()?,
        waiters: waiting.iter().zip(deadlines).map(waits).collect::<Option<_>>()?,
        token: optional_token(token)?,
        now_us,
    })
}

fn member_of(value: &Value) -> Option<Member> {
    Member::parse(text(value)?)
}

pub(super) fn all<T>(
    answer: &Value,
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<Reply<T>> {
    full(answer, outcome).map(|(reply, _)| reply)
}

/// `{ outcome, number, ms to the first end, token, server's time, passed over, more, members with
/// their ms }`. Also returns the token, which is that of every hold there is.
fn full<T>(
    answer: &Value,
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<(Reply<T>, Option<FencingToken>)> {
    let Value::Array(parts) = answer else { return None };
    reply_of(parts, outcome)
}

fn reply_of<T>(
    parts: &[Value],
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<(Reply<T>, Option<FencingToken>)> {
    let [of, number, first_end, token, clock, passed_over, more, Value::Array(grants)] = parts
    else {
        return None;
    };
    let token = optional_token(token)?;
    let grant = |pair: &[Value]| {
        let [member, left_ms] = pair else { return None };
        Some(Grant { member: member_of(member)?, token: token?, left_ms: integer(left_ms)? })
    };
    let reply = Reply {
        outcome: outcome(text(of)?, integer(number)?)?,
        grants: grants.chunks(2).map(grant).collect::<Option<_>>()?,
        first_end_ms: Some(integer(first_end)?),
        now_us: Some(text(clock)?.parse().ok()?),
        passed_over: integer(passed_over)?,
        more: integer(more)? == 1,
        foreign: false,
    };
    Some((reply, token))
}

/// What the short ways of the scripts leave out: nothing else happened.
fn short<T>(outcome: T, clock: Option<&str>, grants: Vec<Grant>) -> Option<Reply<T>> {
    let now_us = match clock {
        Some(clock) => Some(clock.parse().ok()?),
        None => None,
    };
    Some(Reply {
        outcome,
        grants,
        first_end_ms: None,
        now_us,
        passed_over: 0,
        more: false,
        foreign: false,
    })
}

/// No token is none; what is no token is nonsense.
fn optional_token(value: &Value) -> Option<Option<FencingToken>> {
    match value {
        Value::Nil => Some(None),
        token => Some(Some(fencing_token(text(token)?)?)),
    }
}
