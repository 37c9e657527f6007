//! From the answers of the queue's scripts to typed replies.

use super::is_whole;
use crate::claim_ms;
use crate::error::{LockErrorKind, StoreError};
use crate::member::Member;
use crate::token::FencingToken;
use crate::wire::Context;
use crate::wire::message::run_of;
use crate::wire::outcome;
use crate::wire::value::{Value, fencing_token, nonsense};
use crate::{
    Acquired, Answer, Answers, Command, Grant, HoldView, Inspection, Left, Mode, Presence,
    Released, Renewed, Reply, Touched,
};

/// A position in a short answer is below this.
const POSITIONS: i64 = 1 << 20;
const FOREIGN_DOOR: &str = "the key lock:{…} holds data that does not belong to a lock";

/// The answer to the command.
///
/// # Errors
/// If the answer has no known form.
pub(crate) fn answer(
    command: &Command,
    context: Context<'_>,
    answer: &Value<'_>,
) -> Result<Answer, StoreError> {
    if let (Command::Renew { .. }, true) = (command, is_whole(command)) {
        return renewals(1, answer)?.pop().unwrap_or_else(|| Err(nonsense()));
    }
    read(command, context, answer).ok_or_else(nonsense)
}

/// The answers to renewals of several locks: the clock, and a letter for each.
///
/// # Errors
/// They have no known form.
pub(crate) fn renewals(locks: usize, answer: &Value<'_>) -> Result<Answers, StoreError> {
    let each = || {
        let told = answer.text()?;
        let (clock, letters) = told.split_at_checked(told.len().checked_sub(locks)?)?;
        let now_us = Some(clock.parse().ok()?);
        let one = |letter| match letter {
            's' => Some(Err(StoreError::refused(LockErrorKind::WrongType, FOREIGN_DOOR))),
            letter => {
                let outcome = vec![renewed(letter)?];
                Some(Ok(Answer::Renewed(Reply { now_us, ..short(outcome) })))
            }
        };
        letters.chars().map(one).collect::<Option<_>>()
    };
    each().ok_or_else(nonsense)
}

fn read(command: &Command, context: Context<'_>, answer: &Value<'_>) -> Option<Answer> {
    Some(match command {
        Command::Acquire { members, mode, .. } if matches!(answer, Value::Integer(0)) => {
            let outcome = if *mode == Mode::Try { Acquired::Busy } else { Acquired::Full };
            Answer::Acquired(short(vec![outcome; members.len()]))
        }
        Command::Acquire { members, .. } => Answer::Acquired(match members.as_slice() {
            [member] => acquired(answer, member, context)?,
            members => of_each(all_acquired(answer, members.len())?, members.len(), Vec::len)?,
        }),
        Command::Release { .. } | Command::ForceRelease { .. } => {
            Answer::Released(released(answer, context)?)
        }
        Command::Renew { members } => {
            let reply = all_renewed(answer, members.len())?;
            Answer::Renewed(of_each(reply, members.len(), Vec::len)?)
        }
        Command::Confirm { member } => {
            Answer::Renewed(of_each(confirmed(answer, member, context)?, 1, Vec::len)?)
        }
        Command::Reduce { member, .. } => Answer::Renewed(reduced(answer, member)?),
        Command::Touch { members } => {
            let reply = touched(answer, members)?;
            Answer::Touched(of_each(reply, members.len(), |outcome| outcome.members.len())?)
        }
        Command::Leave { leaving } => {
            Answer::Left(of_each(left(answer, leaving.len())?, leaving.len(), Vec::len)?)
        }
        Command::Inspect { .. } => Answer::Inspected(inspection(answer)?),
    })
}

/// The reply, if it says something of each member that was asked for: else it is an answer to
/// another command.
fn of_each<T>(reply: Reply<T>, members: usize, told: impl Fn(&T) -> usize) -> Option<Reply<T>> {
    (told(&reply.outcome) == members).then_some(reply)
}

/// Granted: a token and the member's own text, so that an answer which went missing on the way does
/// not make this one another member's. Queued: a number. Else in full.
fn acquired(
    answer: &Value<'_>,
    member: &Member,
    context: Context<'_>,
) -> Option<Reply<Vec<Acquired>>> {
    if let Value::Integer(packed) = answer {
        return queued(*packed, 1);
    }
    if let Some(told) = answer.text() {
        return granted(told, member, context, vec![Acquired::Granted]);
    }
    all(answer, |word, number| Some(vec![outcome::acquired(word, number)?]))
}

/// The answer of members that are all queued behind a lock, one behind the other.
fn queued(packed: i64, members: usize) -> Option<Reply<Vec<Acquired>>> {
    behind_lock(packed, |first| {
        (first..).take(members).map(|position| Acquired::Queued { position }).collect()
    })
}

/// Queued, all of them: a number. Else a full reply, followed by the position of each member that
/// is queued.
fn all_acquired(answer: &Value<'_>, members: usize) -> Option<Reply<Vec<Acquired>>> {
    if let Value::Integer(packed) = answer {
        return queued(*packed, members);
    }
    let Value::List(parts) = answer else { return None };
    let (Value::List(positions), rest) = parts.split_last()? else { return None };
    let (reply, _) = reply_of(rest, |letters, _| outcome::all_acquired(letters, positions))?;
    Some(reply)
}

/// Ms left of the lease of a lock, and a number that goes with the outcome.
fn behind_lock<T>(packed: i64, outcome: impl FnOnce(u64) -> T) -> Option<Reply<T>> {
    let left_ms = u64::try_from(packed / POSITIONS).ok().filter(|left_ms| *left_ms > 0)?;
    let number = u64::try_from(packed % POSITIONS).ok()?;
    Some(Reply { first_end_ms: Some(left_ms), ..short(outcome(number)) })
}

/// Ms left of the lease of the lock behind which all of them waited, and a letter for each; or in
/// full.
fn left(answer: &Value<'_>, members: usize) -> Option<Reply<Vec<Left>>> {
    let Some(told) = answer.text() else { return all(answer, outcome::left) };
    let (left_ms, letters) = told.split_at_checked(told.len().checked_sub(members)?)?;
    Some(Reply { first_end_ms: Some(left_ms.parse().ok()?), ..short(outcome::left(letters, 0)?) })
}

/// `<token - floor><member>`, or `<token> <clock><member>`: the member holds for its whole lease;
/// also for a run.
fn granted<T>(told: &str, member: &Member, context: Context<'_>, outcome: T) -> Option<Reply<T>> {
    let (told, run) = with_run(told);
    let told = told.strip_suffix(member.as_str())?;
    let (token, now_us) = match told.split_once(' ') {
        Some((token, clock)) => (token.parse().ok()?, Some(clock.parse().ok()?)),
        None => (context.floors.floor_us.checked_add(told.parse().ok()?)?, None),
    };
    let token = FencingToken::try_from(token).ok()?;
    let left_ms = member.lease_ms();
    let grants = vec![grant_of(member.clone(), token, left_ms, run)?];
    Some(Reply { grants, now_us, ..short(outcome) })
}

/// 1 says that it was released and there are no waiters; 2, that it was handed to another node; a
/// token and a member, that it was handed to this one of the caller's node.
fn released(answer: &Value<'_>, context: Context<'_>) -> Option<Reply<Released>> {
    if let Value::Integer(1 | 2) = answer {
        return Some(short(Released::Released));
    }
    if let Some(told) = answer.text() {
        let (ahead, hold) = told.split_at_checked(told.find('~')?)?;
        let (member, run) = with_run(hold);
        let member = Member::parse(member).filter(|one| one.node() == context.node.as_str())?;
        let token = context.floors.floor_us.checked_add(ahead.parse().ok()?)?;
        let left_ms = claim_ms(member.lease_ms());
        let token = FencingToken::try_from(token).ok()?;
        let grants = vec![grant_of(member, token, left_ms, run)?];
        return Some(Reply { grants, ..short(Released::Released) });
    }
    all(answer, outcome::released)
}

/// The clock says that all hold.
fn all_renewed(answer: &Value<'_>, members: usize) -> Option<Reply<Vec<Renewed>>> {
    if let Some(clock) = answer.text() {
        let now_us = Some(clock.parse().ok()?);
        return Some(Reply { now_us, ..short(vec![Renewed::Held; members]) });
    }
    all(answer, |letters, _| letters.chars().map(renewed).collect())
}

/// A token and the member's own text say that it holds.
fn confirmed(
    answer: &Value<'_>,
    member: &Member,
    context: Context<'_>,
) -> Option<Reply<Vec<Renewed>>> {
    match answer.text() {
        Some(told) => granted(told, member, context, vec![Renewed::Held]),
        None => all(answer, |letters, _| letters.chars().map(renewed).collect()),
    }
}

/// The member holds for its whole lease, and nothing else happened.
pub(super) fn held<T>(member: Member, token: FencingToken, outcome: T) -> Reply<T> {
    let left_ms = member.lease_ms();
    Reply { grants: vec![Grant { member, token, left_ms, run: Vec::new() }], ..short(outcome) }
}

/// A short answer: nothing else happened.
pub(super) fn short<T>(outcome: T) -> Reply<T> {
    Reply {
        outcome,
        grants: Vec::new(),
        first_end_ms: None,
        now_us: None,
        passed_over: 0,
        more: false,
    }
}

fn reduced(answer: &Value<'_>, member: &Member) -> Option<Reply<Vec<Renewed>>> {
    let (mut reply, token) =
        full(answer, |letters, _| letters.chars().map(renewed).collect::<Option<Vec<_>>>())?;
    if let (Some(token), [Renewed::Held]) = (token, reply.outcome.as_slice()) {
        reply
            .grants
            .insert(0, Grant { member: member.clone(), token, left_ms: 0, run: Vec::new() });
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

/// Ms left of the lease of the lock behind which all of them wait, and the number of listeners; or
/// a full reply, followed by the remaining milliseconds of each member that holds.
fn touched(answer: &Value<'_>, members: &[Member]) -> Option<Reply<Touched>> {
    if let Value::Integer(packed) = answer {
        let waiting = vec![Presence::Waiting; members.len()];
        return behind_lock(*packed, |listeners| Touched { members: waiting, listeners });
    }
    let Value::List(parts) = answer else { return None };
    let (Value::List(lefts), rest) = parts.split_last()? else { return None };
    let (mut reply, token) = reply_of(rest, |letters, listeners| {
        Some(Touched { members: outcome::touched(letters)?, listeners })
    })?;
    let letters = parts.first()?.text()?.chars();
    let holding = members.iter().zip(letters).filter(|(_, letter)| *letter == 'h');
    let told: Option<Vec<_>> = holding
        .zip(lefts)
        .map(|((member, _), left)| {
            let (member, left_ms) = (member.clone(), left.integer()?);
            Some(Grant { member, token: token?, left_ms, run: Vec::new() })
        })
        .collect();
    let told = told.filter(|told| told.len() == lefts.len())?;
    reply.grants.splice(0..0, told);
    Some(reply)
}

fn inspection(answer: &Value<'_>) -> Option<Inspection> {
    let Value::List(parts) = answer else { return None };
    let [
        token,
        clock,
        Value::List(holds),
        Value::List(weights),
        Value::List(waiters),
        Value::List(deadlines),
        holding,
        waiting,
    ] = parts.as_slice()
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
        // One whose lease has ended stays until its room is needed, but holds nothing.
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

/// The text of a hold, and that of the numbers of the members that are served within it, which
/// follow in a line of their own.
fn with_run(hold: &str) -> (&str, Option<&str>) {
    hold.split_once('\n').map_or((hold, None), |(hold, run)| (hold, Some(run)))
}

/// A grant with the numbers of its run, if it is a run's.
fn grant_of(member: Member, token: FencingToken, left_ms: u64, run: Option<&str>) -> Option<Grant> {
    let run = run.map_or(Some(Vec::new()), |run| run_of(run, token))?;
    Some(Grant { member, token, left_ms, run })
}

fn member_of(value: &Value<'_>) -> Option<Member> {
    Member::parse(value.text()?)
}

fn all<T>(answer: &Value<'_>, outcome: impl FnOnce(&str, u64) -> Option<T>) -> Option<Reply<T>> {
    full(answer, outcome).map(|(reply, _)| reply)
}

/// `{ outcome, number, ms to the first end, token, server's time, passed over, more, members with
/// their ms }`. Also returns the token, which is that of every hold there is.
fn full<T>(
    answer: &Value<'_>,
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<(Reply<T>, Option<FencingToken>)> {
    let Value::List(parts) = answer else { return None };
    reply_of(parts, outcome)
}

fn reply_of<T>(
    parts: &[Value<'_>],
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<(Reply<T>, Option<FencingToken>)> {
    let [of, number, first_end, token, clock, passed_over, more, Value::List(grants)] = parts
    else {
        return None;
    };
    let token = optional_token(token)?;
    let grant = |pair: &[Value<'_>]| {
        let [member, left_ms] = pair else { return None };
        let (member, run) = with_run(member.text()?);
        grant_of(Member::parse(member)?, token?, left_ms.integer()?, run)
    };
    let reply = Reply {
        outcome: outcome(of.text()?, number.integer()?)?,
        grants: grants.chunks(2).map(grant).collect::<Option<_>>()?,
        first_end_ms: Some(first_end.integer()?),
        now_us: Some(clock.text()?.parse().ok()?),
        passed_over: passed_over.integer()?,
        more: more.integer()? == 1,
    };
    Some((reply, token))
}

/// An empty text is no token; any other text that is no token is an error.
fn optional_token(value: &Value<'_>) -> Option<Option<FencingToken>> {
    match value {
        Value::Nil => Some(None),
        token => Some(Some(fencing_token(token.text()?)?)),
    }
}
