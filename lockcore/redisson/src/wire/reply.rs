//! Parses script replies into typed replies.

use proto::wire::{Commands, ReplyBody, Value, fencing_token, nonsense, outcome};
use proto::{
    Acquired, Answer, Answers, Command, Grant, HoldView, Inspection, LockName, Member, Party,
    Released, Renewed, Reply, StoreError, Touched,
};

/// A function that turns the text of a server error within a reply into a store error.
type OfError<'a> = &'a dyn Fn(&str) -> StoreError;
type ReadResult<T> = Result<T, StoreError>;

/// Parses the script's reply to a command on a lock. `of_error` parses a server error within the
/// reply.
///
/// # Errors
/// The reply has an unknown form, belongs to another request, or reports that a key belongs to
/// another program.
pub(crate) fn answer(
    (lock, command): (&LockName, &Command),
    of_error: OfError<'_>,
    answer: &Value<'_>,
) -> ReadResult<Answer> {
    if let Command::Renew { .. } | Command::Confirm { .. } | Command::Touch { .. } = command {
        return answers(&[(lock, command)], of_error, answer)?
            .pop()
            .unwrap_or_else(|| Err(nonsense()));
    }
    let asked = command.first().map_or(lock.as_str(), Member::as_str);
    let read = |body| match command {
        Command::Acquire { members, .. } => match members.as_slice() {
            [member] => acquired(body, member).map(Answer::Acquired),
            members => all_acquired(body, members.len()).map(Answer::Acquired),
        },
        Command::Release { .. } | Command::ForceRelease { .. } => {
            released(body).map(Answer::Released)
        }
        Command::Leave { .. } => reply(body, outcome::left).map(Answer::Left),
        Command::Inspect { .. } => inspection(body).map(Answer::Inspected),
        _ => None,
    };
    ReplyBody::to(asked, answer).and_then(read).ok_or_else(nonsense)
}

/// Parses the script's reply to several renewals, or to several touches. The answers are in the
/// order of `commands`.
///
/// # Errors
/// The reply has an unknown form, or belongs to another request. If a key of a lock belongs to
/// another program, only the answer for that lock is an error.
pub(crate) fn answers(
    commands: &Commands<'_>,
    of_error: OfError<'_>,
    answer: &Value<'_>,
) -> ReadResult<Answers> {
    let Value::List(parts) = answer else { return Err(nonsense()) };
    let read = match commands.first() {
        Some((_, Command::Touch { .. })) => all_touched(parts, commands, of_error),
        _ => all_renewed(parts, commands, of_error),
    };
    read.ok_or_else(nonsense)
}

/// Parses the reply to an acquire for one member; `None` if it has an unknown form. It is a [full
/// reply](reply), or only the server's time if the lock was free. The lock is then granted for the
/// full lease, and the time is also the fencing token.
fn acquired(body: ReplyBody<'_>, member: &Member) -> Option<Reply<Vec<Acquired>>> {
    if let ReplyBody::Text(clock) = body {
        let grant = held(member, clock)?;
        let now_us = Some(grant.token.get());
        return Some(short(vec![Acquired::Granted], grant.left_ms, Some(grant), now_us));
    }
    reply(body, |word, number| Some(vec![outcome::acquired(word, number)?]))
}

/// Creates the grant of the full lease to `member`. Called for replies that contain only a token.
/// `None` if `token` is not a valid fencing token.
fn held(member: &Member, token: &str) -> Option<Grant> {
    let (token, left_ms) = (fencing_token(token)?, member.lease_ms());
    Some(Grant { member: member.clone(), token, left_ms, batch: Vec::new() })
}

/// Parses the reply to an acquire for several `members`; `None` if it has an unknown form. The
/// reply is a [full reply](reply), followed by a number for each member that is queued (its
/// position) or found the queue full (the number of waiters).
fn all_acquired(body: ReplyBody<'_>, members: usize) -> Option<Reply<Vec<Acquired>>> {
    let ReplyBody::Full(parts) = body else { return None };
    let (Value::List(numbers), rest) = parts.split_last()? else { return None };
    let reply = reply_of(rest, |letters, _| outcome::all_acquired(letters, numbers))?;
    (reply.outcome.len() == members).then_some(reply)
}

/// Parses the reply to a release; `None` if it has an unknown form. A bare 1, without the server's
/// time, means that the lock was released and has no waiters.
fn released(body: ReplyBody<'_>) -> Option<Reply<Released>> {
    if let ReplyBody::Number(1) = body {
        return Some(short(Released::Released, 0, None, None));
    }
    reply(body, outcome::released)
}

/// Parses the reply to several renewals; `None` if it has an unknown form.
///
/// Its form is `{ clock, … }`, and then for each lock the token if it is held, an empty text if it
/// is not held, or a reply as for [`one_of_several`].
fn all_renewed(
    parts: &[Value<'_>],
    commands: &Commands<'_>,
    of_error: OfError<'_>,
) -> Option<Answers> {
    let (clock, each) = parts.split_first()?;
    let now_us = clock.text()?.parse().ok()?;
    all(each, commands, |answer, command| {
        let [member] = command.renews() else { return None };
        let renewed = match ReplyBody::to(member.as_str(), answer) {
            Some(ReplyBody::Text("")) => Ok(short(vec![Renewed::NotHeld], 0, None, Some(now_us))),
            Some(ReplyBody::Text(token)) => {
                let grant = held(member, token)?;
                Ok(short(vec![Renewed::Held], grant.left_ms, Some(grant), Some(now_us)))
            }
            _ => one_of_several(answer, (member, of_error), |outcome, _| match outcome {
                "held" => Some(vec![Renewed::Held]),
                "not_held" => Some(vec![Renewed::NotHeld]),
                _ => None,
            })?,
        };
        Some(renewed.map(Answer::Renewed))
    })
}

/// Parses the reply to several touches; `None` if it has an unknown form.
///
/// Its form is `{ clock, subscribers, … }`, and then for each lock a reply as for
/// [`one_of_several`].
fn all_touched(
    parts: &[Value<'_>],
    commands: &Commands<'_>,
    of_error: OfError<'_>,
) -> Option<Answers> {
    let [_clock, _listeners, each @ ..] = parts else { return None };
    all(each, commands, |answer, command| {
        let Command::Touch { members } = command else { return None };
        let touched = one_of_several(answer, (members.first()?, of_error), |letters, number| {
            Some(Touched { members: outcome::touched(letters)?, listeners: number })
        })?;
        Some(touched.map(Answer::Touched))
    })
}

/// Parses the reply to each command with `read`; `None` if a reply has an unknown form, or the
/// number of replies is wrong.
fn all(
    answers: &[Value<'_>],
    commands: &Commands<'_>,
    read: impl Fn(&Value<'_>, &Command) -> Option<Result<Answer, StoreError>>,
) -> Option<Answers> {
    let is_whole = answers.len() == commands.len();
    let read = answers.iter().zip(commands).map(|(answer, (_, command))| read(answer, command));
    read.collect::<Option<_>>().filter(|_| is_whole)
}

/// Parses the reply for one of several locks: a [full reply](reply), or a list with only a server
/// error, which concerns this lock alone and becomes the inner `Err`. `first` is the member that a
/// full reply has to name. `None` if the reply has another form.
fn one_of_several<T>(
    answer: &Value<'_>,
    (first, of_error): (&Member, OfError<'_>),
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<Result<Reply<T>, StoreError>> {
    if let Value::List(parts) = answer
        && let [error] = parts.as_slice()
    {
        return Some(Err(of_error(error.text()?)));
    }
    reply(ReplyBody::to(first.as_str(), answer)?, outcome).map(Ok)
}

/// Creates the reply to a command whose script returned a text or a number instead of a list,
/// because it had to examine no waiter. `left_ms` is the remaining lease of the member, 0 if it
/// does not hold the lock.
fn short<T>(outcome: T, left_ms: u64, grant: Option<Grant>, now_us: Option<u64>) -> Reply<T> {
    let grants = grant.into_iter().collect();
    Reply { grants, first_end_ms: Some(left_ms), now_us, ..Reply::short(outcome) }
}

fn grant(member: &Value<'_>, token: &Value<'_>, left_ms: u64) -> Option<Grant> {
    let member = Member::parse(member.text()?)?;
    let token = fencing_token(token.text()?)?;
    Some(Grant { member, token, left_ms, batch: Vec::new() })
}

/// Parses a full reply, `{ outcome, number, ms left, holder, token, server time, skipped }`; `None`
/// if it has another form. `outcome` parses the first two parts.
fn reply<T>(body: ReplyBody<'_>, outcome: impl FnOnce(&str, u64) -> Option<T>) -> Option<Reply<T>> {
    let ReplyBody::Full(parts) = body else { return None };
    reply_of(parts, outcome)
}

fn reply_of<T>(
    parts: &[Value<'_>],
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<Reply<T>> {
    let [of, number, left, holder, token, now_us, skipped] = parts else {
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
        skipped: skipped.integer()?,
        more: false,
    })
}

fn inspection(body: ReplyBody<'_>) -> Option<Inspection> {
    let ReplyBody::Full(parts) = body else { return None };
    let [holder, token, left, now_us, Value::List(members), Value::List(deadlines), waiting] =
        parts
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
        waiting: waiting.integer()?,
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
    use proto::{LockErrorKind, Mode, Presence};

    use super::*;

    const MEMBER: &str = "~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:web";

    fn bulk(text: &str) -> Value<'_> {
        Value::Text(text)
    }

    fn answer<'a>(outcome: &'a str, holder: Value<'a>, token: Value<'a>) -> Value<'a> {
        let now = bulk("1795242275666200");
        Value::List(vec![
            bulk(MEMBER),
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

    fn body<'a>(answer: &'a Value<'a>) -> ReplyBody<'a> {
        ReplyBody::to(MEMBER, answer).unwrap()
    }

    #[test]
    fn a_clock_and_the_member_are_the_whole_answer_where_the_lock_is_free() {
        let clock = format!("1795242275666200{MEMBER}");
        let granted = acquired(body(&bulk(&clock)), &member()).unwrap();
        let grant = &granted.grants[0];
        assert_eq!((granted.outcome, grant.left_ms), (vec![Acquired::Granted], 30_000));
        assert_eq!(Some(grant.token.get()), granted.now_us);
    }

    #[test]
    fn a_release_with_nobody_waiting_tells_no_time() {
        let released = released(body(&Value::Integer(1))).unwrap();
        assert_eq!((released.outcome, released.first_end_ms), (Released::Released, Some(0)));
        assert_eq!((released.grants, released.now_us), (Vec::new(), None));
    }

    #[test]
    fn a_grant_is_read_whatever_the_outcome_is() {
        let answer = answer("queued", bulk(MEMBER), bulk("1795242275666100"));
        let reply = acquired(body(&answer), &member()).unwrap();
        assert_eq!(reply.outcome, [Acquired::Queued { position: 3 }]);
        assert_eq!(reply.first_end_ms, Some(900));
        assert_eq!(reply.now_us, Some(1_795_242_275_666_200));
        assert_eq!(reply.grants[0].token.get(), 1_795_242_275_666_100);
    }

    #[test]
    fn no_grant_is_no_grant() {
        let answer = answer("not_held", Value::Nil, Value::Nil);
        assert_eq!(released(body(&answer)).unwrap().grants, []);
    }

    #[test]
    fn letters_stand_for_members_in_order() {
        let (lock, members) = (LockName::from("a"), vec![member(), member(), member()]);
        let lines = [(&lock, &Command::Touch { members })];
        let full = answer("whg", Value::Nil, Value::Nil);
        let answer = Value::List(vec![bulk("1795242275666200"), Value::Integer(3), full]);
        let read = answers(&lines, &refused, &answer).unwrap().remove(0).unwrap();
        let Answer::Touched(reply) = read else { panic!("{read:?}") };
        assert_eq!(reply.outcome.members, [Presence::Waiting, Presence::Holding, Presence::Gone]);
        assert_eq!(reply.outcome.listeners, 3);
    }

    #[test]
    fn nonsense_is_an_error_and_no_panic() {
        let other = MEMBER.replace(":7:", ":8:");
        let clock_of_another = format!("1795242275666200{other}");
        let mut of_another = answer("granted", bulk(MEMBER), bulk("1795242275666100"));
        if let Value::List(parts) = &mut of_another {
            parts[0] = bulk(&other);
        }
        let bad = [
            Value::Nil,
            bulk("1795242275666200"),
            bulk(&clock_of_another),
            of_another,
            Value::List(vec![]),
            Value::List(vec![bulk(MEMBER)]),
            answer("something", Value::Nil, Value::Nil),
            answer("granted", bulk(MEMBER), bulk("9007199254740992")),
            answer("granted", bulk(MEMBER), bulk("-1")),
            answer("granted", bulk("m"), bulk("1795242275666100")),
        ];
        for value in bad {
            let command =
                Command::Acquire { members: vec![member()], mode: Mode::Try, queue_limit: 1 };
            let lock = LockName::from("x");
            let error = super::answer((&lock, &command), &refused, &value).unwrap_err();
            assert_eq!(error.kind, LockErrorKind::Protocol);
        }
    }
}
