//! A text that is composed of parts without the machinery of formats: names and members are, on
//! every acquire's way.

use std::ops::Deref;
use std::sync::Arc;

/// Room for the longest member with a label of ours, and for most names.
const ROOM: usize = 320;

/// The parts as one text. Those that are not longer than usual take one allocation.
pub(crate) fn joined(parts: &[&str]) -> Arc<str> {
    let mut room = [0; ROOM];
    let mut length = 0;
    for part in parts {
        let end = length + part.len();
        let Some(free) = room.get_mut(length..end) else { return parts.concat().into() };
        free.copy_from_slice(part.as_bytes());
        length = end;
    }
    std::str::from_utf8(&room[..length]).expect("all parts are texts").into()
}

/// A number as it is written.
pub(crate) struct Digits {
    /// The last ones are the number's.
    digits: [u8; 20],
    first: usize,
}

impl Digits {
    pub(crate) fn of(mut number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut first = digits.len();
        while number > 0 || first == digits.len() {
            first -= 1;
            digits[first] += (number % 10) as u8;
            number /= 10;
        }
        Self { digits, first }
    }
}

impl Deref for Digits {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.digits[self.first..]).expect("digits are ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_however_long_they_are() {
        for length in [0, 1, ROOM - 1, ROOM, 2 * ROOM] {
            let long = "x".repeat(length);
            assert_eq!(&*joined(&["ä", &long]), format!("ä{long}"));
        }
    }

    #[test]
    fn a_number_is_written_as_it_is_displayed() {
        for number in [0, 7, 10, 30_000, u64::MAX] {
            assert_eq!(*Digits::of(number), *number.to_string());
        }
    }
}
