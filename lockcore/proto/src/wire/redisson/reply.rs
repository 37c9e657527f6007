//! From the answers of the scripts to typed replies.

use crate::error::StoreError;
use crate::member::{Member, Party};
use crate::wire::OfError;
use crate::wire::outcome;
use crate::wire::value::{Value, fencing_token, nonsense};
use crate::{
    Acquired, Answer, Answers, Command, Grant, HoldView, Inspection, Left, Released, Renewed,
    Reply, Touched,
};

type ReadResult<T> = Result<T, StoreError>;

/// The answer to one command.
///
/// # Errors
/// If the answer has no known form, or reports another program's key.
pub(crate) fn answer(
    command: &Command,
    of_error: OfError,
    answer: &Value<'_>,
) -> ReadResult<Answer> {
    let read = match command {
        Command::Acquire { members, .. } => match members.as_slice() {
            [member] => acquired(answer, member).map(Answer::Acquired),
            members => all_acquired(answer, members.len()).map(Answer::Acquired),
        },
        Command::Release { .. } | Command::ForceRelease { .. } => {
            released(answer).map(Answer::Released)
        }
        Command::Leave { .. } => left(answer).map(Answer::Left),
        Command::Inspect { from, most } => {
            inspection(answer).map(|all| Answer::Inspected(all.excerpt(*from, *most)))
        }
        Command::Renew { .. } | Command::Confirm { .. } | Command::Touch { .. } => {
            return answers(&[command], of_error, answer)?.pop().unwrap_or_else(|| Err(nonsense()));
        }
        Command::Reduce { .. } => None,
    };
    read.ok_or_else(nonsense)
}

/// The answers to several renewals, or to several touches.
///
/// # Errors
/// They have no known form.
pub(crate) fn answers(
    commands: &[&Command],
    of_error: OfError,
    answer: &Value<'_>,
) -> ReadResult<Answers> {
    let Value::List(parts) = answer else { return Err(nonsense()) };
    let read = match commands.first() {
        Some(Command::Touch { .. }) => all_touched(parts, commands, of_error),
        _ => all_renewed(parts, commands, of_error),
    };
    read.ok_or_else(nonsense)
}

/// A clock with the member's number says that `member` has the full lease, with the clock as its
/// token.
fn acquired(answer: &Value<'_>, member: &Member) -> Option<Reply<Vec<Acquired>>> {
    if let Some(clock) = answer.text() {
        let clock = clock_for(clock, member.number())?;
        let left_ms = member.lease_ms();
        let grant = Grant {
            member: member.clone(),
            token: fencing_token(clock)?,
            left_ms,
            run: Vec::new(),
        };
        return Some(usual(
            vec![Acquired::Granted],
            left_ms,
            Some(grant),
            Some(clock.parse().ok()?),
        ));
    }
    reply(answer, |word, number| Some(vec![outcome::acquired(word, number)?]))
}

/// An answer in full, followed by the position of each member that is queued.
fn all_acquired(answer: &Value<'_>, members: usize) -> Option<Reply<Vec<Acquired>>> {
    let Value::List(parts) = answer else { return None };
    let (Value::List(positions), rest) = parts.split_last()? else { return None };
    let reply = reply_of(rest, |letters, _| outcome::all_acquired(letters, positions))?;
    (reply.outcome.len() == members).then_some(reply)
}

/// A bare 1 says that the lock is free now, without the time.
fn released(answer: &Value<'_>) -> Option<Reply<Released>> {
    if let Value::Integer(1) = answer {
        return Some(usual(Released::Released, 0, None, None));
    }
    reply(answer, outcome::released)
}

/// `{ clock, then for each: its token, 0 if it is not held, or as [`one_of_several`] }`
fn all_renewed(parts: &[Value<'_>], commands: &[&Command], of_error: OfError) -> Option<Answers> {
    let (clock, each) = parts.split_first()?;
    let now_us = clock.text()?.parse().ok()?;
    all(each, commands, |answer, command| {
        let [member] = command.renews() else { return None };
        let renewed = match (answer, answer.text()) {
            (_, Some(token)) => {
                let token = fencing_token(token)?;
                let left_ms = member.lease_ms();
                let grant = Grant { member: member.clone(), token, left_ms, run: Vec::new() };
                Ok(usual(vec![Renewed::Held], left_ms, Some(grant), Some(now_us)))
            }
            (Value::Integer(0), _) => Ok(usual(vec![Renewed::NotHeld], 0, None, Some(now_us))),
            _ => one_of_several(answer, of_error, |outcome, _| match outcome {
                "held" => Some(vec![Renewed::Held]),
                "not_held" => Some(vec![Renewed::NotHeld]),
                _ => None,
            })?,
        };
        Some(renewed.map(Answer::Renewed))
    })
}

/// `{ clock, listeners, then for each as [`one_of_several`] }`
fn all_touched(parts: &[Value<'_>], commands: &[&Command], of_error: OfError) -> Option<Answers> {
    let [_clock, _listeners, each @ ..] = parts else { return None };
    all(each, commands, |answer, command| {
        let Command::Touch { .. } = command else { return None };
        let touched = one_of_several(answer, of_error, |letters, number| {
            Some(Touched { members: outcome::touched(letters)?, listeners: number })
        })?;
        Some(touched.map(Answer::Touched))
    })
}

/// Reads one answer for each command.
fn all(
    answers: &[Value<'_>],
    commands: &[&Command],
    read: impl Fn(&Value<'_>, &Command) -> Option<Result<Answer, StoreError>>,
) -> Option<Answers> {
    let is_whole = answers.len() == commands.len();
    let read = answers.iter().zip(commands).map(|(answer, command)| read(answer, command));
    read.collect::<Option<_>>().filter(|_| is_whole)
}

/// An answer in full, or a list with the server's error for this lock.
fn one_of_several<T>(
    answer: &Value<'_>,
    of_error: OfError,
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<Result<Reply<T>, StoreError>> {
    if let Value::List(parts) = answer
        && let [error] = parts.as_slice()
    {
        return Some(Err(of_error(error.text()?)));
    }
    reply(answer, outcome).map(Ok)
}

fn left(answer: &Value<'_>) -> Option<Reply<Vec<Left>>> {
    reply(answer, outcome::left)
}

/// The clock of `<clock>:<number>`; nothing if the number is another. An answer that goes missing
/// on the way shifts all later ones to requests that are not theirs.
fn clock_for(text: &str, number: u64) -> Option<&str> {
    let (clock, of) = text.split_once(':')?;
    (of.parse() == Ok(number)).then_some(clock)
}

/// A reply of the short ways, beside whose outcome nothing else happened.
fn usual<T>(outcome: T, left_ms: u64, grant: Option<Grant>, now_us: Option<u64>) -> Reply<T> {
    Reply {
        outcome,
        grants: grant.into_iter().collect(),
        first_end_ms: Some(left_ms),
        now_us,
        passed_over: 0,
        more: false,
    }
}

fn grant(member: &Value<'_>, token: &Value<'_>, left_ms: u64) -> Option<Grant> {
    let member = Member::parse(member.text()?)?;
    let token = fencing_token(token.text()?)?;
    Some(Grant { member, token, left_ms, run: Vec::new() })
}

/// `{ outcome, number, ms left, holder, token, server's time, passed over }`
fn reply<T>(answer: &Value<'_>, outcome: impl FnOnce(&str, u64) -> Option<T>) -> Option<Reply<T>> {
    let Value::List(parts) = answer else { return None };
    reply_of(parts, outcome)
}

fn reply_of<T>(
    parts: &[Value<'_>],
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<Reply<T>> {
    let [of, number, left, holder, token, now_us, passed_over] = parts else {
        return None;
    };
    let left_ms = left.integer()?;
    let grant = match (holder, token) {
        (Value::Nil, _) | (_, Value::Nil) => None,
        (holder, token) => Some(grant(holder, token, left_ms)?),
    };
    Some(Reply {
        outcome: outcome(of.text()?, number.integer()?)?,
        grants: grant.into_iter().collect(),
        first_end_ms: Some(left_ms),
        now_us: Some(now_us.text()?.parse().ok()?),
        passed_over: passed_over.integer()?,
        more: false,
    })
}

fn inspection(answer: &Value<'_>) -> Option<Inspection> {
    let Value::List(parts) = answer else { return None };
    let [holder, token, left, now_us, Value::List(members), Value::List(deadlines)] =
        parts.as_slice()
    else {
        return None;
    };
    let deadline = |value: &Value<'_>| Some(value.text()?.parse::<f64>().ok()?.max(0.0) as u64);
    let waiters = members
        .iter()
        .zip(deadlines)
        .map(|(member, at)| Some((Party::from(member.text()?), deadline(at)?)));
    let left_ms = left.integer()?;
    let holder = holder.text().map(Party::from);
    Some(Inspection {
        holding: holder.is_some().into(),
        waiting: members.len() as u64,
        holds: holder
            .into_iter()
            .map(|holder| HoldView { weight: holder.weight(), party: holder, left_ms })
            .collect(),
        token: token.text().and_then(fencing_token),
        waiters: waiters.collect::<Option<_>>()?,
        now_us: now_us.text()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use crate::Presence;
    use crate::error::LockErrorKind;

    const MEMBER: &str = "~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:web";

    fn bulk(text: &str) -> Value<'_> {
        Value::Text(text)
    }

    fn answer<'a>(outcome: &'a str, holder: Value<'a>, token: Value<'a>) -> Value<'a> {
        let now = bulk("1795242275666200");
        Value::List(vec![
            bulk(outcome),
            Value::Integer(3),
            Value::Integer(900),
            holder,
            token,
            now,
            Value::Integer(0),
        ])
    }

    fn refused(said: &str) -> StoreError {
        StoreError::refused(LockErrorKind::WrongType, said)
    }

    fn member() -> Member {
        Member::parse(MEMBER).unwrap()
    }

    #[test]
    fn a_clock_and_the_number_are_the_whole_answer_where_the_lock_is_free() {
        let granted = acquired(&bulk("1795242275666200:7"), &member()).unwrap();
        let grant = &granted.grants[0];
        assert_eq!((granted.outcome, grant.left_ms), (vec![Acquired::Granted], 30_000));
        assert_eq!(Some(grant.token.get()), granted.now_us);
    }

    #[test]
    fn a_release_with_nobody_waiting_tells_no_time() {
        let released = released(&Value::Integer(1)).unwrap();
        assert_eq!((released.outcome, released.first_end_ms), (Released::Released, Some(0)));
        assert_eq!((released.grants, released.now_us), (Vec::new(), None));
    }

    #[test]
    fn a_grant_is_read_whatever_the_outcome_is() {
        let answer = answer("queued", bulk(MEMBER), bulk("1795242275666100"));
        let reply = acquired(&answer, &member()).unwrap();
        assert_eq!(reply.outcome, [Acquired::Queued { position: 3 }]);
        assert_eq!(reply.first_end_ms, Some(900));
        assert_eq!(reply.now_us, Some(1_795_242_275_666_200));
        assert_eq!(reply.grants[0].token.get(), 1_795_242_275_666_100);
    }

    #[test]
    fn no_grant_is_no_grant() {
        let answer = answer("not_held", Value::Nil, Value::Nil);
        assert_eq!(released(&answer).unwrap().grants, []);
    }

    #[test]
    fn letters_stand_for_members_in_order() {
        let lines = [&Command::Touch { members: vec![member(), member(), member()] }];
        let full = answer("whg", Value::Nil, Value::Nil);
        let answer = Value::List(vec![bulk("1795242275666200"), Value::Integer(3), full]);
        let read = answers(&lines, refused, &answer).unwrap().remove(0).unwrap();
        let Answer::Touched(reply) = read else { panic!("{read:?}") };
        assert_eq!(reply.outcome.members, [Presence::Waiting, Presence::Holding, Presence::Gone]);
        assert_eq!(reply.outcome.listeners, 3);
    }

    #[test]
    fn nonsense_is_an_error_and_no_panic() {
        let of_another = bulk("1795242275666200:8");
        let behind =
            [of_another.clone(), Value::Integer(2), Value::Integer(900), Value::Nil, Value::Nil];
        let bad = [
            Value::Nil,
            bulk("1795242275666200"),
            of_another,
            Value::List(behind.to_vec()),
            Value::List(vec![]),
            answer("something", Value::Nil, Value::Nil),
            answer("granted", bulk(MEMBER), bulk("9007199254740992")),
            answer("granted", bulk(MEMBER), bulk("-1")),
            answer("granted", bulk("m"), bulk("1795242275666100")),
        ];
        for value in bad {
            let command =
                Command::Acquire { members: vec![member()], mode: Mode::Try, queue_limit: 1 };
            let error = super::answer(&command, refused, &value).unwrap_err();
            assert_eq!(error.kind, LockErrorKind::Protocol);
        }
    }
}
