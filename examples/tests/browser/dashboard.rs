//! The dashboard of `lock_dashboard` in a real Chromium, with the mouse, and with the keyboard
//! alone.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use fantoccini::key::Key;
use lock_dashboard::Dashboard;
use lock_tests::eventually;
use lockcore::{LockError, LockGuard, Locks, MemoryStore};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::driver::Driver;
use crate::SMALL;
use crate::office::SOON;

const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// A service with the dashboard at `/admin/locks`.
struct Service {
    here: Locks,
    there: Locks,
    address: SocketAddr,
    /// A separate runtime for the server: dropping it closes all connections.
    runtime: Option<Runtime>,
}

impl Service {
    async fn start() -> Self {
        let store = MemoryStore::new();
        let node = || Locks::builder().namespace("shop").max_waiting(20_000).on_memory(&store);
        let (here, there) = (node().expect("options"), node().expect("options"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        let mut service = Self { here, there, address, runtime: None };
        service.serve();
        service
    }

    fn serve(&mut self) {
        let dashboard = Dashboard::new(self.here.clone()).allow_release(true).into_router();
        let app: Router = Router::new().nest_service("/admin/locks", dashboard);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let address = self.address;
        runtime.spawn(async move {
            let listener = TcpListener::bind(address).await.expect("its port");
            axum::serve(listener, app).await.expect("serves");
        });
        self.runtime = Some(runtime);
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/admin/locks{path}", self.address)
    }

    /// Creates held and awaited locks, here and in another process.
    async fn busy(&self) -> Vec<LockGuard> {
        let mut guards = Vec::new();
        for (key, label, class) in [
            ("order:42", "web-1:8080", "pay"),
            ("wallet:7", HOSTILE, "wallet"),
            ("a-lock-with-a-rather-long-name-that-has-no-place-to-break-in-it", "job", "nightly"),
        ] {
            guards.push(self.here.key(key).label(label).class(class).lock().await.expect("free"));
        }
        for number in 0..8 {
            let label = format!("reader {number}");
            guards.push(self.there.key("docs").label(label).read().await.expect("free"));
        }
        guards
    }

    async fn waiting(&self, key: &'static str, count: u64) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        for number in 0..count {
            let label = format!("web-{}:8080", number + 2);
            let class = if number % 2 == 0 { "pay" } else { "refund" };
            let locks = if number % 2 == 0 { &self.here } else { &self.there };
            waiting.push(Waiting(tokio::spawn(locks.key(key).label(label).class(class).lock())));
            eventually("it waits", SOON, async || {
                let seen = self.here.inspect_part(key, 0, 1).await.expect("an answer");
                seen.waiting == number + 1
            })
            .await;
        }
        waiting
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

/// A request that waits until dropped.
struct Waiting(JoinHandle<Result<LockGuard, LockError>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn an_operator_finds_the_hottest_lock_its_holder_and_its_line_and_releases_it() {
    let service = Service::start().await;
    let mut guards = service.busy().await;
    let waiting = service.waiting("order:42", 5).await;
    let driver = Driver::start().await;
    let tab = driver.open(&service.url(""), 1280, 900).await;
    tab.until_text("#link", "Live").await;
    tab.until_text("h1", "This process").await;
    tab.until_text("#activity-rows tbody tr:first-child th a", "order:42").await;
    tab.click("nav a:nth-child(2)").await;
    tab.until_text("#link", "Live").await;
    tab.type_into("#has", "ORDER").await;
    tab.click(".filter button").await;
    tab.until_text_has("#live .note", "1 match the filter.").await;
    tab.until_text("#busy-rows tbody tr:first-child th a", "order:42").await;
    tab.until_text("#busy-rows tbody tr:first-child td:nth-child(2)", "5").await;
    tab.click("#busy-rows tbody tr:first-child a").await;
    tab.until_text("h1", "order:42").await;
    tab.until_text("#holders-rows tbody th", "web-1:8080").await;
    tab.until_text("#waiters-rows tbody tr:nth-child(5) th", "web-6:8080").await;
    tab.until_text("#link", "Live").await;

    // The page updates while open, but not while paused.
    drop(waiting);
    tab.until_text("#waiters-rows tbody", "Nobody.").await;
    tab.click("#pause").await;
    tab.until_text("#link", "Paused").await;
    let _next = service.waiting("order:42", 1).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await; // no event may arrive meanwhile
    tab.until_text("#waiters-rows tbody", "Nobody.").await;
    tab.click("#pause").await;
    tab.until_text("#waiters-rows tbody th", "web-2:8080").await;

    // A label is text, even if it looks like markup.
    tab.open(&service.url("/lock?name=wallet%3A7")).await;
    tab.until_text("#holders-rows tbody th", HOSTILE).await;
    tab.until_text("#link", "Live").await;
    tab.click("details.release summary").await;
    tab.click("details.release button").await;
    tab.until_text("p.note", "All holds were force-released.").await;
    tab.until_text("#holders-rows tbody", "Nobody.").await;
    guards.swap_remove(1).lost().await;
    tab.assert_no_errors().await;
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn the_keyboard_alone_reaches_everything_and_keeps_its_place_while_the_page_changes() {
    let service = Service::start().await;
    let mut guards = service.busy().await;
    let driver = Driver::start().await;
    let tab = driver.open(&service.url("/node"), 1280, 900).await;
    tab.until_text("#link", "Live").await;
    // In this order, each once.
    for part in ["This process", "All locks", "name", "Show", "pause", "activity-rows", "order:42"]
    {
        tab.tab_to(part).await;
    }
    // The table changes around the focused link.
    let first = service.waiting("wallet:7", 1).await;
    tab.until_text("#activity-rows tbody tr:nth-child(4) td", "waiting 0 ahead").await;
    tab.tab_to("wallet:7").await;
    drop(guards.swap_remove(0));
    drop(first);
    tab.until_text("#activity-rows tbody tr:first-child th a", "wallet:7").await;
    assert_eq!(tab.focused().await, "wallet:7", "the row in front is gone");
    guards.push(service.here.key("order:42").label("web-1:8080").lock().await.expect("free"));
    tab.until_text("#activity-rows tbody tr:nth-child(3) th a", "order:42").await;
    tab.tab_to("order:42").await;
    let waiting = service.waiting("order:42", 1).await;
    tab.until_text("#activity-rows tbody tr:nth-child(4) td", "waiting 0 ahead").await;
    assert_eq!(tab.focused().await, "order:42");
    tab.press(Key::Enter).await;
    tab.until_text("h1", "order:42").await;
    tab.tab_to("name").await;
    tab.type_into("#name", "docs").await;
    tab.press(Key::Enter).await;
    tab.until_text("h1", "docs").await;
    tab.until_text("#holders-rows tbody tr:nth-child(8) th", "reader 7").await;
    tab.tab_to("waiters-rows").await;
    tab.tab_to("Force-release").await;
    tab.press(Key::Enter).await;
    tab.tab_to("Release all holds now").await;
    tab.press(Key::Enter).await;
    tab.until_text("#holders-rows tbody", "Nobody.").await;
    drop(waiting);
    tab.assert_no_errors().await;
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn it_fits_a_phone_and_a_desk_with_ten_thousand_waiters() {
    let service = Service::start().await;
    let _guards = service.busy().await;
    let mut many: Vec<_> = (0..10_000)
        .map(|_| Box::pin(service.there.key("order:42").queue_limit(20_000).lock()))
        .collect();
    for wait in &mut many {
        assert!(futures_util::poll!(wait.as_mut()).is_pending());
    }
    let _few = service.waiting("wallet:7", 3).await;
    let driver = Driver::start().await;
    for (name, width, height) in
        [("phone", 360, 1_400), ("small-phone", 320, 640), ("desktop", 1280, 1_000)]
    {
        let tab = driver.open(&service.url("/node"), width, height).await;
        for (page, path) in [
            ("node", "/node"),
            ("overview", "/overview"),
            ("lock", "/lock?name=order%3A42"),
            ("wallet", "/lock?name=wallet%3A7"),
        ] {
            tab.open(&service.url(path)).await;
            tab.until_text("#link", "Live").await;
            let of = format!("{page} on {name}");
            assert_eq!(tab.number("document.documentElement.clientWidth").await, width, "{of}");
            let wide = tab.number("document.documentElement.scrollWidth").await;
            assert!(wide <= width, "{of} scrolls sideways: {wide} of {width}");
            for (role, named) in tab.accessibility_tree().await {
                let needs_one = ["button", "link", "textbox", "region", "heading"];
                assert!(!named.is_empty() || !needs_one.contains(&&*role), "a {role} of {of}");
            }
            tab.screenshot(&format!("dashboard-{page}-{name}.png")).await;
            assert_eq!(tab.strings(SMALL).await, Vec::<String>::new(), "{of}");
        }
        tab.open(&service.url("/lock?name=order%3A42")).await;
        tab.until_text_has("#live .note", "Positions 1 to 100 of 10\u{202f}000.").await;
        // Also a slow click counts: the page updates every second.
        tab.click_for("#behind", Duration::from_millis(2_500)).await;
        tab.until_text_has("#live .note", "Positions 101 to 200 of 10\u{202f}000.").await;
        tab.assert_no_errors().await;
    }
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn assistive_technology_finds_names_roles_and_tables() {
    let service = Service::start().await;
    let _guards = service.busy().await;
    let _waiting = service.waiting("order:42", 2).await;
    let driver = Driver::start().await;
    let tab = driver.open(&service.url("/lock?name=order%3A42"), 1280, 900).await;
    tab.until_text("#link", "Live").await;
    let tree = tab.accessibility_tree().await;
    let has = |role: &str, name: &str| tree.iter().any(|(of, named)| of == role && named == name);
    for (role, name) in [
        ("navigation", "Pages"),
        ("link", "All locks"),
        ("search", ""),
        ("textbox", "Lock name"),
        ("button", "Show"),
        ("button", "Pause"),
        ("heading", "order:42"),
        ("heading", "Waiting, in order"),
        ("region", "Held by"),
        ("columnheader", "Lease left"),
        ("rowheader", "web-2:8080"),
        ("DisclosureTriangle", "Force-release"),
    ] {
        assert!(has(role, name), "{role} {name:?} in {tree:?}");
    }
    assert!(tree.iter().any(|(role, _)| role == "status"), "{tree:?}");
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn the_page_says_when_it_is_not_live_and_comes_back() {
    let mut service = Service::start().await;
    let driver = Driver::start().await;
    let tab = driver.open(&service.url("/node"), 390, 844).await;
    tab.until_text("#link", "Live").await;
    service.end();
    tab.until_text("#link", "Reconnecting…").await;
    service.serve();
    tab.until_text("#link", "Live").await;
    driver.end().await;
}
