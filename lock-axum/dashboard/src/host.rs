//! The host names under which the dashboard is served, and the check of a request's host and
//! origin.
//!
//! # Implementation notes
//!
//! An attacker can make a foreign site's name resolve to the dashboard's address (DNS rebinding).
//! An operator's browser then treats the dashboard as part of that site, which can read the pages
//! and the form token. Only the host name in the request gives the attack away. Nobody else can own
//! an IP address or `localhost`.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri};

use super::Board;
use super::form::Form;
use super::refusal::Refusal;

/// A host name under which the dashboard is served. If it has a port, a request must have the same
/// port.
#[derive(Debug, Clone)]
pub(super) struct Host(Authority);

impl Host {
    /// Parses a host name of the dashboard, with an optional port.
    ///
    /// # Panics
    /// Panics if the text is not a host name with an optional port.
    #[track_caller]
    pub(super) fn new(text: &str) -> Self {
        let host = text.parse().ok().filter(is_plain);
        Self(host.unwrap_or_else(|| {
            panic!(
                "{text:?} is not a host: write a name, or a name and a port, as in \
                \"locks.internal:9000\""
            )
        }))
    }

    /// Returns true if `asked`, the host of a request, is this host.
    fn is(&self, asked: &Authority) -> bool {
        let Self(own) = self;
        let has_its_port = own.port().is_none() || own.port_u16() == asked.port_u16();
        name(own).eq_ignore_ascii_case(name(asked)) && has_its_port
    }
}

/// Returns true if the authority is a host with an optional port, and nothing else.
fn is_plain(authority: &Authority) -> bool {
    let has_port = authority.port().is_some() && authority.port_u16().is_some();
    !authority.host().is_empty()
        && !authority.as_str().contains('@')
        && (has_port || authority.port().is_none() && !authority.as_str().ends_with(':'))
}

/// Returns the host without the port and without a trailing dot.
fn name(authority: &Authority) -> &str {
    let host = authority.host();
    host.strip_suffix('.').unwrap_or(host)
}

/// Returns true if no other site can have this name, because it is `localhost` or an IP address.
fn is_nobody_else_s(asked: &Authority) -> bool {
    let name = name(asked);
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok()
        || inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
}

/// Returns the host names in a request: the HTTP/2 authority in the URI, and the HTTP/1 `Host`
/// header. A request may have both, or neither if a program sent it.
fn named<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> impl Iterator<Item = &'a [u8]> {
    let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
    authority.into_iter().chain(headers.get_all(HOST).iter().map(|host| host.as_bytes()))
}

/// Parses a host with an optional port. Returns `None` if the text is anything else.
fn read(text: &[u8]) -> Option<Authority> {
    Authority::try_from(text).ok().filter(is_plain)
}

/// A middleware that refuses a request (421) if its host name may belong to another site.
pub(super) async fn check(
    State(board): State<Arc<Board>>,
    form: Form,
    request: Request,
    next: Next,
) -> Response {
    let is_known = |asked: &Authority| {
        is_nobody_else_s(asked) || board.hosts.iter().any(|host| host.is(asked))
    };
    let mut named = named(request.uri(), request.headers());
    let Some(stranger) = named.find(|text| !read(text).as_ref().is_some_and(is_known)) else {
        drop(named);
        return next.run(request).await;
    };
    let stranger = String::from_utf8_lossy(stranger);
    let sentence = format!(
        "The host of the request is unknown to this dashboard: another site may have made its name \
         resolve to this address. If this is a name of the dashboard, add it: \
         Dashboard::new(locks).hosts([\"{}\"])",
        stranger.escape_debug()
    );
    Refusal::new(StatusCode::MISDIRECTED_REQUEST, "host-unknown", sentence).into_response(form)
}

/// Returns true if the browser reports that the request comes from a page of the dashboard's own
/// origin. Also returns true if the request has neither a `Sec-Fetch-Site` nor an `Origin` header,
/// because programs send neither. For such a request, only the token in the form is checked.
pub(super) fn is_from_here(uri: &Uri, headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site == "same-origin";
    }
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    let Some(origin) = origin.as_ref() else { return false };
    let (Some(authority), Some(scheme)) = (origin.authority(), origin.scheme_str()) else {
        return false;
    };
    // Browsers omit a scheme's default port, and a proxy may add it.
    let port = |authority: &Authority| {
        authority.port_u16().or(match scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        })
    };
    let mut named = named(uri, headers).peekable();
    named.peek().is_some()
        && named.all(|text| {
            read(text).is_some_and(|asked| {
                name(&asked).eq_ignore_ascii_case(name(authority))
                    && port(&asked) == port(authority)
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(own: &str, asked: &str) -> bool {
        read(asked.as_bytes()).is_some_and(|asked| Host::new(own).is(&asked))
    }

    #[test]
    fn a_name_is_that_of_the_dashboard_in_any_case_and_a_port_only_where_it_is_given() {
        assert!(is("locks.internal", "Locks.Internal"));
        assert!(is("locks.internal", "locks.internal.:9000"));
        assert!(is("locks.internal:9000", "locks.internal:9000"));
        for asked in ["locks.internal", "locks.internal:9001", "evil.example:9000"] {
            assert!(!is("locks.internal:9000", asked), "{asked}");
        }
        for asked in ["locks.internal.evil.example", "evil@locks.internal", "locks.internal:", ""] {
            assert!(!is("locks.internal", asked), "{asked}");
        }
    }

    #[test]
    fn an_address_and_localhost_are_nobody_else_s_and_what_resembles_them_may_be() {
        let is = |asked: &str| read(asked.as_bytes()).as_ref().is_some_and(is_nobody_else_s);
        for asked in ["127.0.0.1", "10.0.0.7:9000", "[::1]", "[fe80::1]:80", "LOCALHOST:8080"] {
            assert!(is(asked), "{asked}");
        }
        for asked in ["127.0.0.1.evil.example", "localhost.evil.example", "1", "x@127.0.0.1", "[a]"]
        {
            assert!(!is(asked), "{asked}");
        }
    }

    #[test]
    #[should_panic(expected = "is not a host")]
    fn a_url_is_no_host() {
        Host::new("https://locks.internal/");
    }
}
