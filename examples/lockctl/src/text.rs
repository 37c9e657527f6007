//! Foreign text, made safe for a single terminal line.

use ratatui::text::Line;

/// Escapes line breaks and other unprintable characters. A line break would fake a second message,
/// and other characters control the terminal or disguise a name.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match escape(c) {
            Some(escape) => line.push_str(&escape),
            None => line.push(c),
        }
    }
    line
}

/// Returns as many of the letters as fit into `columns` columns of a terminal, where some letters
/// take two.
pub(crate) fn fitting(letters: impl Iterator<Item = char>, columns: usize) -> String {
    let mut part = String::new();
    for letter in letters {
        part.push(letter);
        if Line::from(part.as_str()).width() > columns {
            part.pop();
            break;
        }
    }
    part
}

/// Escapes unprintable characters in a line of JSON. They occur only in strings, where JSON
/// has an escape for each, and serde_json escapes few of them.
pub(crate) fn printable_json(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for c in json.chars() {
        match escape(c) {
            Some(_) => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                line.push_str(&format!("\\u{unit:04x}"));
            }),
            None => line.push(c),
        }
    }
    line
}

/// Returns the escape for an unprintable character; `None` for a printable character.
fn escape(c: char) -> Option<String> {
    // Among these are quotes and backslashes, for which only Rust literals need an escape.
    if (' '..='~').contains(&c) {
        return None;
    }
    // An accent stays with the letter before it.
    let escape: String = String::from_iter(['x', c]).escape_debug().skip(1).collect();
    (!escape.chars().eq([c])).then_some(escape)
}

/// Replaces the password in each URL of a message with `***`.
pub(crate) fn without_passwords(message: &str) -> String {
    let url = |word: &str| match word.contains("://") {
        true => without_password(word),
        // Perhaps a lock name, such as `mail:me@host`.
        false => word.to_owned(),
    };
    message.split(' ').map(url).collect::<Vec<_>>().join(" ")
}

/// Replaces the password in a URL with `***`, also if the scheme was forgotten.
pub(crate) fn without_password(url: &str) -> String {
    let scheme = url.find("://").map_or("", |end| &url[..end + "://".len()]);
    // In `me:se://cret@host`, the text before `://` is no scheme.
    let scheme = if scheme.matches(':').count() > 1 { "" } else { scheme };
    let rest = &url[scheme.len()..];
    // The last `@`: a password that should have been escaped may contain others.
    let rest = match rest.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            // Help text, not a URL.
            Some(("[user[", "password]")) => return url.to_owned(),
            Some((name, _)) => format!("{name}:***@{host}"),
            None => format!("{user}@{host}"),
        },
        None => rest.to_owned(),
    };
    let (address, options) = rest.split_at(rest.find(['?', '&']).unwrap_or(rest.len()));
    // A password there follows a `?` that was forgotten.
    let address = address.split_once('=').map_or(address.to_owned(), |(name, _)| hidden(name));
    let Some(mark) = options.chars().next() else { return format!("{scheme}{address}") };
    let options: Vec<_> = options[mark.len_utf8()..].split('&').map(without_secret).collect();
    format!("{scheme}{address}{mark}{}", options.join("&"))
}

/// The options of a URL that contain no secret.
const SHOWN: [&str; 4] = ["db", "user", "protocol", "max_lease_ms"];

/// Replaces the value of an option in a URL with `***`, unless it contains no secret. Replaces an
/// option without a value, because it may be the rest of a password that contains `&`.
fn without_secret(option: &str) -> String {
    let is_plain = |value: &str| value.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
    match option.split_once('=') {
        Some((name, value)) if SHOWN.contains(&name) && is_plain(value) => option.to_owned(),
        Some((name, _)) => hidden(name),
        None => "***".to_owned(),
    }
}

fn hidden(name: &str) -> String {
    format!("{name}=***")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let cases = [
            ("redis://host/", "redis://host/"),
            ("redis://:secret@host:1/0", "redis://:***@host:1/0"),
            ("redis://me:secret@host", "redis://me:***@host"),
            ("redis://me:se@cr:et@host", "redis://me:***@host"),
            ("redis://me@host", "redis://me@host"),
            ("me:secret@host:1", "me:***@host:1"),
            (":se://cr@et@host", ":***@host"),
            ("host:1/0", "host:1/0"),
            ("redis://[user[:password]@]host", "redis://[user[:password]@]host"),
            (
                "redis+unix:///run/redis?db=1&pass=secret&x=1",
                "redis+unix:///run/redis?db=1&pass=***&x=***",
            ),
            ("redis://h/?user=app&password=secret", "redis://h/?user=app&password=***"),
            ("redis://h/?pwd=secret&auth=secret", "redis://h/?pwd=***&auth=***"),
            ("redis://h/?p%61ss=secret&db=3", "redis://h/?p%61ss=***&db=3"),
            ("redis+unix:///s?pass=se&cret", "redis+unix:///s?pass=***&***"),
            ("redis+unix:///s?pass=s@e:c@ret&protocol=3", "redis+unix:///s?pass=***&protocol=3"),
            ("redis://h/?db=1?pass=secret#secret", "redis://h/?db=***"),
            ("redis+unix:///s&pass=secret", "redis+unix:///s&pass=***"),
            ("redis+unix:///s/pass=secret", "redis+unix:///s/pass=***"),
            ("redis+unix:///run/redis?pass=secret", "redis+unix:///run/redis?pass=***"),
        ];
        for (url, shown) in cases {
            assert_eq!(without_password(url), shown);
        }
        let key = "mail:me@host: it is held";
        assert_eq!(without_passwords(key), key);
        let message = "no 'redis://:secret@host' here";
        assert_eq!(without_passwords(message), "no 'redis://:***@host' here");
    }

    #[test]
    fn what_would_steer_the_terminal_is_escaped() {
        assert_eq!(one_line("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
    }

    #[test]
    fn json_says_the_same_without_what_would_steer_the_terminal() {
        let label = "\u{9b}2J\u{7f}\n\u{202e}\u{2066}\u{e0001}\"Größe\\";
        let json = printable_json(&serde_json::to_string(label).expect("a text"));
        let expected = r#""\u009b2J\u007f\n\u202e\u2066\udb40\udc01\"Größe\\""#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<String>(&json).expect("it is JSON"), label);
    }

    // L12.
    #[test]
    fn what_would_make_a_name_read_as_another_is_escaped() {
        assert_eq!(one_line("order\u{202e}7"), "order\\u{202e}7");
        assert_eq!(one_line("order\u{200b}7\u{feff}"), "order\\u{200b}7\\u{feff}");
    }

    #[test]
    fn all_that_is_printed_stays() {
        for text in ["Größe", "e\u{301}tat", "हिन्दी", "订单", r#"C:\ 'a' "b""#] {
            assert_eq!(one_line(text), text);
        }
    }
}
