//! Bytes of a server, on our own connection: however they are cut, the same answers are decoded,
//! each as redis-rs decodes it, and an answer that is sent whole is never lost.

use redis::{RedisError, Value, parse_redis_value};

use super::decoder::Decoder;
use super::source::Source;

pub(crate) fn check(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let (mut sent, mut valid) = (Vec::new(), 0);
    for _ in 0..source.below(5) {
        answer(&mut source, 4, &mut sent);
        valid += 1;
    }
    let is_bent = source.below(2) == 1;
    if is_bent {
        let at = source.below(sent.len() + 1);
        sent.splice(at..(at + source.below(3)).min(sent.len()), source.bytes(2));
    }
    let (whole, left) = decoded([&*sent]);
    let pieces = 1 + source.below(40);
    let (cut, left_of_cut) = decoded(sent.chunks(pieces));
    assert_eq!(whole.is_ok(), cut.is_ok(), "{sent:?} in pieces of {pieces}");
    let (whole, cut) = match (whole, cut) {
        (Ok(whole), Ok(cut)) => {
            assert_eq!(left, left_of_cut, "{sent:?} in pieces of {pieces}");
            (whole, cut)
        }
        (Err((whole, _)), Err((cut, _))) if is_bent => (whole, cut),
        outcome => panic!("{outcome:?} of {sent:?}"),
    };
    assert_eq!(whole, cut, "{sent:?} in pieces of {pieces}");
    if !is_bent {
        assert_eq!((whole.len(), left), (valid, 0), "{sent:?}");
    }
    let mut rest = &*sent;
    for (value, length) in whole {
        let (answer, after) = rest.split_at(length);
        assert_eq!(parse_redis_value(answer), Ok(value), "{sent:?}");
        rest = after;
    }
}

type Decoded = Vec<(Value, usize)>;

/// The answers with their lengths, also those before an error; and how many bytes are left.
fn decoded<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Result<Decoded, (Decoded, RedisError)>, usize) {
    let (mut decoder, mut answers, mut kept) = (Decoder::default(), Vec::new(), Vec::new());
    // Those of an answer that is not whole yet.
    let mut taken = 0;
    for piece in pieces {
        kept.extend_from_slice(piece);
        let mut left = &*kept;
        loop {
            let before = left.len();
            let decoded = decoder.next(&mut left);
            taken += before - left.len();
            match decoded {
                Ok(Some(value)) => answers.push((value, std::mem::take(&mut taken))),
                Ok(None) => break,
                Err(error) => return (Err((answers, error)), left.len()),
            }
        }
        kept = left.to_vec();
    }
    (Ok(answers), kept.len())
}

/// Writes an answer with lists of at most this depth.
fn answer(source: &mut Source<'_>, depth: usize, sent: &mut Vec<u8>) {
    let line = |source: &mut Source<'_>| source.text(2).replace(['\r', '\n'], " ");
    match source.below(8) {
        0 => sent.extend(format!(":{}\r\n", source.integer()).bytes()),
        1 => sent.extend(format!("+{}\r\n", line(source)).bytes()),
        2 => sent.extend(format!("-ERR {}\r\n", line(source)).bytes()),
        3 => sent.extend_from_slice([&b"$-1\r\n"[..], b"*-1\r\n"][source.below(2)]),
        4 | 5 if depth > 0 => {
            let length = source.below(4);
            sent.extend(format!("*{length}\r\n").bytes());
            (0..length).for_each(|_| answer(source, depth - 1, sent));
        }
        _ => {
            let string = source.bytes(2);
            sent.extend(format!("${}\r\n", string.len()).bytes());
            sent.extend(string);
            sent.extend_from_slice(b"\r\n");
        }
    }
}
