//! Joins texts without the formatting machinery of `std::fmt`, because names and members are
//! composed for every acquire.

use std::sync::Arc;

/// The size in bytes of the stack buffer that [`joined`] uses: enough for the longest member with a
/// label, and for most names.
const ROOM: usize = 320;

/// Joins the parts into a single text. A text of at most [`ROOM`] bytes costs one allocation, a
/// longer text two.
pub(crate) fn joined(parts: &[&str]) -> Arc<str> {
    let mut room = [0; ROOM];
    let mut length = 0;
    for part in parts {
        let end = length + part.len();
        let Some(free) = room.get_mut(length..end) else { return parts.concat().into() };
        free.copy_from_slice(part.as_bytes());
        length = end;
    }
    std::str::from_utf8(&room[..length]).expect("all parts are UTF-8").into()
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
}
