//! The form that releases a lock by force.

use std::fmt::{Debug, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use lock_dashboard::Dashboard;
use lockcore::{LockGuard, Locks, MemoryStore};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::support::{Pages, read};

fn switched_on(locks: &Locks) -> Pages {
    Pages::with(Dashboard::new(locks.clone()).hosts(["ops.example"]).allow_release(true))
}

/// Opens a lock's page, and returns the token in the form and the matching cookie.
async fn opened(pages: &Pages) -> (String, String) {
    let response = pages.get("lock?name=key", "text/html").await;
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let (_, page) = read(response).await;
    let (_, rest) = page.split_once("name=\"token\" value=\"").unwrap();
    (rest.split('"').next().unwrap().to_owned(), cookie)
}

/// Submits the release form with this token and these headers, as a program does, which has seen
/// no holders.
async fn send(pages: &Pages, token: &str, headers: &[(&str, &str)]) -> Response {
    send_body(pages, format!("name=key&token={token}"), headers).await
}

async fn send_body(pages: &Pages, body: String, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::post("/admin/locks/release")
        .header("host", "ops.example")
        .header("content-type", "application/x-www-form-urlencoded");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    pages.ask(request.body(Body::from(body)).unwrap()).await
}

/// Returns the body of the form on the page of the lock, as a browser sends it.
async fn filled_in(pages: &Pages, cookie: &str) -> String {
    let request = Request::get("/admin/locks/lock?name=key&most=1000").header("cookie", cookie);
    let (_, page) = read(pages.ask(request.body(Body::empty()).unwrap()).await).await;
    let value = |name: &str| {
        let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
        let value = rest.split('"').next().unwrap().replace("&quot;", "\"");
        value.bytes().fold(String::new(), |mut encoded, byte| {
            write!(encoded, "%{byte:02x}").unwrap();
            encoded
        })
    };
    format!("name=key&token={}&holders={}", value("token"), value("holders"))
}

// Once, a second click took the lock away from the next holder.
#[tokio::test]
async fn a_form_releases_the_holder_that_its_page_has_shown_and_no_other() {
    let locks = Locks::in_memory();
    let pages = switched_on(&locks);
    let guard = locks.lock("key").await.unwrap();
    let (_, cookie) = opened(&pages).await;
    let headers = [("cookie", &*cookie), ("accept", "application/json")];
    let form = filled_in(&pages, &cookie).await;
    let (status, text) = read(send_body(&pages, form.clone(), &headers).await).await;
    assert_eq!((status.as_u16(), &*text), (200, r#"{"released":true}"#));
    guard.lost().await;

    let guard = locks.lock("key").await.unwrap();
    let (status, text) = read(send_body(&pages, form, &headers).await).await;
    assert_eq!(status, 409);
    assert!(text.contains("holder-changed"), "{text}");
    assert!(!guard.is_lost());
    let form = filled_in(&pages, &cookie).await;
    assert_eq!(read(send_body(&pages, form, &headers).await).await.0, 200);
    guard.lost().await;
}

/// Acquires this many shared holds, with labels as long as that of a pod.
async fn readers(locks: &Locks, count: usize) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for reader in 0..count {
        let label = format!("documents-7c9f8d6b5-x2x4z:{reader:04}");
        guards.push(locks.key("key").label(label).read().await.unwrap());
    }
    guards
}

#[tokio::test]
async fn a_form_with_the_oldest_of_many_holders_releases_them_all() {
    let locks = Locks::in_memory();
    let pages = switched_on(&locks);
    let guards = readers(&locks, 400).await;
    let (_, cookie) = opened(&pages).await;
    let headers = [("cookie", &*cookie), ("accept", "application/json")];
    let form = filled_in(&pages, &cookie).await;
    let (status, text) = read(send_body(&pages, form, &headers).await).await;
    assert_eq!((status.as_u16(), &*text), (200, r#"{"released":true}"#));
    for guard in guards {
        guard.lost().await;
    }
}

// Once, ten holders or more were not compared.
#[tokio::test]
async fn a_form_with_many_holders_releases_them_while_one_is_left_and_no_other() {
    let locks = Locks::in_memory();
    let pages = switched_on(&locks);
    let (_, cookie) = opened(&pages).await;
    let headers = [("cookie", &*cookie), ("accept", "application/json")];
    for left in [1, 0] {
        let mut guards = readers(&locks, 12).await;
        let form = filled_in(&pages, &cookie).await;
        for guard in guards.drain(left..) {
            guard.release().await.unwrap();
        }
        let next = if left == 0 { Some(locks.lock("key").await.unwrap()) } else { None };
        let (status, text) = read(send_body(&pages, form, &headers).await).await;
        match next {
            None => assert_eq!(status, 200, "{text}"),
            Some(next) => {
                assert_eq!(status, 409, "{text}");
                assert!(text.contains("holder-changed") && !next.is_lost(), "{text}");
            }
        }
    }
}

// Once, an unreadable list counted as none, and anybody was released.
#[tokio::test]
async fn a_list_of_holders_that_cannot_be_read_releases_nobody_and_no_list_whoever_holds() {
    let locks = Locks::in_memory();
    let pages = switched_on(&locks);
    let guard = locks.lock("key").await.unwrap();
    let (token, cookie) = opened(&pages).await;
    let headers = [("cookie", &*cookie), ("accept", "application/json")];
    let (unreadable, changed) = ((422, "request-unreadable"), (409, "holder-changed"));
    for (holders, (expected, code)) in [
        ("", unreadable),
        ("null", unreadable),
        ("none", unreadable),
        ("%22a%22", unreadable),
        ("%7B%7D", unreadable),
        ("%5B1%5D", unreadable),
        ("%5B%22a", unreadable),
        ("%5B%5D", changed), // from the page of a free lock
    ] {
        let body = format!("name=key&token={token}&holders={holders}");
        let (status, text) = read(send_body(&pages, body, &headers).await).await;
        let problem: Value = serde_json::from_str(&text).unwrap();
        let code_of = problem["code"].as_str();
        assert_eq!((status.as_u16(), code_of), (expected, Some(code)), "{holders}");
        assert!(!guard.is_lost(), "{holders}");
    }
    assert_eq!(send(&pages, &token, &headers).await.status(), 200);
    guard.lost().await;
}

#[tokio::test]
async fn a_dashboard_releases_nothing_unless_it_is_switched_on() {
    let locks = Locks::in_memory();
    let guard = locks.lock("key").await.unwrap();
    let pages = Pages::with(Dashboard::new(locks.clone()).hosts(["ops.example"]));
    let response = pages.get("lock?name=key", "text/html").await;
    assert!(!response.headers().contains_key("set-cookie"));
    assert!(!read(response).await.1.contains("Release"));
    // A release is refused even with a valid token.
    let token = "0".repeat(32);
    let cookie = format!("lock-dashboard={token}");
    let (status, text) = read(send(&pages, &token, &[("cookie", &cookie)]).await).await;
    assert_eq!(status, 403);
    assert!(text.contains("release-off"), "{text}");
    assert!(!guard.is_lost());
}

// N2: the name with the namespace is another lock.
#[tokio::test]
async fn a_release_of_a_name_that_is_free_does_nothing_to_the_lock_that_may_be_meant() {
    let store = MemoryStore::new();
    let inside = Locks::builder().namespace("shop").on_memory(&store).unwrap();
    let guard = inside.lock("key").await.unwrap();
    let pages = switched_on(&Locks::builder().on_memory(&store).unwrap());
    let (token, cookie) = opened(&pages).await;
    let response = send(&pages, &token, &[("cookie", &cookie)]).await;
    let back = response.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(back, "lock?name=key&released=false");
    assert!(!guard.is_lost());
    let page = pages.html(&back).await;
    assert!(page.contains("Did you mean") && page.contains("shop:key"), "{page}");
}

#[tokio::test]
async fn a_form_of_this_browser_releases_the_lock_and_leads_back_to_its_page() {
    let locks = Locks::in_memory();
    let guard = locks.lock("key").await.unwrap();
    let pages = switched_on(&locks);
    let (token, cookie) = opened(&pages).await;
    let (other, _) = opened(&pages).await;
    assert_ne!(token, other, "each browser has its own");
    let headers = [("cookie", &*cookie), ("sec-fetch-site", "same-origin")];
    let response = send(&pages, &token, &headers).await;
    assert_eq!(response.status(), 303);
    let back = response.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(back, "lock?name=key&released=true");
    guard.lost().await;
    assert!(pages.html(&back).await.contains("force-released"));

    // A browser with the cookie keeps its token. A second release finds a free lock, and does
    // nothing.
    let request = Request::get("/admin/locks/lock?name=key").header("cookie", &cookie);
    let response = pages.ask(request.body(Body::empty()).unwrap()).await;
    assert!(!response.headers().contains_key("set-cookie"));
    assert!(read(response).await.1.contains(&token));
    let headers = [("cookie", &*cookie), ("accept", "application/json")];
    let (status, text) = read(send(&pages, &token, &headers).await).await;
    assert_eq!((status.as_u16(), &*text), (200, r#"{"released":false}"#));
    // The form is submitted to another dashboard, as it may be behind a load balancer.
    let elsewhere = switched_on(&locks);
    assert_eq!(send(&elsewhere, &token, &[("cookie", &cookie)]).await.status(), 303);
    let seen = pages.json("lock?name=key").await;
    assert_eq!(seen["release_token"].as_str().map(str::len), Some(32));
}

#[tokio::test]
async fn a_form_of_another_site_or_without_its_token_releases_nothing() {
    let locks = Locks::in_memory();
    let guard = locks.lock("key").await.unwrap();
    let pages = switched_on(&locks);
    let (token, cookie) = opened(&pages).await;
    let cookie = ("cookie", &*cookie);
    let other = "f".repeat(32);
    let (site, of_token) = ("request-of-another-site", "token-invalid");
    let short = ("cookie", "lock-dashboard=");
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, Headers<'_>, &str); 12] = [
        (&token, &[cookie, ("sec-fetch-site", "cross-site")], site),
        (&token, &[cookie, ("sec-fetch-site", "same-site")], site),
        (&token, &[cookie, ("sec-fetch-site", "none")], site),
        (&token, &[cookie, ("origin", "https://evil.example")], site),
        (&token, &[cookie, ("origin", "https://ops.example.evil.example")], site),
        (&token, &[cookie, ("origin", "null")], site),
        (&token, &[], of_token),
        ("", &[cookie], of_token),
        (&other, &[cookie], of_token),
        ("", &[short], of_token),
        (&token, &[("cookie", "other=1; xlock-dashboard=1")], of_token),
        ("x", &[("cookie", "lock-dashboard=x")], of_token),
    ];
    for (token, headers, code) in cases {
        let headers: Vec<_> =
            headers.iter().copied().chain([("accept", "application/json")]).collect();
        let (status, text) = read(send(&pages, token, &headers).await).await;
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status.as_u16(), problem["code"].as_str()), (403, Some(code)), "{headers:?}");
    }
    assert!(!guard.is_lost());
    let get = Request::get("/admin/locks/release?name=key").body(Body::empty()).unwrap();
    assert_eq!(pages.ask(get).await.status(), 405, "no link releases");
    let own = [cookie, ("origin", "https://ops.example")];
    assert_eq!(send(&pages, &token, &own).await.status(), 303, "that of its own does");
    guard.lost().await;
}

// D1: the site's name resolved to the dashboard's address, so its forms had "this" origin.
#[tokio::test]
async fn another_site_that_has_its_name_lead_here_reads_and_releases_nothing() {
    let locks = Locks::in_memory();
    let guard = locks.lock("key").await.unwrap();
    let pages = switched_on(&locks);
    let (token, cookie) = opened(&pages).await;
    for path in ["node", "lock?name=key", "overview", "dashboard.js", "none"] {
        for accept in ["text/html", "application/json", "text/event-stream"] {
            let request = Request::get(format!("/admin/locks/{path}"))
                .header("host", "evil.example:8080")
                .header("accept", accept)
                .header("sec-fetch-site", "same-origin");
            let response = pages.ask(request.body(Body::empty()).unwrap()).await;
            assert!(!response.headers().contains_key("set-cookie"));
            assert_eq!(response.headers()["x-content-type-options"], "nosniff");
            let (status, text) = read(response).await;
            assert_eq!(status, 421, "{text}");
            assert!(text.contains("hosts([") && text.contains("evil.example:8080"), "{text}");
            assert!(!text.contains(&token), "{text}");
        }
    }
    let form = || {
        Request::post("/admin/locks/release")
            .header("content-type", "application/x-www-form-urlencoded")
            .header("cookie", &cookie)
            .header("sec-fetch-site", "same-origin")
    };
    let body = || Body::from(format!("name=key&token={token}"));
    for request in [
        form().header("host", "evil.example"),
        form().header("host", "ops.example").header("host", "evil.example"),
        form().header("host", "ops.example@evil.example"),
        form().header("host", ""),
        // In HTTP/2 the host name is in the URI.
        form().uri("http://evil.example/admin/locks/release"),
        form().uri("http://evil.example/admin/locks/release").header("host", "ops.example"),
    ] {
        let response = pages.ask(request.body(body()).unwrap()).await;
        assert_eq!(response.status(), 421);
    }
    assert!(!guard.is_lost());
    let own = form().uri("https://ops.example:8443/admin/locks/release").body(body()).unwrap();
    assert_eq!(pages.ask(own).await.status(), 303);
    guard.lost().await;
}

#[tokio::test]
async fn addresses_and_localhost_are_served_and_by_default_no_other_name() {
    let pages = Pages::of(&Locks::in_memory());
    let status = async |host: &str| {
        let request = Request::get("/admin/locks/node").header("host", host);
        pages.ask(request.body(Body::empty()).unwrap()).await.status().as_u16()
    };
    for host in ["127.0.0.1:8080", "10.0.0.7", "[::1]:8080", "localhost", "localhost:8080"] {
        assert_eq!(status(host).await, 200, "{host}");
    }
    for host in ["locks.internal", "localhost.evil.example", "127.0.0.1.evil.example:8080"] {
        assert_eq!(status(host).await, 421, "{host}");
    }
}

// U6: HTTP/2 has no `Host` header, and a proxy may add the port a browser omits.
#[tokio::test]
async fn the_origin_is_compared_with_the_host_wherever_the_request_has_it() {
    let form = |uri: &str, host: Option<&str>, origin: &str| {
        let request = Request::post(uri)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("origin", origin);
        match host {
            Some(host) => request.header("host", host),
            None => request,
        }
    };
    let path = "/admin/locks/release";
    let https = format!("https://ops.example{path}");
    for (uri, host, origin, expected) in [
        (&*https, None, "https://ops.example", 303),
        (path, Some("ops.example:443"), "https://ops.example", 303),
        (path, Some("OPS.example"), "https://ops.example", 303),
        (path, Some("127.0.0.1:8080"), "http://127.0.0.1:8080", 303),
        (&*https, None, "https://evil.example", 403),
        (&*https, Some("ops.example:444"), "https://ops.example", 403),
        (path, Some("ops.example:8443"), "https://ops.example", 403),
        (path, Some("127.0.0.1:8080"), "http://127.0.0.1:9000", 403),
        (path, None, "https://ops.example", 403),
    ] {
        let locks = Locks::in_memory();
        let _guard = locks.lock("key").await.unwrap();
        let pages = switched_on(&locks);
        let (token, cookie) = opened(&pages).await;
        let request = form(uri, host, origin).header("cookie", cookie);
        let request = request.body(Body::from(format!("name=key&token={token}"))).unwrap();
        let status = pages.ask(request).await.status().as_u16();
        assert_eq!(status, expected, "{uri} {host:?} {origin}");
    }
}

/// A tracing subscriber that keeps the fields of the dashboard's events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("lock_dashboard")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = format!("{} ", event.metadata().level());
        event.record(&mut Line(&mut line));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Releases a lock by force twice, of which only the first finds a hold, and returns the logged
/// events.
async fn logged(locks: Locks, connects: bool) -> Vec<String> {
    // A second subscriber, which is always alive. With a single subscriber, tracing decides once,
    // on the thread that first logs an event, whether anyone listens, and that thread may have no
    // subscriber.
    static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Log::default()));
    LazyLock::force(&ANOTHER);
    let log = Log::default();
    let _here = tracing::subscriber::set_default(log.clone());
    let guard = locks.key("key").label("web-1\u{1b}").lock().await.unwrap();
    let pages = switched_on(&locks);
    let (token, cookie) = opened(&pages).await;
    for _ in 0..2 {
        let mut request = Request::post("/admin/locks/release")
            .header("content-type", "application/x-www-form-urlencoded")
            .header("cookie", &cookie)
            .body(Body::from(format!("name=key&token={token}")))
            .unwrap();
        if connects {
            let address: SocketAddr = "192.0.2.7:1234".parse().unwrap();
            request.extensions_mut().insert(ConnectInfo(address));
        }
        assert_eq!(pages.ask(request).await.status(), 303);
    }
    drop(guard);
    std::mem::take(&mut log.0.lock().unwrap())
}

#[tokio::test]
async fn a_forced_release_is_logged_with_the_holder_and_the_address_and_without_redacted_names() {
    let lines = logged(Locks::in_memory(), true).await;
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.starts_with("WARN "), "{line}");
    for part in ["lock=key ", r"holders=web-1\u{1b} ", "remote=192.0.2.7:1234 "] {
        assert!(line.contains(part), "{line}");
    }
    let lines =
        logged(Locks::builder().redact_names(true).in_memory().expect("in range"), false).await;
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.contains("lock=(redacted) ") && !line.contains("key"), "{line}");
    assert!(!line.contains("remote"), "{line}");
}
