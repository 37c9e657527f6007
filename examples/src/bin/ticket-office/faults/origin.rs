//! Protects the panel against pages of other sites: a browser sends the page's site with each POST,
//! and a foreign name that resolves to this machine is visible in `Host`.

use std::net::IpAddr;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, StatusCode};

use crate::problem::Problem;

pub(super) async fn check(request: Request, next: Next) -> Response {
    if is_ours(request.headers()) {
        return next.run(request).await;
    }
    let detail = "The request came from another site.";
    Problem::new(StatusCode::FORBIDDEN, "cross-site", detail).into_response()
}

/// Returns true if the request was sent to an address of this machine, and if the page that sent
/// it, if any, has the same origin.
fn is_ours(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let Some(host) = text(HOST) else { return false };
    is_loopback(host) && text(ORIGIN).is_none_or(|origin| origin == format!("http://{host}"))
}

fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_machine_and_clients_without_a_page_pass() {
        let is_ours = |host: &'static str, origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            super::is_ours(&headers)
        };
        assert!(is_ours("127.0.0.1:8080", None));
        assert!(is_ours("localhost:8080", Some("http://localhost:8080")));
        assert!(is_ours("[::1]:8080", Some("http://[::1]:8080")));
        assert!(!is_ours("127.0.0.1:8080", Some("http://127.0.0.1:8081")));
        assert!(!is_ours("127.0.0.1:8080", Some("https://example.org")));
        assert!(!is_ours("127.0.0.1:8080", Some("null")));
        assert!(!is_ours("example.org:8080", Some("http://example.org:8080")));
        assert!(!is_ours("127.0.0.1.example.org", None));
        assert!(!super::is_ours(&HeaderMap::new()));
    }
}
