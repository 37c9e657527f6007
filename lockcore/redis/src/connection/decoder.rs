//! Decodes server replies (RESP2) as their bytes arrive.
//!
//! # Implementation notes
//!
//! - Each byte is decoded once, however a reply is split: only an incomplete line or string at the
//!   end is scanned again. Other available codecs restart a list at each read, or limit neither
//!   depth nor size; the redis-rs codec is private.
//! - Limits apply before a reply is complete: an announced length above a limit is refused at once.

use redis::{ErrorKind, RedisError, Value};

/// Maximum reply size in bytes, including [`PART`] for each list entry. A larger reply ends the
/// connection with an error.
const MAX_ANSWER: usize = 64 << 20;
/// Bytes added to the size of a reply for each list entry, as an estimate of the memory for the
/// entry. Otherwise a list of many short entries could take much more memory than [`MAX_ANSWER`].
const PART: usize = 64;
/// Maximum number of lists within each other in a reply. Deeper nesting ends the connection with an
/// error.
const MAX_DEPTH: usize = 32;
/// Maximum length in bytes of an incomplete line: a number, a status, an error, or a header. A
/// longer line ends the connection with an error.
const MAX_LINE: usize = 16 << 10;
/// Maximum number of digits of a number that is parsed without overflow checks, because 18 digits
/// always fit into an `i64`. Longer numbers are parsed with checks.
const MAX_DIGITS: usize = 18;
/// The server's reply to each command of a transaction before EXEC.
const QUEUED: &[u8] = b"+QUEUED\r\n";

/// A decoder for server replies that arrive in pieces. Between two reads, it keeps the decoded
/// entries of an incomplete reply.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The lists that are not complete yet, the outermost first. Each is an entry of the list
    /// before it.
    open: Vec<OpenList>,
    /// Size of the incomplete reply so far, in bytes, with [`PART`] for each list entry.
    size: usize,
}

/// A list of which some entries have not arrived.
#[derive(Debug)]
struct OpenList {
    length: usize,
    parts: Vec<Value>,
}

/// The smallest unit that is decoded at once: a value, or the header of a list.
enum Part {
    /// A value other than a list, such as a number or a string; or nil.
    Whole(Value),
    /// The header of a list with this number of entries.
    List(usize),
}

impl Decoder {
    /// Decodes the reply at the front of `bytes`, and advances `bytes` past it. `None` if the reply
    /// is incomplete: call again with the remaining bytes, followed by more bytes.
    ///
    /// # Errors
    /// The bytes are not a reply, or exceed a limit. Later bytes cannot be decoded either.
    pub(crate) fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Value>, RedisError> {
        // Four of five replies to a transaction are this text. It is discarded, so it is not worth
        // an allocation.
        if self.open.is_empty() && bytes.starts_with(QUEUED) {
            *bytes = &bytes[QUEUED.len()..];
            return Ok(Some(Value::Nil));
        }
        loop {
            let Some((part, taken)) = part(bytes, MAX_ANSWER - self.size)? else {
                return Ok(None);
            };
            *bytes = &bytes[taken..];
            self.grow(taken)?;
            let mut value = match part {
                Part::Whole(value) => value,
                Part::List(0) => Value::Array(Vec::new()),
                Part::List(length) => {
                    if self.open.len() == MAX_DEPTH || length > (MAX_ANSWER - self.size) / PART {
                        return Err(malformed("lists nested too deep or too long"));
                    }
                    // Most lists are short. An announced length alone must not reserve memory.
                    let parts = Vec::with_capacity(length.min(8));
                    self.open.push(OpenList { length, parts });
                    continue;
                }
            };
            // Append to the innermost list, and to the list around it when complete.
            loop {
                let Some(mut list) = self.open.pop() else {
                    self.size = 0;
                    return Ok(Some(value));
                };
                self.grow(PART)?;
                list.parts.push(value);
                if list.parts.len() < list.length {
                    self.open.push(list);
                    break;
                }
                value = Value::Array(list.parts);
            }
        }
    }

    fn grow(&mut self, by: usize) -> Result<(), RedisError> {
        self.size += by;
        if self.size > MAX_ANSWER { Err(malformed("an oversized reply")) } else { Ok(()) }
    }
}

/// Decodes the value or list header at the front of `bytes`, and returns it with the number of
/// bytes decoded. `None` if it is incomplete. Fails if it is malformed, or is a string of more than
/// `room` bytes.
fn part(bytes: &[u8], room: usize) -> Result<Option<(Part, usize)>, RedisError> {
    let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
    let Some(length) = line(rest)? else { return Ok(None) };
    let text = &rest[..length];
    let taken = 1 + length + 2;
    let value = match kind {
        b':' => Value::Int(number(text)?),
        b'+' if text == b"OK" => Value::Okay,
        b'+' => Value::SimpleString(utf8(text)?.to_owned()),
        // Errors are rare, and redis-rs knows their names.
        b'-' => redis::parse_redis_value(&bytes[..taken])?,
        b'$' | b'*' => match (kind, usize::try_from(number(text)?)) {
            (_, Err(_)) if text == b"-1" => Value::Nil,
            (_, Err(_)) => return Err(malformed("a negative length")),
            (b'*', Ok(length)) => return Ok(Some((Part::List(length), taken))),
            (_, Ok(length)) => {
                if length > room {
                    return Err(malformed("an oversized reply"));
                }
                return string(bytes, taken, length);
            }
        },
        _ => return Err(malformed("a reply of an unknown type")),
    };
    Ok(Some((Part::Whole(value), taken)))
}

fn string(bytes: &[u8], from: usize, length: usize) -> Result<Option<(Part, usize)>, RedisError> {
    let end = from + length;
    match bytes.get(end..end + 2) {
        Some(b"\r\n") => {
            Ok(Some((Part::Whole(Value::BulkString(bytes[from..end].to_vec())), end + 2)))
        }
        Some(_) => Err(malformed("a string longer than announced")),
        None => Ok(None),
    }
}

/// Returns the length of the first line in bytes, without the line end; `None` if the line is
/// incomplete. Fails if an incomplete line is longer than [`MAX_LINE`].
fn line(bytes: &[u8]) -> Result<Option<usize>, RedisError> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == b'\r') {
        match bytes.get(from + at + 1) {
            Some(b'\n') => return Ok(Some(from + at)),
            Some(_) => from += at + 1,
            None => break,
        }
    }
    if bytes.len() > MAX_LINE { Err(malformed("an oversized line")) } else { Ok(None) }
}

fn number(text: &[u8]) -> Result<i64, RedisError> {
    if (1..=MAX_DIGITS).contains(&text.len()) && text.iter().all(u8::is_ascii_digit) {
        return Ok(text.iter().fold(0, |number, digit| 10 * number + i64::from(digit - b'0')));
    }
    utf8(text)?.parse().map_err(|_| malformed("an invalid number"))
}

fn utf8(text: &[u8]) -> Result<&str, RedisError> {
    std::str::from_utf8(text).map_err(|_| malformed("text that is not UTF-8"))
}

fn malformed(sent: &'static str) -> RedisError {
    let detail = format!("the server sent {sent}");
    RedisError::from((ErrorKind::Parse, "not the Redis protocol", detail))
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    /// Returns the decoded replies if the bytes arrive in these pieces, and the number of bytes
    /// left over.
    fn decoded<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(Vec<Value>, usize), RedisError> {
        let (mut decoder, mut answers, mut kept) = (Decoder::default(), Vec::new(), Vec::new());
        for piece in pieces {
            kept.extend_from_slice(piece);
            let mut left = &*kept;
            while let Some(answer) = decoder.next(&mut left)? {
                answers.push(answer);
            }
            kept = left.to_vec();
        }
        Ok((answers, kept.len()))
    }

    const ANSWERS: [&[u8]; 14] = [
        b"+OK\r\n",
        b"+OKAY\r\n",
        b"+a status\r\n",
        b"-ERR no\rsuch thing\r\n",
        b"-NOSCRIPT No matching script.\r\n",
        b":-7\r\n",
        b":9223372036854775807\r\n",
        b"$0\r\n\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"$6\r\n\xff\r\n$1\r\r\n",
        b"*3\r\n:1\r\n-OOM inside\r\n*2\r\n$1\r\na\r\n*0\r\n",
        b"*1\r\n*1\r\n*2\r\n$-1\r\n*-1\r\n",
    ];

    #[test]
    fn an_answer_is_that_of_redis_rs_wherever_it_is_cut() {
        for answer in ANSWERS {
            let expected = parse_redis_value(answer).expect("a whole answer");
            for first in 0..=answer.len() {
                for second in first..=answer.len() {
                    let pieces = [&answer[..first], &answer[first..second], &answer[second..]];
                    let actual = decoded(pieces).expect("a whole answer");
                    assert_eq!(actual, (vec![expected.clone()], 0), "{answer:?}");
                }
            }
        }
    }

    #[test]
    fn answers_that_come_together_are_told_apart() {
        let all = ANSWERS.concat();
        let expected: Vec<_> =
            ANSWERS.iter().map(|answer| parse_redis_value(answer).expect("whole")).collect();
        assert_eq!(decoded([&*all]).expect("whole"), (expected.clone(), 0));
        let bytewise = all.chunks(1);
        assert_eq!(decoded(bytewise).expect("whole"), (expected, 0));
    }

    #[test]
    fn bytes_that_are_no_answer_are_refused() {
        let refused: [&[u8]; 9] = [
            b"HTTP/1.1 400\r\n",
            b"\x15\x03\x01\r\n",
            b">2\r\n",
            b":seven\r\n",
            b"+\xff\r\n",
            b"$-2\r\n",
            b"*-3\r\n",
            b"$2\r\nabc\r\n",
            b"*1\r\n_\r\n",
        ];
        for bytes in refused {
            let error = decoded([bytes]).expect_err("no answer");
            assert_eq!(error.kind(), ErrorKind::Parse, "{bytes:?}");
        }
    }

    #[test]
    fn an_answer_without_end_is_refused_before_it_is_kept() {
        let too_long = format!("${}\r\n", MAX_ANSWER + 1);
        let too_many = format!("*{}\r\n", MAX_ANSWER / PART + 1);
        let line = format!("-{}", "x".repeat(MAX_LINE + 1));
        let deep = "*1\r\n".repeat(MAX_DEPTH + 1);
        let strings =
            format!("*3\r\n${0}\r\n{1}\r\n${0}\r\n", MAX_ANSWER / 2, "x".repeat(MAX_ANSWER / 2));
        for bytes in [too_long, too_many, line, deep, strings] {
            let error = decoded([bytes.as_bytes()]).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Parse, "{:.40}", bytes);
        }
        let deep = "*1\r\n".repeat(MAX_DEPTH) + ":1\r\n";
        assert_eq!(decoded([deep.as_bytes()]).expect("not too deep").0.len(), 1);
    }

    #[test]
    fn each_answer_is_bounded_by_itself() {
        let half = format!("${}\r\n{}\r\n", MAX_ANSWER / 2, "x".repeat(MAX_ANSWER / 2));
        let several = [half.as_bytes(), half.as_bytes(), half.as_bytes()];
        assert_eq!(decoded(several).expect("bounded").0.len(), 3);
    }
}
