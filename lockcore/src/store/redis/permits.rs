//! What is written to a server for a resource with permits, and read from it.

use redis::{Cmd, Value};

use super::keys::{Key, permit_tombstone};
use super::reply::{self, fencing_token, integer, nonsense, text};
use super::scripts::{self, Script};
use crate::error::StoreError;
use crate::key::LockName;
use crate::member::NodeId;
use crate::store::protocol::permits::{
    Acquired, Answer, Command, Grant, Inspection, Left, Member, Mode, Presence, Released, Renewed,
    Reply, Touched,
};

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
    match command {
        Command::Acquire { member, mode, queue_limit } => {
            let demand = member.demand();
            let mode = match mode {
                Mode::Try => "try",
                Mode::Wait => "wait",
            };
            call.arg(member.as_str()).arg(member.lease_ms());
            call.arg(demand.weight()).arg(demand.limit()).arg(mode).arg(queue_limit);
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
    call
}

/// The answer to the command.
///
/// # Errors
/// It has no known form.
pub(crate) fn answer(command: &Command, answer: Value) -> Result<Answer, StoreError> {
    read(command, &answer).ok_or_else(nonsense)
}

fn read(command: &Command, answer: &Value) -> Option<Answer> {
    Some(match command {
        Command::Acquire { member, .. } => Answer::Acquired(acquired(answer, member)?),
        Command::Release { .. } | Command::ForceRelease { .. } => {
            Answer::Released(released(answer)?)
        }
        Command::Renew { members } => Answer::Renewed(all_renewed(answer, members.len())?),
        Command::Reduce { .. } => Answer::Renewed(all_renewed(answer, 1)?),
        Command::Touch { .. } => Answer::Touched(touched(answer)?),
        Command::Leave { .. } => Answer::Left(full(answer, |letters, _| {
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
        let granted = Grant { member: member.clone(), left_ms: member.lease_ms() };
        let clock = reply::clock_for(text(clock)?, member.number())?;
        return short(Acquired::Granted, Some(clock), Some(token), vec![granted]);
    }
    full(answer, |outcome, number| match outcome {
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
        return short(Released::Released, None, None, Vec::new());
    }
    if let Value::Array(parts) = answer
        && let [clock, token, claim, head] = parts.as_slice()
    {
        let grants = match text(head) {
            Some(head) => vec![Grant { member: Member::parse(head)?, left_ms: integer(claim)? }],
            None => Vec::new(),
        };
        return short(Released::Released, Some(text(clock)?), Some(token), grants);
    }
    full(answer, |outcome, _| match outcome {
        "released" => Some(Released::Released),
        "not_held" => Some(Released::NotHeld),
        _ => None,
    })
}

/// Clock and token say that all hold.
fn all_renewed(answer: &Value, members: usize) -> Option<Reply<Vec<Renewed>>> {
    if let Value::Array(parts) = answer
        && let [clock, token] = parts.as_slice()
    {
        return short(vec![Renewed::Held; members], Some(text(clock)?), Some(token), Vec::new());
    }
    full(answer, |letters, _| letters.chars().map(renewed).collect())
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
pub(super) fn touched(answer: &Value) -> Option<Reply<Touched>> {
    let Value::Array(parts) = answer else { return None };
    let (Value::Array(lefts), rest) = parts.split_last()? else { return None };
    let mut lefts = lefts.iter();
    reply_of(rest, |letters, listeners| {
        let mut presence = |letter| match letter {
            'w' => Some(Presence::Waiting),
            'h' => Some(Presence::Holding { left_ms: integer(lefts.next()?)? }),
            'g' => Some(Presence::Gone),
            _ => None,
        };
        let members = letters.chars().map(&mut presence).collect::<Option<_>>()?;
        Some(Touched { members, listeners })
    })
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
        Some((Member::parse(text(member)?)?, integer(weight)?, left_ms))
    };
    let waits = |(member, at): (&Value, &Value)| Some((Member::parse(text(member)?)?, time(at)?));
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

/// `{ outcome, number, ms to the first end, token, server's time, passed over, more, members with
/// their ms }`
pub(super) fn full<T>(
    answer: &Value,
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<Reply<T>> {
    let Value::Array(parts) = answer else { return None };
    reply_of(parts, outcome)
}

fn reply_of<T>(parts: &[Value], outcome: impl FnOnce(&str, u64) -> Option<T>) -> Option<Reply<T>> {
    let [of, number, first_end, token, clock, passed_over, more, Value::Array(grants)] = parts
    else {
        return None;
    };
    let grant = |pair: &[Value]| {
        let [member, left_ms] = pair else { return None };
        Some(Grant { member: Member::parse(text(member)?)?, left_ms: integer(left_ms)? })
    };
    Some(Reply {
        outcome: outcome(text(of)?, integer(number)?)?,
        grants: grants.chunks(2).map(grant).collect::<Option<_>>()?,
        token: optional_token(token)?,
        first_end_ms: Some(integer(first_end)?),
        now_us: Some(text(clock)?.parse().ok()?),
        passed_over: integer(passed_over)?,
        more: integer(more)? == 1,
    })
}

/// What the short ways of the scripts leave out: nothing else happened.
fn short<T>(
    outcome: T,
    clock: Option<&str>,
    token: Option<&Value>,
    grants: Vec<Grant>,
) -> Option<Reply<T>> {
    let now_us = match clock {
        Some(clock) => Some(clock.parse().ok()?),
        None => None,
    };
    let token = match token {
        Some(token) => Some(fencing_token(text(token)?)?),
        None => None,
    };
    let (passed_over, more) = (0, false);
    Some(Reply { outcome, grants, token, first_end_ms: None, now_us, passed_over, more })
}

/// No token is none; what is no token is nonsense.
pub(super) fn optional_token(value: &Value) -> Option<Option<crate::token::FencingToken>> {
    match value {
        Value::Nil => Some(None),
        token => Some(Some(fencing_token(text(token)?)?)),
    }
}
