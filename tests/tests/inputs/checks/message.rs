//! Messages on a node's channel, where anyone with the right to publish may say anything.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use lockcore::{FencingToken, NodeId};
use proto::wire::message;
use proto::{Demand, Event, Label, MAX_BATCH, Member};

use super::source::Source;

const NODE: &str = "AAAAAAAAAAAAAAAAAAAAAA";

pub(crate) fn check(bytes: &[u8]) {
    any(bytes);
    let mut source = Source::new(bytes);
    round_trip(&mut source);
    almost(&mut source);
    numbers(&mut source);
    any(&source.bytes(8));
}

/// Checks grants and revocations as the queue writes them, with one number replaced.
fn numbers(source: &mut Source<'_>) {
    let mut parts = vec!["p".to_owned(), "1795242275666200".to_owned()];
    for _ in 0..=source.below(3) {
        parts.extend([source.integer().to_string(), "10000".to_owned()]);
    }
    let at = source.below(parts.len());
    match source.below(3) {
        0 => parts[at] = source.text(2),
        1 => drop(parts.remove(at)),
        _ => {}
    }
    any(parts.join(" ").as_bytes());
    parts[0] = "r".to_owned();
    any(parts.join(" ").as_bytes());
}

/// Checks a grant with one part replaced: a part that is no number, no member or no lease makes it
/// none.
fn almost(source: &mut Source<'_>) {
    let lease = ["30000", "0", "", "-1", "1x"][source.below(5)];
    let member = format!("~1{NODE}:7:{lease}:web");
    assert_eq!(Member::parse(&member).is_some(), lease == "30000", "{member}");
    let mut parts = ["g".to_owned(), member, "1795242275666200".to_owned(), "10000".to_owned()];
    parts[source.below(4)] = source.text(2);
    any(parts.join(" ").as_bytes());
}

/// Checks that a grant is read only where a grant was written: it can be written back. A member of
/// another node does not concern the hearing node.
fn any(payload: &[u8]) {
    let heard = message(payload, &NodeId::from(NODE));
    let Some(event) = heard else { return };
    assert_eq!(message(payload, &another(payload)).is_some(), !payload.contains(&b'~'));
    let text = std::str::from_utf8(payload).expect("bytes that are no text are no event");
    match event {
        Event::Granted { token, grants } => {
            let expected = grants.iter().flat_map(|(number, left_ms)| [*number, *left_ms]);
            let expected: Vec<_> = [token.get()].into_iter().chain(expected).map(Some).collect();
            assert_eq!(granted(text), expected, "{text:?}");
            assert!(token.get() < 1 << 53 && !grants.is_empty());
        }
        Event::GrantedBatch { token, left_ms, numbers } => {
            let expected = [token.get(), left_ms].into_iter().chain(numbers.iter().copied());
            let written = text.strip_prefix("w ").expect("a batch begins with a w");
            assert!(written.split(' ').map(number).eq(expected.map(Some)), "{text:?}");
            assert!(token.get() + (numbers.len() as u64) <= 1 << 53 && numbers.len() <= MAX_BATCH);
        }
        Event::Revoked { numbers } => {
            let written = text.strip_prefix("r ").expect("a revocation begins with an r");
            match Member::parse(written) {
                Some(member) => assert_eq!(numbers, [well_formed(member).number()]),
                None => assert!(written.split(' ').map(number).eq(numbers.into_iter().map(Some))),
            }
        }
        Event::Superseded { numbers } => {
            let written = text.strip_prefix("s ").expect("one that left begins with an s");
            assert!(written.split(' ').map(number).eq(numbers.into_iter().map(Some)));
        }
        Event::Poked { .. } | Event::Resubscribed => panic!("no payload says that"),
    }
}

/// A node that no input is about: each has another.
fn another(payload: &[u8]) -> NodeId {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    NodeId::from(u128::from(hasher.finish()) << 64)
}

/// The token that is written, then the number and the milliseconds of each hold.
fn granted(text: &str) -> Vec<Option<u64>> {
    if let Some(several) = text.strip_prefix("p ") {
        return several.split(' ').map(number).collect();
    }
    let grant = text.strip_prefix("g ").expect("a grant begins with a g or a p");
    let mut parts = grant.rsplitn(3, ' ');
    let [left_ms, token] = [(); 2].map(|()| parts.next().and_then(number));
    let member = parts.next().and_then(Member::parse).expect("first the member");
    vec![token, Some(well_formed(member).number()), left_ms]
}

fn well_formed(member: Member) -> Member {
    let (marker, rest) = member.as_str().split_at(2);
    assert!(["~1", "~2"].contains(&marker) && rest.starts_with(&format!("{}:", member.node())));
    assert!(member.lease_ms() > 0);
    member
}

/// Parses digits, as the scripts write them; with a plus before them they are still that number.
fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Checks that the texts of the scripts are read with their meaning, whatever the label is.
fn round_trip(source: &mut Source<'_>) {
    let label = Label::new(&source.text(4));
    // The label has 64 bytes as it was given; each byte that is escaped takes two more.
    let plain = label.as_str().len() - 2 * label.as_str().matches('%').count();
    assert!(plain <= 64 && !label.as_str().contains(char::is_control), "{label:?}");
    let (number, lease_ms) = (source.integer() as u64, 1 + u64::from(source.byte()));
    let node = NodeId::from(7_u128);
    let member = Member::plain(&node, number, lease_ms, &label);
    let read = Member::parse(member.as_str()).expect("it is ours");
    assert_eq!((read.number(), read.lease_ms()), (number, lease_ms));
    assert_eq!((read.label(), &read), (label.as_str(), &member));
    let count = 1 + u32::from(source.byte());
    let permits = Demand::permits(count, count + 7).expect("no more than there are");
    for demand in [Demand::EXCLUSIVE, Demand::READ, permits] {
        let member = Member::new(&node, number, lease_ms, demand, &label);
        let read = Member::parse(member.as_str()).expect("it is ours");
        assert_eq!((read.number(), read.lease_ms(), read.demand()), (number, lease_ms, demand));
        assert_eq!((read.label(), &read), (label.as_str(), &member));
    }
    let (token, left_ms) = (source.integer() as u64 % (1 << 53), source.integer() as u64);
    let event = message(format!("g {member} {token} {left_ms}").as_bytes(), &node);
    let token = FencingToken::try_from(token).expect("it is in the range");
    assert_eq!(event, Some(Event::Granted { token, grants: vec![(number, left_ms)] }));
    let text = format!("p {token} {number} {left_ms} 7 10000");
    let grants = vec![(number, left_ms), (7, 10_000)];
    let event = message(text.as_bytes(), &node);
    assert_eq!(event, Some(Event::Granted { token, grants }));
    let text = format!("w {token} {left_ms} {number} 7");
    let expected = Event::GrantedBatch { token, left_ms, numbers: vec![number, 7] };
    let is_refused = token.get() + 1 == 1 << 53 || number == 7;
    assert_eq!(message(text.as_bytes(), &node), Some(expected).filter(|_| !is_refused));
    let event = message(format!("r {number} 7").as_bytes(), &node);
    assert_eq!(event, Some(Event::Revoked { numbers: vec![number, 7] }));
    let event = message(format!("s {number} 7").as_bytes(), &node);
    assert_eq!(event, Some(Event::Superseded { numbers: vec![number, 7] }));
    let event = message(format!("r {member}").as_bytes(), &node);
    assert_eq!(event, Some(Event::Revoked { numbers: vec![number] }));
}
