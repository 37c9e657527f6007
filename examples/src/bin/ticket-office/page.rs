//! The page: four files built into the program, so there is nothing to build and nothing to
//! install.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

use crate::office::Office;

/// The content security policy of the page. The page loads only from the same origin and has
/// nothing inline, so a name mistaken for markup could do nothing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The line of the page with the link to the lock pages, removed if they are not served.
const LOCKS: &str = "  <p><a href=\"/locks\">All locks with holders and queues</a></p>\n";

/// `GET /`: returns the HTML of the page.
pub(crate) async fn html(State(office): State<Office>) -> Response {
    let html = include_str!("page.html");
    match office.shows_locks {
        true => file("text/html; charset=utf-8", html),
        false => file("text/html; charset=utf-8", html.replace(LOCKS, "")),
    }
}

pub(crate) async fn css() -> Response {
    file("text/css; charset=utf-8", include_str!("page.css"))
}

pub(crate) async fn js() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page.js"))
}

pub(crate) async fn faults_js() -> Response {
    file("text/javascript; charset=utf-8", include_str!("faults.js"))
}

fn file(kind: &'static str, text: impl IntoResponse) -> Response {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-cache"), // a new version of the program has a new page
    ];
    (headers, text).into_response()
}
