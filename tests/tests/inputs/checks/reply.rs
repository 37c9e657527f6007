//! Answers of scripts: any tree of values is read or refused, and only an answer that says a grant
//! is one.

use std::num::NonZeroU32;

use lockcore::{FencingToken, LockErrorKind};
use proto::{Acquired, Answer, Command, Demand, Grant, Label, Leaving, Member, Mode, Released};

use super::answer::{CLOCK, NODE, Tree, answer, bent, refused, said, text, tree, trees};
use super::source::Source;

pub(crate) fn check(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let value = match source.below(3) {
        0 => tree(&mut source, 3),
        1 => almost(&mut source),
        _ => return round_trip(&mut source),
    };
    for command in commands() {
        match (&command, answer(false, &command, &value)) {
            // The letter for a lock key that is another program's.
            (Command::Renew { members, .. }, Err(error))
                if error.kind == LockErrorKind::WrongType =>
            {
                let of_one = text(&value).and_then(|text| text.strip_suffix(members[0].as_str()));
                assert!(members.len() == 1 && of_one.is_some_and(|text| text.ends_with('s')));
            }
            (_, Err(error)) => refused(&error),
            (Command::Inspect { .. }, Ok(Answer::Inspected(found))) => {
                let is_said = |party: &str| texts(&value).contains(&party);
                assert!(found.holds.iter().all(|hold| is_said(hold.party.as_str())));
                assert!(found.waiters.iter().all(|(party, _)| is_said(party.as_str())));
            }
            (command, Ok(answer)) => {
                let (asked, answered) = members(command, &answer);
                assert_eq!(asked, answered, "{answer:?} to {command:?}");
                assert!(is_answer_to(command, &answer), "{answer:?} to {command:?}");
                answer.grants().iter().for_each(|grant| verify(&value, command, grant));
                if let (Command::Acquire { members, .. }, Answer::Acquired(reply)) =
                    (command, &answer)
                {
                    let mut each = members.iter().zip(&reply.outcome);
                    let has_grant = |of: &Member| reply.grants.iter().any(|one| one.member == *of);
                    assert!(each.all(|(one, got)| *got != Acquired::Granted || has_grant(one)));
                }
            }
        }
    }
}

/// The lock key of the lock.
const LOCK_KEY: &str = "lock:{x}";

fn member(demand: &str) -> Member {
    Member::parse(&format!("~2{NODE}:7:30000:{demand}:web")).expect("a member")
}

fn acquire(members: Vec<Member>) -> Command {
    Command::Acquire { members, mode: Mode::Wait, queue_limit: 1 }
}

fn commands() -> Vec<Command> {
    let mut commands = vec![Command::ForceRelease { member: None }, Command::INSPECT];
    for demand in ["w", "r", "2/10"] {
        let member = member(demand);
        let leaving = vec![Leaving::new(member.clone(), false)];
        commands.extend([
            acquire(vec![member.clone()]),
            acquire(vec![member.clone(), member.clone()]),
            Command::Release { member: member.clone() },
            Command::Renew { members: vec![member.clone()] },
            Command::Renew { members: vec![member.clone(), member.clone()] },
            Command::Confirm { member: member.clone() },
            Command::reduce(member.clone(), NonZeroU32::MIN),
            Command::Touch { members: vec![member] },
            Command::Leave { leaving },
        ]);
    }
    commands
}

fn is_answer_to(command: &Command, answer: &Answer) -> bool {
    match command {
        Command::Acquire { .. } => matches!(answer, Answer::Acquired(_)),
        Command::Release { .. } | Command::ForceRelease { .. } => {
            matches!(answer, Answer::Released(_))
        }
        Command::Renew { .. } | Command::Confirm { .. } | Command::Reduce { .. } => {
            matches!(answer, Answer::Renewed(_))
        }
        Command::Touch { .. } => matches!(answer, Answer::Touched(_)),
        Command::Leave { .. } => matches!(answer, Answer::Left(_)),
        Command::Inspect { .. } => matches!(answer, Answer::Inspected(_)),
    }
}

/// The number of members that the command asks about, and the number that the answer tells of.
fn members(command: &Command, answer: &Answer) -> (usize, usize) {
    match (command, answer) {
        (Command::Acquire { members, .. }, Answer::Acquired(reply)) => {
            (members.len(), reply.outcome.len())
        }
        (Command::Renew { members, .. }, Answer::Renewed(reply)) => {
            (members.len(), reply.outcome.len())
        }
        (Command::Confirm { .. }, Answer::Renewed(reply)) => (1, reply.outcome.len()),
        (Command::Touch { members }, Answer::Touched(reply)) => {
            (members.len(), reply.outcome.members.len())
        }
        (Command::Leave { leaving }, Answer::Left(reply)) => (leaving.len(), reply.outcome.len()),
        _ => (0, 0),
    }
}

/// All texts in it.
fn texts(value: &Tree) -> Vec<&str> {
    match value {
        Tree::List(parts) => parts.iter().flat_map(texts).collect(),
        one => text(one).into_iter().collect(),
    }
}

/// Member and token stand there, or the command itself names the member.
fn verify(value: &Tree, command: &Command, grant: &Grant) {
    let texts = texts(value);
    let own = match command {
        Command::Confirm { member } | Command::Reduce { member, .. } => vec![member],
        Command::Acquire { members, .. } | Command::Touch { members } => members.iter().collect(),
        _ => Vec::new(),
    };
    let is_own = own.contains(&&grant.member);
    let is_said = texts.iter().any(|text| text.ends_with(grant.member.as_str()));
    assert!(is_own || is_said, "{:?} in {value:?}", grant.member);
    let token = grant.token.get();
    assert!(token < 1 << 53);
    let says = |text: &&str| {
        let text = text.strip_suffix(grant.member.as_str()).unwrap_or(text);
        text.split(' ').next().and_then(number) == Some(token)
    };
    assert!(texts.iter().any(says), "{token} in {value:?}");
}

/// Parses digits, also with a plus.
fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// One of the forms that are known, with some of its parts replaced, dropped or doubled.
fn almost(source: &mut Source<'_>) -> Tree {
    let demand = ["w", "r", "2/10"][source.below(3)];
    let member = member(demand);
    let token = source.integer();
    let outcomes = ["granted", "queued", "busy", "released", "not_held", "h", "n", "whg", "la"];
    let parts = match source.below(6) {
        0 => return said(format!("{token}{member}")),
        1 => return said(format!("{token} {CLOCK}{member}")),
        2 => {
            let letters = ["h", "n", "s", "hh", "x", "l", ""][source.below(7)];
            return said(format!("{CLOCK}{letters}{member}"));
        }
        3 => {
            let lists = [(); 5].map(|()| Tree::List(trees(source, 1)));
            let head = [said(LOCK_KEY), said(CLOCK), said(CLOCK)];
            let counts = [Tree::Int(1), Tree::Int(token)];
            head.into_iter().chain(lists).chain(counts).collect()
        }
        _ => {
            let of = [member.as_str(), LOCK_KEY][source.below(2)];
            let grants = vec![said(member.as_str()), Tree::Int(source.integer())];
            let mut full = full(of, outcomes[source.below(9)], grants);
            if source.below(2) == 0 {
                full.push(Tree::List(vec![Tree::Int(10_000)]));
            }
            full
        }
    };
    bent(parts, source)
}

/// The answer in full to a request for this member.
fn full(of: &str, outcome: &str, grants: Vec<Tree>) -> Vec<Tree> {
    let (three, clock) = (Tree::Int(3), said(CLOCK));
    let token = clock.clone();
    let (none, list) = (Tree::Int(0), Tree::List(grants));
    vec![said(of), said(outcome), three.clone(), three, token, clock, none.clone(), none, list]
}

/// Checks that an answer of the scripts is read with its meaning.
fn round_trip(source: &mut Source<'_>) {
    let demand = ["w", "w/8", "r", "2/10"][source.below(4)];
    // Labels are escaped: behind the end of a line stand the numbers of a batch.
    let label = Label::new(&source.text(3));
    let member = format!("~2{NODE}:7:30000:{demand}:{}", label.as_str());
    let member = Member::parse(&member).expect("a member");
    let other = Member::parse(&member.as_str().replacen(":7:", ":8:", 1)).expect("a member");
    let token = 1 + source.integer() as u64 % ((1 << 53) - 1);
    let acquire = acquire(vec![member.clone()]);
    let read =
        |command: &Command, value: &Tree| answer(false, command, value).map_err(|error| error.kind);
    let grant = |member: &Member, token, left_ms| {
        let token = FencingToken::try_from(token).expect("it is in the range");
        vec![Grant { member: member.clone(), token, left_ms, batch: Vec::new() }]
    };

    let short_forms =
        [(format!("{token}{member}"), None), (format!("{token} {CLOCK}{member}"), Some(CLOCK))];
    for (short, now_us) in short_forms {
        let Ok(Answer::Acquired(reply)) = read(&acquire, &said(&short)) else {
            panic!("{short} is well formed")
        };
        assert_eq!((reply.outcome, reply.now_us), (vec![Acquired::Granted], now_us));
        assert_eq!(reply.grants, grant(&member, token, 30_000));
    }
    for (short, outcome) in [
        (member.to_string(), Acquired::Busy),
        (format!("f7{member}"), Acquired::Full { waiting: 7 }),
    ] {
        let refused = read(&acquire, &said(&short));
        let Ok(Answer::Acquired(reply)) = refused else { panic!("{refused:?}") };
        assert_eq!((reply.outcome, reply.grants), (vec![outcome], Vec::new()));
    }
    let of_another = [
        said(format!("{token}{other}")),
        said(other.as_str()),
        Tree::List(full(other.as_str(), "queued", Vec::new())),
    ];
    let without_the_grant = [Tree::List(full(member.as_str(), "granted", Vec::new()))];
    for reply in of_another.into_iter().chain(without_the_grant) {
        assert_eq!(read(&acquire, &reply), Err(LockErrorKind::Protocol), "{reply:?}");
    }

    let (left_ms, position) = (1 + token % (1 << 32), token % (1 << 20));
    let queued = read(&acquire, &Tree::Int((left_ms * (1 << 20) + position) as i64));
    let Ok(Answer::Acquired(reply)) = queued else { panic!("{queued:?}") };
    let queued = vec![Acquired::Queued { position }];
    assert_eq!((reply.outcome, reply.first_end_ms), (queued, Some(left_ms)));

    let release = Command::Release { member: member.clone() };
    let handed = read(&release, &said(format!("{token}{other}")));
    let Ok(Answer::Released(reply)) = handed else { panic!("{handed:?}") };
    assert_eq!(reply.outcome, Released::Released);
    assert_eq!(reply.grants, grant(&other, token, 10_000));

    // A batch: the numbers follow in a line of their own.
    let handed = read(&release, &said(format!("{token}{other}\n8 9 77")));
    let Ok(Answer::Released(reply)) = handed else { panic!("{handed:?}") };
    let of_batch = |mut grants: Vec<Grant>| {
        grants[0].batch = vec![8, 9, 77];
        grants
    };
    assert_eq!(reply.grants, of_batch(grant(&other, token, 10_000)));
    let reported = vec![said(format!("{other}\n8 9 77")), Tree::Int(17)];
    let Ok(Answer::Acquired(reply)) =
        read(&acquire, &Tree::List(full(member.as_str(), "queued", reported)))
    else {
        panic!("it is well formed")
    };
    assert_eq!(reply.grants, of_batch(grant(&other, CLOCK, 17)));
    let many = (0..65).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
    for batch in ["", " ", "8 ", "8  9", "8 x", "-8", &many] {
        let strange = read(&release, &said(format!("{token}{other}\n{batch}")));
        assert_eq!(strange, Err(LockErrorKind::Protocol), "{batch:?}");
    }

    let reported = vec![said(other.as_str()), Tree::Int(17)];
    let Ok(Answer::Acquired(reply)) =
        read(&acquire, &Tree::List(full(member.as_str(), "queued", reported)))
    else {
        panic!("it is well formed")
    };
    let queued = vec![Acquired::Queued { position: 3 }];
    assert_eq!((reply.outcome, reply.first_end_ms), (queued, Some(3)));
    assert_eq!((reply.grants, reply.now_us), (grant(&other, CLOCK, 17), Some(CLOCK)));
    assert_eq!(member.demand() == Demand::EXCLUSIVE, demand.starts_with('w'));
    assert_eq!(member.batch_limit(), if demand == "w/8" { 8 } else { 1 });
}
