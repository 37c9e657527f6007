//! From a script's answer to a typed reply.

use redis::Value;

use super::failure;
use crate::error::{LockErrorKind, StoreError};
use crate::key::LockName;
use crate::member::Member;
use crate::store::{
    Acquired, Each, Grant, Inspection, Left, Presence, Released, Renewed, Reply, Touched,
};
use crate::token::FencingToken;

type Read<T> = Result<T, StoreError>;

/// A clock with the member's number says that `member` has the full lease, with the clock as its
/// token; five parts, that one of ours holds the lock, and that the member waits or, without a
/// position, that it may not.
pub(crate) fn acquired(answer: Value, member: &Member) -> Read<Reply<Acquired>> {
    if let Some(clock) = text(&answer) {
        let ours = member.ours().ok_or_else(nonsense)?;
        let clock = clock_for(clock, ours.number).ok_or_else(nonsense)?;
        return short(Acquired::Granted, clock, ours.lease_ms, Some(member)).ok_or_else(nonsense);
    }
    if let Value::Array(parts) = &answer
        && let [clock, position, left, holder, token] = parts.as_slice()
    {
        let number = member.ours().ok_or_else(nonsense)?.number;
        let clock = text(clock).and_then(|clock| clock_for(clock, number)).ok_or_else(nonsense)?;
        return behind_another(clock, position, left, holder, token).ok_or_else(nonsense);
    }
    reply(answer, |outcome, number| match outcome {
        "granted" => Some(Acquired::Granted),
        "queued" => Some(Acquired::Queued { position: number }),
        "busy" => Some(Acquired::Busy),
        "full" => Some(Acquired::Full),
        "refused" => Some(Acquired::Refused),
        _ => None,
    })
}

/// A bare 1 says that the lock is free now, and not at what time; clock and claim, that it was
/// handed over, to another node or to the member that follows.
pub(crate) fn released(answer: Value) -> Read<Reply<Released>> {
    if answer == Value::Int(1) {
        return Ok(usual(Released::Released, 0, None, 0));
    }
    if let Value::Array(parts) = &answer
        && let [clock, claim, head] = parts.as_slice()
    {
        return handed_over(clock, claim, head).ok_or_else(nonsense);
    }
    reply(answer, |outcome, _| match outcome {
        "released" => Some(Released::Released),
        "not_held" => Some(Released::NotHeld),
        _ => None,
    })
}

/// `{ clock, then for each: its token, 0 if it is not held, or as [`one_of_several`] }`
pub(crate) fn renewed(answer: Value, holds: &[(LockName, Member)]) -> Read<Each<Renewed>> {
    let mut parts = parts(answer)?;
    let clock = parts.next().ok_or_else(nonsense)?;
    let now_us = text(&clock).and_then(|clock| clock.parse().ok()).ok_or_else(nonsense)?;
    each(parts, holds, |answer, member| match (&answer, text(&answer), member.ours()) {
        (_, Some(token), Some(ours)) => {
            let grant = Grant { member: member.clone(), token: fencing_token(token)? };
            Some(Ok(usual(Renewed::Held, ours.lease_ms, Some(grant), now_us)))
        }
        (Value::Int(0), ..) => Some(Ok(usual(Renewed::NotHeld, 0, None, now_us))),
        _ => one_of_several(answer, |outcome, _| match outcome {
            "held" => Some(Renewed::Held),
            "not_held" => Some(Renewed::NotHeld),
            _ => None,
        }),
    })
}

/// `{ clock, listeners, then for each: ms left, { ms left, holder, token }, or as
/// [`one_of_several`] }`
pub(crate) fn touched(answer: Value, lines: &[(LockName, Vec<Member>)]) -> Read<Each<Touched>> {
    let mut parts = parts(answer)?;
    let (Some(clock), Some(listeners)) = (parts.next(), parts.next()) else {
        return Err(nonsense());
    };
    let now_us = text(&clock).and_then(|clock| clock.parse().ok()).ok_or_else(nonsense)?;
    let listeners = integer(&listeners).ok_or_else(nonsense)?;
    each(parts, lines, |answer, members| {
        let all_wait = || Touched { members: vec![Presence::Waiting; members.len()], listeners };
        if let Value::Int(_) = &answer {
            return Some(Ok(usual(all_wait(), integer(&answer)?, None, now_us)));
        }
        if let Value::Array(parts) = &answer
            && let [left, holder, token] = parts.as_slice()
        {
            let member = Member::from(text(holder)?);
            let grant = Grant { member, token: fencing_token(text(token)?)? };
            return Some(Ok(usual(all_wait(), integer(left)?, Some(grant), now_us)));
        }
        one_of_several(answer, |outcome, number| {
            let presence = |letter| match letter {
                'w' => Some(Presence::Waiting),
                'h' => Some(Presence::Holding),
                'g' => Some(Presence::Gone),
                _ => None,
            };
            let members = outcome.chars().map(presence).collect::<Option<Vec<_>>>()?;
            Some(Touched { members, listeners: number })
        })
    })
}

fn parts(answer: Value) -> Read<std::vec::IntoIter<Value>> {
    match answer {
        Value::Array(parts) => Ok(parts.into_iter()),
        _ => Err(nonsense()),
    }
}

/// Reads one answer for each lock.
fn each<A, T>(
    answers: std::vec::IntoIter<Value>,
    locks: &[(LockName, A)],
    read: impl Fn(Value, &A) -> Option<Result<Reply<T>, StoreError>>,
) -> Read<Each<T>> {
    if answers.len() != locks.len() {
        return Err(nonsense());
    }
    let read = answers.zip(locks).map(|(answer, (_, of_lock))| read(answer, of_lock));
    read.collect::<Option<_>>().ok_or_else(nonsense)
}

/// An answer in full, or a list of what the server says against this lock.
fn one_of_several<T>(
    answer: Value,
    outcome: impl FnOnce(&str, u64) -> Option<T>,
) -> Option<Result<Reply<T>, StoreError>> {
    if let Value::Array(parts) = &answer
        && let [error] = parts.as_slice()
    {
        return Some(Err(failure::of_text(text(error)?)));
    }
    read_reply(answer, outcome).map(Ok)
}

/// What the short ways of the scripts for several locks leave out.
fn usual<T>(outcome: T, left_ms: u64, grant: Option<Grant>, now_us: u64) -> Reply<T> {
    Reply {
        outcome,
        left_ms,
        grant,
        foreign: false,
        now_us,
        passed_over: 0,
        several: Vec::new(),
        more: false,
    }
}

pub(crate) fn left(answer: Value) -> Read<Reply<Vec<Left>>> {
    reply(answer, |outcome, _| {
        let left = |letter| match letter {
            'l' => Some(Left::Left),
            'a' => Some(Left::Absent),
            _ => None,
        };
        outcome.chars().map(left).collect()
    })
}

pub(crate) fn inspection(answer: Value) -> Read<Inspection> {
    read_inspection(answer).ok_or_else(nonsense)
}

fn reply<T>(answer: Value, outcome: impl FnOnce(&str, u64) -> Option<T>) -> Read<Reply<T>> {
    read_reply(answer, outcome).ok_or_else(nonsense)
}

/// The clock of `<clock>:<number>`; nothing if the number is another. An answer that goes missing
/// on the way shifts all later ones to requests that are not theirs.
pub(super) fn clock_for(text: &str, number: u64) -> Option<&str> {
    let (clock, of) = text.split_once(':')?;
    (of.parse() == Ok(number)).then_some(clock)
}

/// The holder and its token follow if it is of the calling node.
fn behind_another(
    clock: &str,
    position: &Value,
    left: &Value,
    holder: &Value,
    token: &Value,
) -> Option<Reply<Acquired>> {
    let outcome = match position {
        Value::Nil => Acquired::Busy,
        position => Acquired::Queued { position: integer(position)? },
    };
    let grant = match text(holder) {
        Some(member) => {
            Some(Grant { member: Member::from(member), token: fencing_token(text(token)?)? })
        }
        None => None,
    };
    Some(usual(outcome, integer(left)?, grant, clock.parse().ok()?))
}

fn handed_over(clock: &Value, claim: &Value, head: &Value) -> Option<Reply<Released>> {
    let member = text(head).map(Member::from);
    short(Released::Released, text(clock)?, text(claim)?.parse().ok()?, member.as_ref())
}

/// What the short ways of the scripts leave out: the clock is the token, and nothing else happened.
fn short<T>(outcome: T, clock: &str, left_ms: u64, holder: Option<&Member>) -> Option<Reply<T>> {
    let grant = match holder {
        Some(member) => Some(Grant { member: member.clone(), token: fencing_token(clock)? }),
        None => None,
    };
    Some(Reply {
        outcome,
        left_ms,
        grant,
        foreign: false,
        now_us: clock.parse().ok()?,
        passed_over: 0,
        several: Vec::new(),
        more: false,
    })
}

pub(super) fn nonsense() -> StoreError {
    let detail = "a script's answer has an unexpected form";
    StoreError { may_have_run: true, ..StoreError::refused(LockErrorKind::Protocol, detail) }
}

/// `{ outcome, number, ms left, holder, token, foreign, server's time, passed over }`
fn read_reply<T>(answer: Value, outcome: impl FnOnce(&str, u64) -> Option<T>) -> Option<Reply<T>> {
    let Value::Array(parts) = answer else { return None };
    let [of, number, left, holder, token, foreign, now_us, passed_over] = parts.as_slice() else {
        return None;
    };
    let grant = match (text(holder), text(token)) {
        (Some(member), Some(token)) => {
            Some(Grant { member: Member::from(member), token: fencing_token(token)? })
        }
        _ => None,
    };
    Some(Reply {
        outcome: outcome(text(of)?, integer(number)?)?,
        left_ms: integer(left)?,
        grant,
        foreign: integer(foreign)? == 1,
        now_us: text(now_us)?.parse().ok()?,
        passed_over: integer(passed_over)?,
        several: Vec::new(),
        more: false,
    })
}

fn read_inspection(answer: Value) -> Option<Inspection> {
    let Value::Array(parts) = answer else { return None };
    let [holder, token, left, now_us, Value::Array(members), Value::Array(deadlines)] =
        parts.as_slice()
    else {
        return None;
    };
    let deadline = |value: &Value| Some(text(value)?.parse::<f64>().ok()?.max(0.0) as u64);
    let waiters = members
        .iter()
        .zip(deadlines)
        .map(|(member, at)| Some((Member::from(text(member)?), deadline(at)?)));
    Some(Inspection {
        holder: text(holder).map(Member::from),
        token: text(token).and_then(fencing_token),
        left_ms: integer(left)?,
        waiters: waiters.collect::<Option<_>>()?,
        now_us: text(now_us)?.parse().ok()?,
    })
}

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(super) fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Int(integer) => u64::try_from(*integer).ok(),
        _ => None,
    }
}

pub(super) fn fencing_token(text: &str) -> Option<FencingToken> {
    FencingToken::try_from(text.parse::<u64>().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn answer(outcome: &str, holder: Value, token: Value) -> Value {
        let now = bulk("1795242275666200");
        let zero = Value::Int(0);
        Value::Array(vec![
            bulk(outcome),
            Value::Int(3),
            Value::Int(900),
            holder,
            token,
            zero.clone(),
            now,
            zero,
        ])
    }

    fn member() -> Member {
        Member::from("~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:web")
    }

    #[test]
    fn a_clock_and_the_number_are_the_whole_answer_where_the_lock_is_free() {
        let granted = acquired(bulk("1795242275666200:7"), &member()).unwrap();
        assert_eq!((granted.outcome, granted.left_ms), (Acquired::Granted, 30_000));
        assert_eq!(granted.grant.unwrap().token.get(), granted.now_us);
    }

    #[test]
    fn a_release_with_nobody_waiting_tells_no_time() {
        let released = released(Value::Int(1)).unwrap();
        assert_eq!((released.outcome, released.left_ms), (Released::Released, 0));
        assert_eq!((released.grant, released.now_us), (None, 0));
    }

    #[test]
    fn behind_another_a_place_is_told_or_that_there_is_none() {
        let (clock, left) = (bulk("1795242275666200:7"), Value::Int(900));
        let of_another_node =
            Value::Array(vec![clock.clone(), Value::Int(2), left.clone(), Value::Nil, Value::Nil]);
        let reply = acquired(of_another_node, &member()).unwrap();
        assert_eq!(reply.outcome, Acquired::Queued { position: 2 });
        assert_eq!((reply.left_ms, reply.grant), (900, None));
        assert_eq!(reply.now_us, 1_795_242_275_666_200);
        let token = bulk("1795242275666100");
        let of_this_node = Value::Array(vec![clock, Value::Nil, left, bulk("~1x:1:1:"), token]);
        let reply = acquired(of_this_node, &member()).unwrap();
        assert_eq!(reply.outcome, Acquired::Busy);
        assert_eq!(reply.grant.unwrap().token.get(), 1_795_242_275_666_100);
    }

    #[test]
    fn a_hand_over_tells_the_grant_only_to_the_grantees_own_node() {
        let answer = |head| Value::Array(vec![bulk("1795242275666200"), bulk("10000"), head]);
        let elsewhere = released(answer(Value::Nil)).unwrap();
        assert_eq!((elsewhere.left_ms, elsewhere.grant), (10_000, None));
        let here = released(answer(bulk(member().as_str()))).unwrap();
        assert_eq!(here.grant.unwrap().member, member());
    }

    #[test]
    fn a_grant_is_read_whatever_the_outcome_is() {
        let answer = answer("queued", bulk("~1x:1:1:"), bulk("1795242275666100"));
        let reply = acquired(answer, &member()).unwrap();
        assert_eq!(reply.outcome, Acquired::Queued { position: 3 });
        assert_eq!(reply.left_ms, 900);
        assert_eq!(reply.now_us, 1_795_242_275_666_200);
        assert_eq!(reply.grant.unwrap().token.get(), 1_795_242_275_666_100);
    }

    #[test]
    fn no_grant_is_no_grant() {
        assert_eq!(released(answer("not_held", Value::Nil, Value::Nil)).unwrap().grant, None);
    }

    #[test]
    fn letters_stand_for_members_in_order() {
        let lines = [(LockName::from("a"), vec![member(), member(), member()])];
        let full = answer("whg", Value::Nil, Value::Nil);
        let answer = Value::Array(vec![bulk("1795242275666200"), Value::Int(3), full]);
        let reply = touched(answer, &lines).unwrap().remove(0).unwrap();
        assert_eq!(reply.outcome.members, [Presence::Waiting, Presence::Holding, Presence::Gone]);
        assert_eq!(reply.outcome.listeners, 3);
    }

    #[test]
    fn nonsense_is_an_error_and_no_panic() {
        let of_another = bulk("1795242275666200:8");
        let behind = [of_another.clone(), Value::Int(2), Value::Int(900), Value::Nil, Value::Nil];
        let bad = [
            Value::Nil,
            bulk("1795242275666200"),
            of_another,
            Value::Array(behind.to_vec()),
            Value::Array(vec![]),
            answer("something", Value::Nil, Value::Nil),
            answer("granted", bulk("m"), bulk("9007199254740992")),
            answer("granted", bulk("m"), bulk("-1")),
        ];
        for value in bad {
            assert_eq!(acquired(value, &member()).unwrap_err().kind, LockErrorKind::Protocol);
        }
    }
}
