//! The frame, style and script of each page, and the display of times and of texts written by
//! others.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use lockcore::Demand;
use maud::{DOCTYPE, Markup, html};
use serde::Serialize;

/// The content security policy of each page. The browser loads content only from the same origin,
/// and runs no inline scripts, so a label mistaken for markup could do nothing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The page that is shown. The navigation marks the link to this page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    Node,
    Overview,
    Lock,
    Refusal,
}

/// The content of a page below the title, from top to bottom. A part that is `None` is left out.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The first part, rendered once when the page is opened: a note, a refusal or the filter form.
    pub(super) notes: Option<Markup>,
    /// The second part, such as tables of locks. Each server-sent event updates it while the page
    /// is open.
    pub(super) live: Option<Markup>,
    /// The last part, rendered once when the page is opened: the release form.
    pub(super) rest: Option<Markup>,
}

/// Returns the response with a whole page: the navigation, the title and these parts.
pub(super) fn frame(page: Page, title: &str, Parts { notes, live, rest }: Parts) -> Response {
    let link = |of: Page, path: &str, text: &str| {
        html! { a href=(path) aria-current=[(of == page).then_some("page")] { (text) } }
    };
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – locks" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="dashboard.css";
                script src="dashboard.js" defer {}
            }
            body {
                header {
                    p.brand { "Locks" }
                    nav aria-label="Pages" {
                        (link(Page::Node, "node", "This process"))
                        (link(Page::Overview, "overview", "All locks"))
                    }
                    form.look action="lock" method="get" role="search" {
                        label for="name" { "Lock name" }
                        input #name name="name" maxlength="512" required autocomplete="off"
                            autocapitalize="none" spellcheck="false";
                        button type="submit" { "Show" }
                    }
                }
                main {
                    div.title {
                        h1 { (title) }
                        @if live.is_some() {
                            div {
                                p #link .pill role="status" { "Not live" }
                                button #pause type="button" hidden { "Pause" }
                            }
                        }
                    }
                    @if let Some(notes) = notes { (notes) }
                    @if let Some(live) = live {
                        noscript { p.note { "Reload the page to see the current state." } }
                        div #live { (live) }
                    }
                    @if let Some(rest) = rest { (rest) }
                }
            }
        }
    };
    (secured("text/html; charset=utf-8", "no-store"), whole.into_string()).into_response()
}

/// Returns the response with this value as JSON.
pub(super) fn json(value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_default();
    (secured("application/json", "no-store"), text).into_response()
}

/// Handles `GET /dashboard.css`: returns the style sheet.
pub(super) async fn css() -> Response {
    let text = include_str!("dashboard.css");
    (secured("text/css; charset=utf-8", "no-cache"), text).into_response()
}

/// Handles `GET /dashboard.js`: returns the script that updates open pages.
pub(super) async fn js() -> Response {
    let text = include_str!("dashboard.js");
    (secured("text/javascript; charset=utf-8", "no-cache"), text).into_response()
}

/// Returns the headers of a response with this `Content-Type` and `Cache-Control`, and the security
/// headers, such as the content security policy.
pub(super) fn secured(kind: &'static str, cached: &'static str) -> HeaderMap {
    let headers: [(HeaderName, &str); 6] = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, cached),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "same-origin"), // with a stricter policy, the form would have no origin
        (VARY, "accept"),
    ];
    headers.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
}

/// Renders a table that scrolls independently of the page, also with the keyboard. `id` is an HTML
/// id, and `heads` are the column titles.
pub(super) fn table(id: &str, title: &str, heads: &[&str], rows: Markup) -> Markup {
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (title) }
            div.scroll id={ (id) "-rows" } tabindex="0" role="region" aria-labelledby=(id) {
                table {
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody { (rows) }
                }
            }
        }
    }
}

/// Renders a link to a lock's page. `name` is the name as this process passes it to `Locks`, and
/// `lock` is the name in the store, which is shown too if it differs. Without `name`, shows `lock`
/// without a link. Without `lock`, because names are redacted, shows only "hidden".
pub(super) fn lock_link(lock: Option<&str>, name: Option<&str>) -> Markup {
    match (lock, name) {
        (None, _) => html! { span.soft { "hidden" } },
        (Some(lock), None) => text(lock),
        (Some(lock), Some(name)) => html! {
            a href=(lock_path(name, 0)) { (text(name)) }
            @if lock != name { " " span.stored { (text(lock)) } }
        },
    }
}

/// Returns the relative URL of a lock's page, which shows the queue after the first `from` waiters.
pub(super) fn lock_path(name: &str, from: u64) -> String {
    let mut path = format!("lock?name={}", encoded(name));
    if from > 0 {
        path.push_str(&format!("&from={from}"));
    }
    path
}

/// Percent-encodes a text for use as a query value.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Renders a text written by others, such as a label: control characters are visible, and cannot
/// change the direction of the text around it.
pub(super) fn text(text: &str) -> Markup {
    html! { bdi { (visible(text)) } }
}

/// Returns the label of a holder or waiter. If it has none or an empty label, returns `member`, the
/// text that stands for it in the store.
pub(super) fn label_or<'a>(label: Option<&'a str>, member: &'a str) -> &'a str {
    label.filter(|label| !label.is_empty()).unwrap_or(member)
}

/// Returns the text with control characters replaced by visible escapes.
pub(super) fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            // Invisible characters, such as marks that change the direction of the following text.
            '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}' => {
                visible.extend(character.escape_unicode());
            }
            character if character.is_control() => visible.extend(character.escape_default()),
            character => visible.push(character),
        }
    }
    visible
}

/// Returns a demand as a word for JSON and pages: `lock`, `read`, or `3/10` for three of ten
/// permits.
pub(super) fn demand(demand: Demand) -> String {
    match demand {
        Demand::EXCLUSIVE => "lock".to_owned(),
        Demand::READ => "read".to_owned(),
        permits => format!("{}/{}", permits.weight(), permits.limit()),
    }
}

/// Converts a duration to whole milliseconds, at most `u64::MAX`.
pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Formats milliseconds for people, with one or two units, such as `1 min 01 s`.
pub(super) fn age(ms: u64) -> String {
    match (ms / 1_000, ms) {
        (0, ms) => format!("{ms} ms"),
        (seconds @ 1..=59, ms) => format!("{seconds}.{} s", ms % 1_000 / 100),
        (seconds @ 60..=3_599, _) => format!("{} min {:02} s", seconds / 60, seconds % 60),
        (seconds @ 3_600..=86_399, _) => {
            format!("{} h {:02} min", seconds / 3_600, seconds % 3_600 / 60)
        }
        (seconds, _) => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Formats milliseconds as [`age`] does, and `None` as a dash.
pub(super) fn optional_age(ms: Option<u64>) -> String {
    ms.map_or_else(|| "–".to_owned(), age)
}

/// Formats the milliseconds since a holder's request, including the wait, such as `5.0 s ago`, and
/// `None` as a dash.
pub(super) fn ago(ms: Option<u64>) -> String {
    ms.map_or_else(|| "–".to_owned(), |ms| format!("{} ago", age(ms)))
}

/// Formats a number with a narrow space between groups of three digits.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut spaced = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            spaced.push('\u{202f}');
        }
        spaced.push(digit);
    }
    spaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_the_units_of_its_size() {
        for (ms, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_050, "1.0 s"),
            (59_999, "59.9 s"),
            (61_000, "1 min 01 s"),
            (3_725_000, "1 h 02 min"),
            (200_000_000, "2 d 7 h"),
        ] {
            assert_eq!(age(ms), expected);
        }
        assert_eq!(optional_age(None), "–");
    }

    #[test]
    fn a_text_of_others_is_escaped_and_stays_in_its_place() {
        let hostile = "<b>&\"'\r\n\u{202e}x\0";
        let shown = text(hostile).into_string();
        assert_eq!(shown, "<bdi>&lt;b&gt;&amp;&quot;'\\r\\n\\u{202e}x\\u{0}</bdi>");
        assert_eq!(lock_path("a b&c=d/é#?", 7), "lock?name=a%20b%26c%3Dd%2F%C3%A9%23%3F&from=7");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
    }
}
