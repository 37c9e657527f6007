//! Recognises by content whether a key belongs to a lock or to another program. The scripts apply
//! these rules to a lock's keys, and refuse every command if a rule fails.

use proto::{Member, PLAIN_MARKER};

/// Maximum number of digits of a hold count, which says how often a thread holds the lock. A longer
/// number is not taken for a hold count.
pub(crate) const MAX_COUNT_DIGITS: usize = 15;

/// Returns true if `text` identifies a holder or waiter: a member of lockcore, or a JVM thread,
/// which is a UUID and a thread id such as `5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41`.
pub fn is_member(text: &str) -> bool {
    Member::parse(text).is_some_and(|member| member.as_str().starts_with(PLAIN_MARKER))
        || is_jvm(text)
}

/// Returns true if the hash with these `fields`, stored at a lock's name, is a hold: a single
/// field, whose name is the holder and whose value is the hold count. Otherwise the hash belongs to
/// another program.
pub fn is_hold(fields: &[(String, String)]) -> bool {
    let [(member, count)] = fields else { return false };
    is_member(member) && count.len() <= MAX_COUNT_DIGITS && is_number(count)
}

/// Returns true if the string at a lock's token key is a fencing token, issued by lockcore or by
/// Redisson's `RFencedLock`: it consists of digits.
pub fn is_token(text: &str) -> bool {
    is_number(text)
}

fn is_jvm(text: &str) -> bool {
    let Some((uuid, thread)) = text.rsplit_once(':') else { return false };
    let is_in_place = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    // Applications may choose any integer as a thread id.
    let is_integer = is_number(thread.strip_prefix('-').unwrap_or(thread));
    uuid.len() == 36 && uuid.bytes().enumerate().all(is_in_place) && is_integer
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "~1AAAAAAAAAAAAAAAAAAAAAA:1:30000:x";
    const JVM: &str = "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41";

    fn hash(fields: &[(&str, &str)]) -> Vec<(String, String)> {
        fields.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_hold_is_one_member_with_a_count() {
        assert!(is_hold(&hash(&[(OURS, "1")])));
        assert!(is_hold(&hash(&[(JVM, "123456789012345")])));
    }

    #[test]
    fn a_hash_of_an_application_is_no_hold() {
        let foreign: [&[(&str, &str)]; 10] = [
            &[],
            &[("name", "Ada")],
            &[("", "1")],
            &[("mode", "write"), (JVM, "1")],
            &[(OURS, "1"), (JVM, "1")],
            &[(JVM, "")],
            &[(JVM, "-1")],
            &[(JVM, "1234567890123456")],
            &[("5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a", "1")],
            &[("~1short:1:30000:x", "1")],
        ];
        for fields in foreign {
            assert!(!is_hold(&hash(fields)), "{fields:?}");
        }
    }

    #[test]
    fn a_member_of_a_jvm_is_a_uuid_and_a_thread() {
        let uuid = "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a";
        for text in ["another:1", "5c2e4d1a:1", ":1", ""] {
            assert!(!is_member(text), "{text:?}");
        }
        for thread in ["", "-", "--1", "1-", "+1"] {
            assert!(!is_member(&format!("{uuid}:{thread}")), "{thread:?}");
        }
        assert!(is_member(JVM) && is_member(OURS));
        assert!(is_member(&format!("{uuid}:-9223372036854775808")));
    }

    #[test]
    fn a_token_is_digits() {
        for text in ["", "no number", "-1", "1.5", "0x10", " 1"] {
            assert!(!is_token(text), "{text:?}");
        }
        assert!(is_token("0") && is_token("1795242275666200"));
    }
}
