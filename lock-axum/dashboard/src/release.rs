//! The form that releases a lock by force, and its protection against submission by other sites.
//!
//! # Implementation notes
//!
//! - The token is in the form and in a cookie that other sites cannot set or read. This process
//!   does not store it, because behind a load balancer another process may receive the form.
//! - The form has the holders that the page showed. Otherwise a page that was opened long ago, or a
//!   second click, would release the next holder, who does nothing wrong. Of many holders it has
//!   only the oldest, which are the stuck ones, so that the form's size has a limit.
//! - Current browsers report a request's origin, which would be enough. The token protects users of
//!   other browsers.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use super::accept::Fields;
use super::form::Form;
use super::host::is_from_here;
use super::page::{self, label_or, lock_path};
use super::refusal::Refusal;
use super::{Board, MOST_SHOWN};

/// The maximum number of holders in a form.
pub(super) const MOST_SENT: usize = 64;
/// The maximum number of holders that are logged.
const MOST_LOGGED: usize = 10;
/// The name of the cookie with the token of the release form.
const NAME: &str = "lock-dashboard";
/// The length of the token in the release form, in hexadecimal digits: 128 random bits.
const DIGITS: usize = 32;

/// A random value in the release form and in a cookie. A release is accepted only if both are
/// equal, because another site can neither read the form nor set the cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    text: String,
    /// True if the browser has sent the token in the cookie. Otherwise the response sets the
    /// cookie.
    is_known: bool,
}

impl Token {
    /// Returns the token in the browser's cookie, or a new token.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self::read(headers).unwrap_or_else(|| {
            let mut text = String::with_capacity(DIGITS);
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{:032x}", rand::random::<u128>());
            Self { text, is_known: false }
        })
    }

    /// Returns the token in the browser's cookie; `None` without a valid cookie.
    fn read(headers: &HeaderMap) -> Option<Self> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|value| value.split(';')).map(str::trim);
        let text = pairs.find_map(|pair| pair.strip_prefix(NAME)?.strip_prefix('='))?;
        let is_token = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_token.then(|| Self { text: text.to_owned(), is_known: true })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

/// Adds a cookie with `token` to the response, unless the browser has sent this token. Adds none if
/// `token` is `None`, because releases are switched off.
pub(super) fn with_cookie(mut response: Response, token: Option<Token>) -> Response {
    if let Some(Token { text, is_known: false }) = token
        && let Ok(cookie) =
            HeaderValue::try_from(format!("{NAME}={text}; HttpOnly; SameSite=Strict"))
    {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

/// Renders the form that releases the lock with this name. The form has to be unfolded first, so
/// that one click cannot release the lock. This works without JavaScript. `holders` are the texts
/// of at most [`MOST_SENT`] shown holders.
pub(super) fn form(name: &str, token: &Token, holders: &[&str]) -> Markup {
    let holders = json!(holders).to_string();
    html! {
        details.release {
            summary { "Force-release" }
            p {
                "The holders lose the lock, and the next waiters acquire it. "
                strong { "Their work is not stopped" }
                ": only a resource that checks fencing tokens refuses their writes."
            }
            form action="release" method="post" {
                input type="hidden" name="name" value=(name);
                input type="hidden" name="token" value=(token.as_str());
                input type="hidden" name="holders" value=(holders);
                button type="submit" { "Release all holds now" }
            }
        }
    }
}

/// The fields in a submitted release form: the name of the lock, and the form's token.
#[derive(Debug, Deserialize)]
pub(super) struct Release {
    name: String,
    token: String,
    /// The texts of holders that the user saw, as a JSON list. `None` from a program that releases
    /// whoever holds.
    holders: Option<String>,
}

/// Handles `POST /release`: releases all holds on a lock by force.
pub(super) async fn release(
    form: Form,
    State(board): State<Arc<Board>>,
    remote: Option<Extension<ConnectInfo<SocketAddr>>>,
    uri: Uri,
    headers: HeaderMap,
    Fields(Release { name, token, holders }): Fields<Release>,
) -> Response {
    if let Err(refusal) = check(&board, (&uri, &headers), &token) {
        return refusal.into_response(form);
    }
    let remote = remote.map(|Extension(ConnectInfo(address))| address);
    // An unreadable list does not count as none, which would release whoever holds.
    let seen = match holders.map(|holders| serde_json::from_str(&holders)).transpose() {
        Ok(seen) => seen,
        Err(_) => {
            let sentence = "The field `holders` is not a JSON list of strings, so nothing was \
                released: send the `member` texts of the lock's JSON, or omit the field to \
                release whoever holds.";
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            return Refusal::new(status, "request-unreadable", sentence).into_response(form);
        }
    };
    match release_all(&board, &name, seen, remote).await {
        Err(refusal) => refusal.into_response(form),
        Ok(released) if form == Form::Json => page::json(&json!({ "released": released })),
        Ok(released) => {
            let back = format!("{}&released={released}", lock_path(&name, 0));
            (StatusCode::SEE_OTHER, [(LOCATION, back)]).into_response()
        }
    }
}

/// Releases all holds on a lock, and logs the release. Returns whether there was any hold. Refuses
/// if none of the holders `seen` by the user holds any more, but another. `remote` is the browser's
/// address, if known.
async fn release_all(
    board: &Board,
    name: &str,
    seen: Option<Vec<String>>,
    remote: Option<SocketAddr>,
) -> Result<bool, Refusal> {
    // The holders are read before the release, which deletes them from the server.
    let holders = board.locks.inspect_part(name, 0, MOST_SHOWN).await;
    let holders = holders.map_err(Refusal::of_lock)?.holders;
    // If there are more holders, the holders that the user saw may be among the others.
    let is_whole = holders.len() < MOST_SHOWN as usize;
    let is_other = |seen: Vec<String>| !holders.iter().any(|holder| seen.contains(&holder.member));
    if is_whole && !holders.is_empty() && seen.is_some_and(is_other) {
        let sentence = "The holders have changed since the page was opened, so nothing was \
            released: open the lock's page again.";
        return Err(Refusal::new(StatusCode::CONFLICT, "holder-changed", sentence));
    }
    let released = board.locks.force_release(name).await.map_err(Refusal::of_lock)?;
    if released {
        let lock = if board.locks.redacts_names() { "(redacted)" } else { name };
        let shown = holders.iter().take(MOST_LOGGED);
        let names = shown.map(|holder| label_or(holder.label.as_deref(), &holder.member));
        let holders = names.collect::<Vec<_>>().join(" ");
        // Escaped, because both may contain characters that forge log lines.
        let (lock, holders) = (lock.escape_debug(), holders.escape_debug());
        let remote = remote.map(tracing::field::display);
        tracing::warn!(%lock, %holders, remote, "an operator force-released the lock");
    }
    Ok(released)
}

/// Checks whether a release is allowed. Returns a refusal if releases are switched off, if the
/// request comes from another site, or if `token` differs from the token in the browser's cookie.
fn check(board: &Board, (uri, headers): (&Uri, &HeaderMap), token: &str) -> Result<(), Refusal> {
    let refused = |code, sentence: &str| Err(Refusal::new(StatusCode::FORBIDDEN, code, sentence));
    if !board.allows_release {
        return refused("release-off", "This dashboard is read-only: releases are switched off.");
    }
    if !is_from_here(uri, headers) {
        return refused("request-of-another-site", "The request came from another site.");
    }
    if Token::read(headers).is_none_or(|known| known.text != token) {
        let sentence = "The form does not belong to this browser: open the lock's page again.";
        return refused("token-invalid", sentence);
    }
    Ok(())
}
