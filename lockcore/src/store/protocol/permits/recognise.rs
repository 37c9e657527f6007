//! What is a resource's and what is another program's, by its content. The scripts apply these
//! rules to what stands at a resource's names; sorted sets are ours if their lowest member is a
//! [`Member`](super::Member).

/// Whether a hash at the state's name is a state: it says when it ends, and nothing that it says is
/// nonsense.
pub fn is_state(fields: &[(String, String)]) -> bool {
    let value = |name| fields.iter().find(|(field, _)| field == name).map(|(_, value)| &**value);
    value("ends").is_some_and(is_number)
        && value("used").is_none_or(is_number)
        && value("token").is_none_or(is_number)
        && value("era").is_none_or(|era| matches!(era, "x" | "s"))
}

/// Whether a string at a tombstone's name is one.
pub fn is_tombstone(text: &str) -> bool {
    text == "1"
}

/// At most as long as numbers are exact in Lua.
fn is_number(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(fields: &[(&str, &str)]) -> bool {
        let owned = |(field, value): &(&str, &str)| ((*field).to_owned(), (*value).to_owned());
        is_state(&fields.iter().map(owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_state_says_when_it_ends_and_may_have_lost_the_rest() {
        assert!(state(&[("used", "3"), ("token", "17"), ("era", "s"), ("ends", "90000")]));
        assert!(state(&[("ends", "90000"), ("a member", "1")]));
    }

    #[test]
    fn a_tombstone_is_the_string_1() {
        assert!(is_tombstone("1"));
        assert!(!is_tombstone("") && !is_tombstone("2"));
    }

    #[test]
    fn a_hash_of_an_application_is_no_state() {
        assert!(!state(&[("name", "Ada")]));
        assert!(!state(&[("used", "3"), ("token", "17"), ("era", "s")]));
        assert!(!state(&[("ends", "tomorrow")]));
        assert!(!state(&[("ends", "")]));
        for (field, nonsense) in [("used", "-1"), ("token", "1e3"), ("era", "n"), ("used", "")] {
            assert!(!state(&[("ends", "90000"), (field, nonsense)]), "{field} {nonsense}");
        }
        assert!(!state(&[("ends", "90000"), ("token", "12345678901234567")]));
    }
}
