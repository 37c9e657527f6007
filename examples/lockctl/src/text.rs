//! Foreign text, made safe for a single terminal line.

/// Escapes line breaks and other unprintable characters. A line break would fake a second message,
/// and other characters control the terminal or disguise a name.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Only Rust literals need an escape for these.
            '"' | '\'' | '\\' => line.push(c),
            // An accent stays with the letter before it.
            _ => line.extend(String::from_iter(['x', c]).escape_debug().skip(1)),
        }
    }
    line
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
    let mut parts = rest.split('&');
    let mut shown = format!("{scheme}{}", parts.next().map(without_value).unwrap_or_default());
    for part in parts {
        shown.push('&');
        shown.push_str(&without_value(part));
    }
    shown
}

/// Replaces the password in a query parameter with `***`. URLs of Unix sockets have the password
/// there: `redis+unix:///path?pass=secret`.
fn without_value(parameter: &str) -> String {
    match parameter.find("pass=") {
        Some(at) => format!("{}***", &parameter[..at + "pass=".len()]),
        None => parameter.to_owned(),
    }
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
                "redis+unix:///run/redis?db=1&pass=***&x=1",
            ),
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
