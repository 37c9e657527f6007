//! Parses the replies of the queue scripts. The short forms are described in the scripts.

use super::is_whole;
use crate::claim_ms;
use crate::error::{LockErrorKind, StoreError};
use crate::member::{Member, NodeId};
use crate::name::LockName;
use crate::token::FencingToken;
use crate::wire::call::Commands;
use crate::wire::message::batch_of;
use crate::wire::outcome;
use crate::wire::scripts::POSITIONS;
use crate::wire::value::{ReplyBody, Value, fencing_token, nonsense};
use crate::{
    Acquired, Answer, Answers, Command, Grant, HoldView, Inspection, Left, Presence, Released,
    Renewed, Reply, Touched,
};

const FOREIGN_LOCK_KEY: &str = "the key lock:{…} holds data that does not belong to a lock";

/// Parses the reply to a command that `node` sent.
///
/// # Errors
/// A protocol error if the reply has no known form or belongs to another request.
pub(crate) fn answer(
    (lock, command): (&LockName, &Command),
    node: &NodeId,
    answer: &Value<'_>,
) -> Result<Answer, StoreError> {
    if let (Command::Renew { .. }, true) = (command, is_whole(command)) {
        return renewals(&[(lock, command)], answer)?.pop().unwrap_or_else(|| Err(nonsense()));
    }
    let asked = command.first().map_or(lock.lock_key(), Member::as_str);
    let read = || match (command, answer) {
        (Command::Release { .. }, Value::Text(text)) => {
            Some(Answer::Released(handed_over(text, node)?))
        }
        _ => read(command, ReplyBody::to(asked, answer)?),
    };
    read().ok_or_else(nonsense)
}

/// Parses the reply to renewals of several locks: the server's time in µs, followed by a letter for
/// each lock. A lock whose key contains data of another program has an error in the result.
///
/// # Errors
/// As [`answer`].
pub(crate) fn renewals(commands: &Commands<'_>, answer: &Value<'_>) -> Result<Answers, StoreError> {
    let each = || {
        let first = commands.first()?.1.first()?;
        let ReplyBody::Text(text) = ReplyBody::to(first.as_str(), answer)? else { return None };
        let (clock, letters) = text.split_at_checked(text.len().checked_sub(commands.len())?)?;
        let now_us = Some(clock.parse().ok()?);
        let one = |letter| match letter {
            's' => Some(Err(StoreError::refused(LockErrorKind::WrongType, FOREIGN_LOCK_KEY))),
            letter => {
                let outcome = vec![renewed(letter)?];
                Some(Ok(Answer::Renewed(Reply { now_us, ..Reply::short(outcome) })))
            }
        };
        letters.chars().map(one).collect::<Option<_>>()
    };
    each().ok_or_else(nonsense)
}

fn read(command: &Command, body: ReplyBody<'_>) -> Option<Answer> {
    Some(match command {
        Command::Acquire { members, .. } => {
            Answer::Acquired(match (not_queued(body), members.as_slice()) {
                (Some(outcome), members) => Reply::short(vec![outcome; members.len()]),
                (None, [member]) => acquired(body, member)?,
                (None, members) => {
                    of_each(all_acquired(body, members.len())?, members.len(), Vec::len)?
                }
            })
        }
        Command::Release { .. } | Command::ForceRelease { .. } => Answer::Released(released(body)?),
        Command::Renew { members } => {
            let reply = all_renewed(body, members.len())?;
            Answer::Renewed(of_each(reply, members.len(), Vec::len)?)
        }
        Command::Confirm { member } => {
            Answer::Renewed(of_each(confirmed(body, member)?, 1, Vec::len)?)
        }
        Command::Reduce { member, .. } => Answer::Renewed(reduced(body, member)?),
        Command::Touch { members } => {
            let reply = touched(body, members.len())?;
            Answer::Touched(of_each(reply, members.len(), |outcome| outcome.members.len())?)
        }
        Command::Leave { leaving } => {
            Answer::Left(of_each(left(body, leaving.len())?, leaving.len(), Vec::len)?)
        }
        Command::Inspect { .. } => Answer::Inspected(inspection(body)?),
    })
}

/// Returns the reply if it has `members` outcomes, as counted by `count`. `None` otherwise, because
/// then the reply belongs to another command.
fn of_each<T>(reply: Reply<T>, members: usize, count: impl Fn(&T) -> usize) -> Option<Reply<T>> {
    (count(&reply.outcome) == members).then_some(reply)
}

/// Parses the short reply to an acquire during an exclusive hold if no member was queued. It is an
/// empty text if the members do not wait, or `f` and the queue length if the queue is full. `None`
/// for any other reply.
fn not_queued(body: ReplyBody<'_>) -> Option<Acquired> {
    match body {
        ReplyBody::Text("") => Some(Acquired::Busy),
        ReplyBody::Text(text) => {
            let waiting = text.strip_prefix('f')?.parse().ok()?;
            Some(Acquired::Full { waiting })
        }
        ReplyBody::Number(_) | ReplyBody::Full(_) => None,
    }
}

/// Parses the reply to an acquire for a single member: a token if it was granted, a number as for
/// [`queued`] if it was queued during an exclusive hold, or a [full reply](reply_of).
fn acquired(body: ReplyBody<'_>, member: &Member) -> Option<Reply<Vec<Acquired>>> {
    match body {
        ReplyBody::Number(packed) => queued(packed, 1),
        ReplyBody::Text(text) => granted(text, member, vec![Acquired::Granted]),
        ReplyBody::Full(parts) => {
            all(parts, |word, number| Some(vec![outcome::acquired(word, number)?]))
        }
    }
}

/// Parses the number in reply to an acquire whose members were all queued during an exclusive hold.
/// It contains the remaining lease and the first member's position; the others follow that member.
fn queued(packed: i64, members: usize) -> Option<Reply<Vec<Acquired>>> {
    behind_lock(packed, |first| {
        (first..).take(members).map(|position| Acquired::Queued { position }).collect()
    })
}

/// Parses the reply to an acquire for several members: a number as for [`queued`], or a [full
/// reply](reply_of) with a further list. The list contains the position of each queued member and
/// the queue length for each member that found the queue full.
fn all_acquired(body: ReplyBody<'_>, members: usize) -> Option<Reply<Vec<Acquired>>> {
    let parts = match body {
        ReplyBody::Number(packed) => return queued(packed, members),
        ReplyBody::Text(_) => return None,
        ReplyBody::Full(parts) => parts,
    };
    let (Value::List(numbers), rest) = parts.split_last()? else { return None };
    all(rest, |letters, _| outcome::all_acquired(letters, numbers))
}

/// Splits the number of a short reply in two: the remaining ms of an exclusive lease, times
/// [`POSITIONS`], plus a second number. The reply's outcome is computed from the second number by
/// `outcome`.
fn behind_lock<T>(packed: i64, outcome: impl FnOnce(u64) -> T) -> Option<Reply<T>> {
    let left_ms = u64::try_from(packed / POSITIONS).ok().filter(|left_ms| *left_ms > 0)?;
    let number = u64::try_from(packed % POSITIONS).ok()?;
    Some(Reply { first_end_ms: Some(left_ms), ..Reply::short(outcome(number)) })
}

/// Parses the reply to a leave. If all members waited behind an exclusive hold, it is the remaining
/// lease in ms, followed by a letter for each member; otherwise a [full reply](reply_of).
fn left(body: ReplyBody<'_>, members: usize) -> Option<Reply<Vec<Left>>> {
    let text = match body {
        ReplyBody::Number(_) => return None,
        ReplyBody::Text(text) => text,
        ReplyBody::Full(parts) => return all(parts, outcome::left),
    };
    let (left_ms, letters) = text.split_at_checked(text.len().checked_sub(members)?)?;
    Some(Reply {
        first_end_ms: Some(left_ms.parse().ok()?),
        ..Reply::short(outcome::left(letters, 0)?)
    })
}

/// Parses the short reply for a member that holds the lock for its whole lease: `<token>` or
/// `<token> <server's time in µs>`. For a batch, a second line contains the member ids.
fn granted<T>(text: &str, member: &Member, outcome: T) -> Option<Reply<T>> {
    let (text, batch) = with_batch(text);
    let (token, clock) = text.split_once(' ').map_or((text, None), |(token, at)| (token, Some(at)));
    let now_us = match clock {
        Some(clock) => Some(clock.parse().ok()?),
        None => None,
    };
    let grants = vec![grant_of(member.clone(), fencing_token(token)?, member.lease_ms(), batch)?];
    Some(Reply { grants, now_us, ..Reply::short(outcome) })
}

/// Parses the reply to a release: the number 1 if nobody waited, the number 2 if the lock was
/// granted to another node, or a [full reply](reply_of). A grant to this node is parsed by
/// [`handed_over`].
fn released(body: ReplyBody<'_>) -> Option<Reply<Released>> {
    match body {
        ReplyBody::Number(1 | 2) => Some(Reply::short(Released::Released)),
        ReplyBody::Number(_) | ReplyBody::Text(_) => None,
        ReplyBody::Full(parts) => all(parts, outcome::released),
    }
}

/// Parses the reply `<token><member>` to a release that granted the lock to another member of the
/// calling node. For a batch, a second line contains the member ids.
fn handed_over(text: &str, node: &NodeId) -> Option<Reply<Released>> {
    let (token, hold) = text.split_at_checked(text.find('~')?)?;
    let (member, batch) = with_batch(hold);
    let member = Member::parse(member).filter(|one| one.is_of(node))?;
    let left_ms = claim_ms(member.lease_ms());
    let grants = vec![grant_of(member, fencing_token(token)?, left_ms, batch)?];
    Some(Reply { grants, ..Reply::short(Released::Released) })
}

/// Parses the reply to a renewal of holds of one lock. If all members hold, it is the server's time
/// in µs and the letter `h`; otherwise a [full reply](reply_of).
fn all_renewed(body: ReplyBody<'_>, members: usize) -> Option<Reply<Vec<Renewed>>> {
    match body {
        ReplyBody::Number(_) => None,
        ReplyBody::Text(text) => {
            let now_us = Some(text.strip_suffix('h')?.parse().ok()?);
            Some(Reply { now_us, ..Reply::short(vec![Renewed::Held; members]) })
        }
        ReplyBody::Full(parts) => all(parts, letters_of_renewals),
    }
}

/// Parses the reply to a confirmation: a token if the member holds the lock, or a [full
/// reply](reply_of).
fn confirmed(body: ReplyBody<'_>, member: &Member) -> Option<Reply<Vec<Renewed>>> {
    match body {
        ReplyBody::Number(_) => None,
        ReplyBody::Text(text) => granted(text, member, vec![Renewed::Held]),
        ReplyBody::Full(parts) => all(parts, letters_of_renewals),
    }
}

fn letters_of_renewals(letters: &str, _number: u64) -> Option<Vec<Renewed>> {
    letters.chars().map(renewed).collect()
}

/// Returns the reply for a member that was granted the lock for its whole lease, if there is
/// nothing else to report.
pub(super) fn held<T>(member: Member, token: FencingToken, outcome: T) -> Reply<T> {
    let left_ms = member.lease_ms();
    Reply {
        grants: vec![Grant { member, token, left_ms, batch: Vec::new() }],
        ..Reply::short(outcome)
    }
}

fn reduced(body: ReplyBody<'_>, member: &Member) -> Option<Reply<Vec<Renewed>>> {
    let ReplyBody::Full(parts) = body else { return None };
    let (mut reply, token) = reply_of(parts, letters_of_renewals)?;
    if let (Some(token), [Renewed::Held]) = (token, reply.outcome.as_slice()) {
        reply
            .grants
            .insert(0, Grant { member: member.clone(), token, left_ms: 0, batch: Vec::new() });
    }
    Some(reply)
}

fn renewed(letter: char) -> Option<Renewed> {
    match letter {
        'h' => Some(Renewed::Held),
        'n' => Some(Renewed::NotHeld),
        _ => None,
    }
}

/// Parses the reply to a touch. If all members wait behind an exclusive hold, it is a number with
/// the remaining lease in ms and the number of listeners; otherwise a [full reply](reply_of).
fn touched(body: ReplyBody<'_>, members: usize) -> Option<Reply<Touched>> {
    match body {
        ReplyBody::Number(packed) => {
            let members = vec![Presence::Waiting; members];
            behind_lock(packed, |listeners| Touched { members, listeners })
        }
        ReplyBody::Text(_) => None,
        ReplyBody::Full(parts) => all(parts, |letters, listeners| {
            Some(Touched { members: outcome::touched(letters)?, listeners })
        }),
    }
}

fn inspection(body: ReplyBody<'_>) -> Option<Inspection> {
    let ReplyBody::Full(parts) = body else { return None };
    let [
        token,
        clock,
        Value::List(holds),
        Value::List(weights),
        Value::List(waiters),
        Value::List(deadlines),
        holding,
        waiting,
    ] = parts
    else {
        return None;
    };
    let now_us: u64 = clock.text()?.parse().ok()?;
    let time = |value: &Value<'_>| Some(value.text()?.parse::<f64>().ok()?.max(0.0) as u64);
    let held = |(hold, weight): (&[Value<'_>], &Value<'_>)| {
        let [member, ends] = hold else { return None };
        let left_ms = time(ends)?.saturating_sub(now_us / 1_000);
        Some(HoldView { party: member_of(member)?.into(), weight: weight.integer()?, left_ms })
    };
    let waits =
        |(member, at): (&Value<'_>, &Value<'_>)| Some((member_of(member)?.into(), time(at)?));
    Some(Inspection {
        // An expired hold stays until its weight is needed, but is not shown.
        holds: (holds.chunks(2).zip(weights).map(held))
            .filter(|hold| hold.as_ref().is_none_or(|hold| hold.left_ms > 0))
            .collect::<Option<_>>()?,
        waiters: waiters.iter().zip(deadlines).map(waits).collect::<Option<_>>()?,
        holding: holding.integer()?,
        waiting: waiting.integer()?,
        token: optional_token(token)?,
        now_us,
    })
}

/// Splits the text of a hold into the holder and the second line, which contains the ids of the
/// batch members. The second part is `None` outside a batch.
fn with_batch(hold: &str) -> (&str, Option<&str>) {
    hold.split_once('\n').map_or((hold, None), |(hold, batch)| (hold, Some(batch)))
}

/// Creates a grant. `batch` contains the ids of the batch members, and is `None` outside a batch.
/// Returns `None` if the ids cannot be parsed.
fn grant_of(
    member: Member,
    token: FencingToken,
    left_ms: u64,
    batch: Option<&str>,
) -> Option<Grant> {
    let batch = batch.map_or(Some(Vec::new()), |batch| batch_of(batch, token))?;
    Some(Grant { member, token, left_ms, batch })
}

fn member_of(value: &Value<'_>) -> Option<Member> {
    Member::parse(value.text()?)
}

fn all<T>(parts: &[Value<'_>], outcome: impl FnOnce(&str, u64) -> Option<T>) -> Option<Reply<T>> {
    reply_of(parts, outcome).map(|(reply, _)| reply)
}

/// Parses a full reply, a list of eight parts: the outcome, a number, the ms until the first lease
/// ends, the token, the server's time in µs, the number of skipped waiters, 1 if work is left, and
/// the holds, each with its ms left. Also returns the token, which all these holds share.
fn reply_of<T>(
    parts: &[Value<'_>],
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<(Reply<T>, Option<FencingToken>)> {
    let [of, number, first_end, token, clock, skipped, more, Value::List(grants)] = parts else {
        return None;
    };
    let token = optional_token(token)?;
    let grant = |pair: &[Value<'_>]| {
        let [member, left_ms] = pair else { return None };
        let (member, batch) = with_batch(member.text()?);
        grant_of(Member::parse(member)?, token?, left_ms.integer()?, batch)
    };
    let reply = Reply {
        outcome: outcome(of.text()?, number.integer()?)?,
        grants: grants.chunks(2).map(grant).collect::<Option<_>>()?,
        first_end_ms: Some(first_end.integer()?),
        now_us: Some(clock.text()?.parse().ok()?),
        skipped: skipped.integer()?,
        more: more.integer()? == 1,
    };
    Some((reply, token))
}

/// Parses an optional token: `Some(None)` for nil, and `None` for a text that is not a token.
fn optional_token(value: &Value<'_>) -> Option<Option<FencingToken>> {
    match value {
        Value::Nil => Some(None),
        token => Some(Some(fencing_token(token.text()?)?)),
    }
}
