//! Answers of the scripts of a queue that JVMs share: any tree of values is read or refused, and
//! only an answer that says a grant is one.

use lockcore::{FencingToken, LockErrorKind};
use proto::{Acquired, Answer, Command, Grant, Inspection, Member, Mode, Reply};

use super::answer::{Tree, answer, answers, bent, refused, said, text, tree, trees};
use super::source::Source;

const OURS: &str = "~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:web";

pub(crate) fn check(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let value = match source.below(3) {
        0 => tree(&mut source, 3),
        1 => almost(&mut source),
        _ => return round_trip(&mut source),
    };
    let commands = [
        acquire(&ours()),
        Command::Release { member: ours() },
        Command::ForceRelease { member: None },
        Command::Leave { leaving: Vec::new() },
        Command::INSPECT,
    ];
    for command in commands {
        match (&command, answer(true, &command, &value)) {
            (_, Err(error)) => refused(&error),
            (Command::Acquire { .. }, Ok(Answer::Acquired(reply))) => {
                let implied = text(&value).map(|_| OURS);
                if reply.outcome == [Acquired::Granted] && implied.is_some() {
                    let [grant] = &reply.grants[..] else { panic!("a bare clock is a grant") };
                    assert_eq!((&grant.member, grant.left_ms), (&ours(), 30_000));
                }
                verify(&value, &reply, implied);
            }
            (
                Command::Release { .. } | Command::ForceRelease { .. },
                Ok(Answer::Released(reply)),
            ) => verify(&value, &reply, None),
            (Command::Leave { .. }, Ok(Answer::Left(reply))) => verify(&value, &reply, None),
            (Command::Inspect { .. }, Ok(Answer::Inspected(found))) => inspected(&value, &found),
            (_, Ok(other)) => panic!("{other:?} to {command:?}"),
        }
    }
    several(&value, &mut source);
}

fn ours() -> Member {
    Member::parse(OURS).expect("a member")
}

fn acquire(member: &Member) -> Command {
    Command::Acquire { members: vec![member.clone()], mode: Mode::Wait, queue_limit: 1 }
}

fn inspected(value: &Tree, found: &Inspection) {
    let Tree::List(parts) = value else { panic!("{value:?} was read") };
    let [_, holder, _, left, _, Tree::List(members), _, _] = &parts[..] else {
        panic!("{value:?} was read")
    };
    for hold in &found.holds {
        assert_eq!(hold.weight, hold.party.weight());
        assert_eq!(i64::try_from(hold.left_ms).ok().map(Tree::Int).as_ref(), Some(left));
    }
    let holders: Vec<_> = found.holds.iter().map(|hold| Some(hold.party.as_str())).collect();
    assert_eq!(holders, Vec::from_iter(text(holder).map(Some)));
    assert!(found.waiters.len() <= members.len());
}

/// The value as the answer to renewals and touches, and as one of the answers in it.
fn several(value: &Tree, source: &mut Source<'_>) {
    let (clock, listeners) = (said("1795242275666200"), Tree::Int(source.integer()));
    let around = source.below(3);
    let parts = std::iter::repeat_n(value.clone(), around);
    let (renewals, touches) = match source.below(3) {
        0 => (value.clone(), value.clone()),
        _ => (
            Tree::List([clock.clone()].into_iter().chain(parts.clone()).collect()),
            Tree::List([clock, listeners].into_iter().chain(parts).collect()),
        ),
    };
    let members = vec![ours()];
    let renewal = Command::Renew { members: members.clone() };
    let asked = [(renewal, renewals), (Command::Touch { members }, touches)];
    for (command, reply) in asked {
        match answers(&command, around, &reply) {
            Ok(each) => {
                assert_eq!(each.len(), around);
                each.iter().flatten().for_each(|answer| verify_one(value, &command, answer));
            }
            // The server's error for the only lock.
            Err(error) if around == 1 && error.kind == LockErrorKind::Denied => {}
            Err(error) => refused(&error),
        }
    }
}

/// No grant that does not stand there.
fn verify_one(value: &Tree, command: &Command, answer: &Answer) {
    let grants = match (command, answer) {
        (Command::Renew { .. }, Answer::Renewed(reply)) => &reply.grants,
        (Command::Touch { .. }, Answer::Touched(reply)) => &reply.grants,
        _ => panic!("{answer:?} to {command:?}"),
    };
    let is_said = |wanted: &str| match value {
        Tree::List(parts) => parts.iter().any(|part| text(part) == Some(wanted)),
        bare => text(bare) == Some(wanted),
    };
    assert!(grants.len() <= 1, "{grants:?} of one lock");
    for Grant { member, token, .. } in grants {
        assert!(is_said(member.as_str()) || member.as_str() == OURS, "{value:?}");
        assert!(number_said(value, token.get()), "{value:?}");
    }
}

fn number_said(value: &Tree, number: u64) -> bool {
    let clock = |text: &str| text.strip_suffix(OURS).unwrap_or(text).parse().ok();
    let is = |part: &Tree| text(part).and_then(clock) == Some(number);
    match value {
        Tree::List(parts) => parts.iter().any(is),
        bare => is(bare),
    }
}

/// A grant stands in the answer, member and token, each in its place.
fn verify<T>(value: &Tree, reply: &Reply<T>, implied: Option<&str>) {
    let (member, token, now) = match value {
        Tree::List(parts) => match &parts[..] {
            [_, _, _, _, member, token, now, _] => (text(member), text(token), text(now)),
            _ => panic!("{value:?} was read"),
        },
        // A number does not tell the time.
        clock => (implied, clock_for_ours(clock), clock_for_ours(clock)),
    };
    assert_eq!(now.and_then(|now| now.parse().ok()), reply.now_us, "{value:?}");
    let left_ms = reply.first_end_ms.expect("it is told of every lock");
    let integer = |number: u64| i64::try_from(number).ok().map(Tree::Int);
    if let Tree::List(parts) = value {
        assert_eq!(integer(left_ms).as_ref(), Some(&parts[3]));
        assert_eq!(integer(reply.skipped).as_ref(), Some(&parts[7]));
    }
    match &reply.grants[..] {
        [grant] => {
            assert_eq!(Some(grant.member.as_str()), member, "{value:?}");
            let number = grant.token.get();
            assert_eq!(token.and_then(|token| token.parse().ok()), Some(number), "{value:?}");
            assert!(number < 1 << 53);
            assert_eq!(grant.left_ms, left_ms);
        }
        [] => {
            let is_none = member.is_none() || token.is_none();
            assert!(is_none, "the grant in {value:?} was overlooked");
        }
        several => panic!("{several:?} of one lock"),
    }
}

/// The clock of `<clock><member>`.
fn clock_for_ours(value: &Tree) -> Option<&str> {
    text(value)?.strip_suffix(OURS)
}

/// One of the forms that are known, with some of its parts replaced, dropped or doubled.
fn almost(source: &mut Source<'_>) -> Tree {
    let clock = "1795242275666200";
    let of = [OURS, "x"][source.below(2)];
    let full = |outcome| {
        let (three, zero) = (Tree::Int(3), Tree::Int(0));
        vec![
            said(of),
            said(outcome),
            three.clone(),
            three,
            said(OURS),
            said(clock),
            said(clock),
            zero,
        ]
    };
    let parts = match source.below(10) {
        0 => full("granted"),
        1 => full("queued"),
        2 => full("busy"),
        3 => full("released"),
        4 => full("not_held"),
        5 => full("held"),
        6 => full("whg"),
        7 => full("la"),
        8 => {
            let (members, deadlines) = (trees(source, 1), trees(source, 1));
            let lists = [Tree::List(members), Tree::List(deadlines)];
            let head = [said("x"), said(OURS), said(clock), Tree::Int(3), said(clock)];
            head.into_iter().chain(lists).chain([Tree::Int(7)]).collect()
        }
        _ => return said(format!("{}{OURS}", ["", clock][source.below(2)])),
    };
    bent(parts, source)
}

/// Checks that an answer of the scripts is read with its meaning.
fn round_trip(source: &mut Source<'_>) {
    let member = format!("~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:{}", source.text(3));
    let member = Member::parse(&member).expect("a member");
    let number = |source: &mut Source<'_>| source.integer() as u64 % (1 << 53);
    let (token, now_us) = (number(source), number(source));
    let (position, left_ms) = (source.integer() & i64::MAX, source.integer() & i64::MAX);
    let (clock, holds) = (said(now_us), source.below(2) == 0);
    let (holder, written) = match holds {
        true => (said(member.as_str()), said(token)),
        false => (Tree::Nil, Tree::Nil),
    };
    let queued = Tree::List(vec![
        said(member.as_str()),
        said("queued"),
        Tree::Int(position),
        Tree::Int(left_ms),
        holder,
        written,
        clock,
        Tree::Int(position),
    ]);
    let acquired = |value: &Tree| match answer(true, &acquire(&member), value) {
        Ok(Answer::Acquired(reply)) => Ok(reply),
        Ok(other) => panic!("{other:?} to an acquire"),
        Err(error) => Err(error.kind),
    };
    let reply = acquired(&queued).expect("it is well formed");
    assert_eq!(reply.outcome, [Acquired::Queued { position: position as u64 }]);
    let left_ms = left_ms as u64;
    assert_eq!(reply.first_end_ms, Some(left_ms));
    assert_eq!((reply.now_us, reply.skipped), (Some(now_us), position as u64));
    let grant = |token, left_ms| {
        let token = FencingToken::try_from(token).expect("it is in the range");
        Grant { member: member.clone(), token, left_ms, batch: Vec::new() }
    };
    assert_eq!(reply.grants, Vec::from_iter(holds.then(|| grant(token, left_ms))));

    let short = acquired(&said(format!("{now_us}{member}"))).expect("it is well formed");
    assert_eq!((short.outcome, short.first_end_ms), (vec![Acquired::Granted], Some(30_000)));
    assert_eq!(short.grants, [grant(now_us, 30_000)]);
    let other = member.as_str().replacen(":7:", ":8:", 1);
    let of_another = acquired(&said(format!("{now_us}{other}")));
    assert_eq!(of_another, Err(LockErrorKind::Protocol));
}
