//! Parses the messages on a node's channel into events.

use super::value::fencing_token;
use crate::member::{Member, NodeId};
use crate::{Event, FencingToken, MAX_BATCH};

/// Parses a message for `node`; `None` if it has no known form or belongs to another node:
///
/// - `g <member> <token> <ms left>`: the member was granted the lock; `r <member>`: its hold was
///   force-released. The member may contain spaces.
/// - `p <token> <number> <ms left> …`: members with these ids were granted shared holds;
///   `r <number> …`: their holds were force-released.
/// - `w <token> <ms left> <number> …`: members with these ids were granted a hold as a batch.
/// - `s <number> …`: members with these ids were superseded in the queue.
pub fn message(payload: &[u8], node: &NodeId) -> Option<Event> {
    // The text of another node's member is no message for this node, whatever the member id is.
    let number = |text: &str| {
        Member::parse(text).filter(|member| member.is_of(node)).map(|member| member.number())
    };
    let payload = std::str::from_utf8(payload).ok()?;
    if let Some(grants) = payload.strip_prefix("p ") {
        return several(grants);
    }
    if let Some(batch) = payload.strip_prefix("w ") {
        return of_batch(batch);
    }
    if let Some(revoked) = payload.strip_prefix("r ") {
        let alone = || Some(vec![number(revoked)?]);
        return Some(Event::Revoked { numbers: numbers(revoked).or_else(alone)? });
    }
    if let Some(superseded) = payload.strip_prefix("s ") {
        return Some(Event::Superseded { numbers: numbers(superseded)? });
    }
    let mut parts = payload.strip_prefix("g ")?.rsplitn(3, ' ');
    let left_ms = parts.next()?.parse().ok()?;
    let token = fencing_token(parts.next()?)?;
    let number = number(parts.next()?)?;
    Some(Event::Granted { token, grants: vec![(number, left_ms)] })
}

fn several(text: &str) -> Option<Event> {
    let (token, grants) = text.split_once(' ')?;
    let token = fencing_token(token)?;
    let numbers = numbers(grants)?;
    let pairs = numbers.chunks_exact(2);
    let is_whole = pairs.remainder().is_empty();
    let grants = pairs.map(|pair| (pair[0], pair[1])).collect();
    is_whole.then_some(Event::Granted { token, grants })
}

fn of_batch(text: &str) -> Option<Event> {
    let (token, rest) = text.split_once(' ')?;
    let (left_ms, batch) = rest.split_once(' ')?;
    let (token, left_ms) = (fencing_token(token)?, left_ms.parse().ok()?);
    Some(Event::GrantedBatch { token, left_ms, numbers: batch_of(batch, token)? })
}

/// Parses the member ids of a batch. `first` is the first member's token. `None` if there are more
/// ids than [`MAX_BATCH`], if an id occurs twice, or if the last member's token would not be below
/// 2^53.
pub(super) fn batch_of(text: &str, first: FencingToken) -> Option<Vec<u64>> {
    let numbers = numbers(text)?;
    let last = first.get() + numbers.len() as u64 - 1;
    let is_known = numbers.len() <= MAX_BATCH && FencingToken::try_from(last).is_ok();
    let is_twice = |(at, number): (usize, &u64)| numbers[..at].contains(number);
    (is_known && !numbers.iter().enumerate().any(is_twice)).then_some(numbers)
}

/// Parses numbers separated by spaces. `None` if a part is not a number, for example if the message
/// contains a member's text instead.
fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split(' ').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(payload: &[u8]) -> Option<Event> {
        super::message(payload, &NodeId::from("AAAAAAAAAAAAAAAAAAAAAA"))
    }

    fn token(number: u64) -> FencingToken {
        FencingToken::try_from(number).expect("a token")
    }

    #[test]
    fn a_grant_is_read_even_if_its_label_has_spaces() {
        let grant = b"g ~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:web 1 17 42 1795242275666200 10000";
        let token = token(1_795_242_275_666_200);
        assert_eq!(read(grant), Some(Event::Granted { token, grants: vec![(7, 10_000)] }));
    }

    #[test]
    fn a_revocation_is_read() {
        let revoked = read(b"r ~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:web 1 17");
        assert_eq!(revoked, Some(Event::Revoked { numbers: vec![7] }));
    }

    #[test]
    fn grants_and_revocations_of_several_are_read() {
        let several = Event::Granted { token: token(17), grants: vec![(1, 10_000), (5, 300)] };
        assert_eq!(read(b"p 17 1 10000 5 300"), Some(several));
        assert_eq!(read(b"r 1 5"), Some(Event::Revoked { numbers: vec![1, 5] }));
        assert_eq!(read(b"s 1 5"), Some(Event::Superseded { numbers: vec![1, 5] }));
    }

    #[test]
    fn a_batch_is_read_if_each_of_its_members_has_a_token() {
        let batch = Event::GrantedBatch { token: token(17), left_ms: 10_000, numbers: vec![1, 5] };
        assert_eq!(read(b"w 17 10000 1 5"), Some(batch));
        assert_eq!(read(b"w 9007199254740991 10000 1 5"), None);
        assert_eq!(read(b"w 17 10000"), None);
        let members = |count: usize| (0..count).map(|number| format!(" {number}"));
        let text = |count| format!("w 17 10000{}", members(count).collect::<String>());
        assert!(read(text(MAX_BATCH).as_bytes()).is_some());
        assert_eq!(read(text(MAX_BATCH + 1).as_bytes()), None);
    }

    #[test]
    fn a_forged_batch_with_an_id_twice_is_nothing() {
        assert_eq!(read(b"w 17 10000 1 5 1"), None);
    }

    #[test]
    fn what_makes_no_sense_is_nothing() {
        for payload in [
            &b""[..],
            b"g",
            b"g x",
            b"g x y z",
            b"g ~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:x 9007199254740992 5",
            b"g m 1795242275666200 5",
            b"r a b",
            b"s",
            b"s a b",
            b"g ~1BAAAAAAAAAAAAAAAAAAAAA:7:30000:x 1795242275666200 5",
            b"r ~1BAAAAAAAAAAAAAAAAAAAAA:7:30000:x",
            b"0",
            b"\xff\xfe",
            b"g ~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:x 1 -1",
            b"p",
            b"p 17",
            b"p 17 1",
            b"p 17 1 2 3",
            b"p x 1 2",
            b"p 9007199254740992 1 2",
        ] {
            assert_eq!(read(payload), None);
        }
    }
}
