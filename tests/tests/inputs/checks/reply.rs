//! Answers of scripts: any tree of values is read or refused, and only what says a grant is one.

use lockcore::LockErrorKind;
use lockcore::internals::{
    Acquired, Each, Grant, Inspection, LockName, Member, Reply, StoreError, wire,
};
use redis::Value;

use super::source::Source;

const OURS: &str = "~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:web";

pub(crate) fn check(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let value = match source.below(3) {
        0 => tree(&mut source, 3),
        1 => almost(&mut source),
        _ => return round_trip(&mut source),
    };
    let member = Member::from(OURS);
    let clock = text(&value).is_some();
    let acquired = wire::acquired(value.clone(), &member);
    if let Ok(Reply { outcome: Acquired::Granted, grant, .. }) = &acquired
        && clock
    {
        let grant = grant.as_ref().expect("a bare clock is a grant of the caller");
        assert_eq!(grant.member, member);
    }
    verify(&value, acquired, clock.then_some(OURS));
    verify(&value, wire::released(value.clone()), None);
    several(&value, &mut source);
    verify(&value, wire::left(value.clone()), None);
    match wire::inspection(value.clone()) {
        Ok(Inspection { holder, waiters, .. }) => {
            let Value::Array(parts) = &value else { panic!("{value:?} was read") };
            assert_eq!(parts.len(), 6);
            assert_eq!(holder.as_ref().map(Member::as_str), text(&parts[0]));
            let Value::Array(members) = &parts[4] else { panic!("{value:?} was read") };
            assert!(waiters.len() <= members.len());
        }
        Err(error) => refused(&error),
    }
}

/// The value as the answer to renewals and touches, and as one of the answers in it.
fn several(value: &Value, source: &mut Source<'_>) {
    let member = Member::from(OURS);
    let (clock, listeners) = (bulk("1795242275666200"), Value::Int(source.integer()));
    let around = source.below(3);
    let parts = std::iter::repeat_n(value.clone(), around);
    let (renewals, touches) = match source.below(3) {
        0 => (value.clone(), value.clone()),
        _ => (
            Value::Array([clock.clone()].into_iter().chain(parts.clone()).collect()),
            Value::Array([clock, listeners].into_iter().chain(parts).collect()),
        ),
    };
    let lock = LockName::from("a lock");
    let holds = vec![(lock.clone(), member.clone()); around];
    let lines = vec![(lock, vec![member]); around];
    let renewed = wire::renewed(renewals, &holds).map(|each| verify_each(value, &each, around));
    let touched = wire::touched(touches, &lines).map(|each| verify_each(value, &each, around));
    for error in [renewed.err(), touched.err()].into_iter().flatten() {
        refused(&error);
    }
}

/// One answer each, and no grant that does not stand there.
fn verify_each<T>(value: &Value, each: &Each<T>, count: usize) {
    assert_eq!(each.len(), count);
    let said = |wanted: &str| match value {
        Value::Array(parts) => parts.iter().any(|part| text(part) == Some(wanted)),
        bare => text(bare) == Some(wanted),
    };
    for Reply { grant, .. } in each.iter().flatten() {
        if let Some(Grant { member, token }) = grant {
            assert!(said(member.as_str()) || member.as_str() == OURS, "{value:?}");
            assert!(number_said(value, token.get()), "{value:?}");
        }
    }
}

fn number_said(value: &Value, number: u64) -> bool {
    let is = |part: &Value| text(part).and_then(|text| text.parse().ok()) == Some(number);
    match value {
        Value::Array(parts) => parts.iter().any(is),
        bare => is(bare),
    }
}

/// A refusal leaves open what happened: the script may have run.
fn refused(error: &StoreError) {
    assert_eq!((error.kind, error.may_have_run), (LockErrorKind::Protocol, true));
}

/// A grant stands in the answer, member and token, each in its place.
fn verify<T>(value: &Value, reply: Result<Reply<T>, StoreError>, implied: Option<&str>) {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return refused(&error),
    };
    let (member, token, now) = match value {
        Value::Array(parts) if parts.len() == 8 => {
            (text(&parts[3]), text(&parts[4]), text(&parts[6]))
        }
        Value::Array(parts) if parts.len() == 3 => {
            (text(&parts[2]), text(&parts[0]), text(&parts[0]))
        }
        Value::Array(parts) if parts.len() == 5 => {
            (text(&parts[3]), text(&parts[4]), text(&parts[0]))
        }
        // A bare number does not tell the time.
        bare => (implied, text(bare), text(bare).or(Some("0"))),
    };
    assert_eq!(now.and_then(|now| now.parse().ok()), Some(reply.now_us), "{value:?}");
    match value {
        Value::Array(parts) if parts.len() == 8 => {
            let numbers =
                [reply.left_ms, reply.passed_over].map(|number| i64::try_from(number).ok());
            let [left, passed_over] = numbers.map(|number| number.map(Value::Int));
            assert_eq!((left.as_ref(), passed_over.as_ref()), (Some(&parts[2]), Some(&parts[7])));
        }
        Value::Array(parts) if parts.len() == 5 => {
            let left = i64::try_from(reply.left_ms).ok().map(Value::Int);
            assert_eq!(left.as_ref(), Some(&parts[2]));
        }
        Value::Array(parts) => {
            assert_eq!(text(&parts[1]).and_then(|left| left.parse().ok()), Some(reply.left_ms));
        }
        _ => {}
    }
    if let Some(Grant { member: found, token: number }) = reply.grant {
        assert_eq!(Some(found.as_str()), member, "{value:?}");
        assert_eq!(token.and_then(|token| token.parse().ok()), Some(number.get()), "{value:?}");
        assert!(number.get() < 1 << 53);
    } else {
        assert!(member.is_none() || token.is_none(), "the grant in {value:?} was overlooked");
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// Any value.
fn tree(source: &mut Source<'_>, depth: usize) -> Value {
    match source.below(12) {
        0 => Value::Nil,
        1 => Value::Int(source.integer()),
        2 => Value::BulkString(source.bytes(3)),
        3 => Value::SimpleString(source.text(3)),
        4 => Value::Okay,
        5 => Value::Boolean(source.below(2) == 0),
        6 => Value::Double(f64::from_bits(source.integer() as u64)),
        7 if depth > 0 => Value::Set(trees(source, depth)),
        8 if depth > 0 => {
            let keys = trees(source, depth);
            Value::Map(keys.into_iter().map(|key| (key, tree(source, depth - 1))).collect())
        }
        _ if depth > 0 => Value::Array(trees(source, depth)),
        _ => Value::Nil,
    }
}

fn trees(source: &mut Source<'_>, depth: usize) -> Vec<Value> {
    (0..source.below(10)).map(|_| tree(source, depth - 1)).collect()
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

/// One of the forms that are known, with some of its parts replaced, dropped or doubled.
fn almost(source: &mut Source<'_>) -> Value {
    let clock = "1795242275666200";
    let full = |outcome| {
        let (three, zero) = (Value::Int(3), Value::Int(0));
        vec![
            bulk(outcome),
            three.clone(),
            three,
            bulk(OURS),
            bulk(clock),
            zero.clone(),
            bulk(clock),
            zero,
        ]
    };
    let mut parts = match source.below(14) {
        0 => full("granted"),
        1 => full("queued"),
        2 => full("busy"),
        3 => full("released"),
        4 => full("not_held"),
        5 => full("held"),
        6 => full("whg"),
        7 => full("la"),
        8 => vec![bulk(clock), bulk("10000"), bulk(OURS)],
        9 => vec![bulk(clock), bulk("10000"), Value::Nil],
        11 => vec![bulk(clock), Value::Int(3), Value::Int(900), bulk(OURS), bulk(clock)],
        12 => vec![bulk(clock), Value::Nil, Value::Int(900), Value::Nil, Value::Nil],
        10 => {
            let (members, deadlines) = (trees(source, 1), trees(source, 1));
            let lists = [Value::Array(members), Value::Array(deadlines)];
            let head = [bulk(OURS), bulk(clock), Value::Int(3), bulk(clock)];
            head.into_iter().chain(lists).collect()
        }
        _ => return tree(source, 0),
    };
    for _ in 0..source.below(4) {
        let at = source.below(parts.len().max(1)).min(parts.len().saturating_sub(1));
        match source.below(4) {
            _ if parts.is_empty() => {}
            0 => drop(parts.remove(at)),
            1 => parts.insert(at, parts[at].clone()),
            _ => parts[at] = tree(source, 1),
        }
    }
    Value::Array(parts)
}

/// What the scripts answer is read as what it says.
fn round_trip(source: &mut Source<'_>) {
    let member =
        Member::from(format!("~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:{}", source.text(3)).as_str());
    let number = |source: &mut Source<'_>| source.integer() as u64 % (1 << 53);
    let (token, now_us, claim) = (number(source), number(source), number(source));
    let (position, left_ms) = (source.integer() & i64::MAX, source.integer() & i64::MAX);
    let (clock, holds) = (bulk(&now_us.to_string()), source.below(2) == 0);
    let (holder, written) = match holds {
        true => (bulk(member.as_str()), bulk(&token.to_string())),
        false => (Value::Nil, Value::Nil),
    };
    let answer = Value::Array(vec![
        bulk("queued"),
        Value::Int(position),
        Value::Int(left_ms),
        holder,
        written,
        Value::Int(i64::from(holds)),
        clock.clone(),
        Value::Int(position),
    ]);
    let reply = wire::acquired(answer, &member).expect("it is well formed");
    assert_eq!(reply.outcome, Acquired::Queued { position: position as u64 });
    assert_eq!((reply.left_ms, reply.foreign, reply.now_us), (left_ms as u64, holds, now_us));
    assert_eq!(reply.passed_over, position as u64);
    let grant = reply.grant.map(|grant| (grant.member, grant.token.get()));
    assert_eq!(grant, holds.then(|| (member.clone(), token)));

    let short = wire::acquired(bulk(&format!("{now_us}:7")), &member).expect("it is well formed");
    let grant = short.grant.expect("a clock is a grant");
    assert_eq!((grant.member, grant.token.get(), short.left_ms), (member.clone(), now_us, 30_000));
    let of_another = wire::acquired(bulk(&format!("{now_us}:8")), &member);
    assert_eq!(of_another.map_err(|error| error.kind), Err(LockErrorKind::Protocol));
    let claim_text = bulk(&claim.to_string());
    let handed = Value::Array(vec![clock, claim_text, bulk(member.as_str())]);
    let reply = wire::released(handed).expect("it is well formed");
    assert_eq!((reply.left_ms, reply.grant.map(|grant| grant.member)), (claim, Some(member)));
}
