//! The pages of the ticket office and of the dashboard in a real Chromium, as a person uses them.
//!
//! These tests need Debian's `chromium` and `chromium-driver`, or equivalents on other systems;
//! `scripts/test --browser` installs them. Screenshots are written to the target directory, as
//! `ticket-office-*.png` and `dashboard-*.png`.

mod browser {
    mod dashboard;
    pub(crate) mod driver;
    pub(crate) mod tab;
}
#[path = "ticket_office/office.rs"]
#[allow(dead_code, reason = "the other tests use the rest of it")]
mod office;
#[path = "ticket_office/scratch.rs"]
#[allow(dead_code, reason = "the other tests use the rest of it")]
mod scratch;

use std::net::SocketAddr;

use browser::driver::Driver;
use browser::tab::Tab;
use lock_tests::{Front, Raw, RedisServer};
use office::Office;
use redis::cmd;

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn a_seat_is_bought_by_clicking() {
    let office = Office::open(&["--pay-ms", "300"]).await;
    let driver = Driver::start().await;
    let tab = driver.open(&office.url("/"), 1280, 900).await;
    tab.until_text("#link", "Live").await;
    tab.until_text("#free", "20").await;

    // Without a name, nothing is bought.
    tab.click("#seat-7 button").await;
    tab.until_text("#missing", "Enter your name first.").await;
    tab.type_into("#buyer", "Ann").await;
    tab.click("#seat-7 button").await;
    tab.until_text("#seat-7 .state", "sold").await;
    tab.until_text("#seat-7 .who", "to Ann").await;
    tab.until_text("#seat-7 button", "Sold").await;
    tab.until_text("#sold", "1").await;
    tab.until_text_has("#news li:first-child", "Seat 7 is yours, Ann.").await;
    assert_eq!(office.buyer(7).await, "Ann");
    tab.reload().await;
    tab.until_text("#seat-7 .who", "to Ann").await;
    tab.assert_no_errors().await;
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn two_buyers_see_the_line_appear_and_go_and_a_refusal_in_words() {
    let office = Office::open(&["--pay-ms", "5000"]).await;
    let driver = Driver::start().await;
    let ann = driver.open(&office.url("/"), 1280, 900).await;
    ann.until_text("#link", "Live").await;
    ann.type_into("#buyer", "Ann").await;
    let bob = driver.open(&office.url("/"), 390, 844).await;
    bob.until_text("#link", "Live").await;
    bob.type_into("#buyer", "<img src=x onerror=alert(1)>").await;

    ann.click("#seat-3 button").await;
    ann.until_text("#seat-3 .who", "Ann").await;
    ann.until_text("#seat-3 button", "Paying…").await;
    bob.until_text("#seat-3 button", "Join queue").await;
    bob.click("#seat-3 button").await;
    bob.until_text("#seat-3 button", "Leave queue").await;
    bob.until_text_has("#seat-3 .place", "You: next, ").await;
    ann.until_text("#seat-3 .line .count", "1 waiting").await;
    // A name is text, even if it looks like markup.
    ann.until_text("#seat-3 .line li", "<img src=x onerror=alert(1)>").await;
    ann.until_text("#waiting", "1").await;

    ann.until_text("#seat-3 .who", "to Ann").await;
    ann.until_hidden("#seat-3 .line").await;
    ann.until_text_has("#news li:first-child", "Seat 3 is yours, Ann.").await;
    bob.until_text_has("#news li:first-child", "Seat 3 was not bought: Seat 3 was sold to Ann.")
        .await;
    bob.until_text("#seat-3 .who", "to Ann").await;

    // A buyer who leaves the queue is removed from it.
    ann.click("#seat-4 button").await;
    bob.until_text("#seat-4 button", "Join queue").await;
    bob.click("#seat-4 button").await;
    ann.until_text("#seat-4 .line .count", "1 waiting").await;
    bob.click_again("#seat-4 button").await;
    bob.until_text("#news li:first-child", "You left the queue for seat 4.").await;
    ann.until_hidden("#seat-4 .line").await;
    ann.until_text("#seat-4 .who", "to Ann").await;

    ann.assert_no_errors().await;
    bob.assert_no_errors().await;
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn a_double_click_buys_once() {
    let office = Office::open(&["--pay-ms", "4000"]).await;
    let driver = Driver::start().await;
    let tab = enter(&driver, &office.url("/"), "Ann").await;
    tab.double_click("#seat-7 button").await;
    tab.until_text("#seat-7 button", "Paying…").await;
    office.until_line(7, Some("Ann"), &[]).await;
    tab.until_text("#seat-7 .who", "to Ann").await;
    until_bought_once(&tab, &office).await;
    tab.assert_no_errors().await;

    // In the queue, the second click does not leave it either.
    let paying = tokio::spawn(office.buy(8, "Bob", 20_000));
    tab.until_text("#seat-8 button", "Join queue").await;
    tab.double_click("#seat-8 button").await;
    tab.until_text_has("#seat-8 .place", "You: next, ").await;
    office.until_line(8, Some("Bob"), &["Ann"]).await;
    tab.until_text("#seat-8 button", "Leave queue").await;
    paying.abort();
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn a_purchase_whose_connection_is_cut_goes_on_and_the_buyer_sees_one() {
    let office = Office::open(&["--pay-ms", "8000"]).await;
    let front = Front::start(address(&office)).await;
    let driver = Driver::start().await;
    let tab = enter(&driver, &format!("http://{}/", front.address()), "Ann").await;
    tab.click("#seat-7 button").await;
    tab.until_text("#seat-7 button", "Paying…").await;
    front.cut();
    until_bought_once(&tab, &office).await;
    office.until_counted("lock_idempotency_served_total{outcome=\"stored\"} 1").await;
    office.until_counted("lock_idempotency_served_total{outcome=\"replayed\"} 1").await;
    tab.until_text("#seat-7 .who", "to Ann").await;

    // A buyer disconnected while queued has left the queue, and rejoins.
    let paying = tokio::spawn(office.buy(8, "Bob", 30_000));
    tab.until_text("#seat-8 button", "Join queue").await;
    tab.click("#seat-8 button").await;
    tab.until_text_has("#seat-8 .place", "You: next, ").await;
    front.cut();
    office.until_counted("lockcore_cancelled_total{class=\"seats\"} 1").await;
    office.until_line(8, Some("Bob"), &["Ann"]).await;
    tab.until_text_has("#seat-8 .place", "You: next, ").await;
    tab.click_again("#seat-8 button").await;
    tab.until_text("#news li:first-child", "You left the queue for seat 8.").await;
    office.until_line(8, Some("Bob"), &[]).await;
    paying.abort();
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn who_clicks_again_after_the_last_try_gets_the_first_answer() {
    let office = Office::open(&["--pay-ms", "20000"]).await;
    let front = Front::start(address(&office)).await;
    let driver = Driver::start().await;
    let tab = enter(&driver, &format!("http://{}/", front.address()), "Ann").await;
    tab.click("#seat-7 button").await;
    tab.until_text("#seat-7 button", "Paying…").await;
    let nobody = lock_tests::Port::free();
    front.leads_to(nobody.address());
    front.cut();
    tab.until_text_has("#news li:first-child", "The office did not respond.").await;
    front.leads_to(address(&office));
    tab.until_text("#link", "Live").await;
    tab.click("#seat-7 button").await;
    tab.until_text_has("#news li:first-child", "Seat 7 is yours, Ann.").await;
    assert_eq!(tab.number("document.querySelectorAll('#news li').length").await, 2);
    office.until_counted("ticket_office_sold_total 1").await;
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn a_purchase_of_unknown_outcome_is_not_said_to_have_failed() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let office = Office::open(&["--redis", &server.url(), "--pay-ms", "4000"]).await;
    let driver = Driver::start().await;
    let tab = enter(&driver, &office.url("/"), "Ann").await;
    tab.click("#seat-7 button").await;
    tab.until_text("#seat-7 button", "Paying…").await;
    // As after a lost lock, when the same purchase has begun again.
    let records = redis.keys("ticket-office:replay:*").await;
    let [record] = &records[..] else { panic!("{records:?}") };
    redis.ask::<i64>(cmd("HSET").arg(record).arg("token").arg((1_u64 << 53) - 1)).await;
    tab.until_text_has("#news li:first-child", "Check whether the seat is yours.").await;
    assert_eq!(office.buyer(7).await, "Ann");
    driver.end().await;
}

/// Opens an office's page at this URL, and enters the buyer's name.
async fn enter(driver: &Driver, url: &str, buyer: &str) -> Tab {
    let tab = driver.open(url, 1280, 900).await;
    tab.until_text("#link", "Live").await;
    tab.type_into("#buyer", buyer).await;
    tab
}

/// Waits for the notice of a purchase of seat 7, which must be the only purchase and the only
/// notice.
async fn until_bought_once(tab: &Tab, office: &Office) {
    tab.until_text_has("#news li:first-child", "Seat 7 is yours, Ann.").await;
    assert_eq!(tab.number("document.querySelectorAll('#news li').length").await, 1);
    office.until_counted("ticket_office_sold_total 1").await;
}

/// Returns the address of an office, for a proxy in front of it.
fn address(office: &Office) -> SocketAddr {
    office.url("").trim_start_matches("http://").parse().expect("an address")
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn a_full_line_and_a_wait_that_was_too_long_are_told_in_words() {
    let office = Office::open(&["--max-wait", "2", "--queue-limit", "1"]).await;
    let driver = Driver::start().await;
    let tab = enter(&driver, &office.url("/"), "Zoë").await;
    let paying = tokio::spawn(office.buy(1, "Ann", 20_000));
    office.until_line(1, Some("Ann"), &[]).await;
    let waiting = tokio::spawn(office.buy(1, "Bob", 0));
    tab.until_text("#seat-1 .line .count", "1 waiting").await;
    tab.click("#seat-1 button").await;
    tab.until_text_has("#news li:first-child", "The queue for seat 1 is full. Try again in ").await;
    waiting.await.expect("it does not panic").refuses(423, "lock-busy");
    tab.until_hidden("#seat-1 .line").await;
    tab.click("#seat-1 button").await;
    tab.until_text_has("#news li:first-child", "Timed out waiting for seat 1.").await;
    paying.abort();
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn the_page_finds_the_office_again() {
    let port = lock_tests::Port::free();
    let listen = port.address().to_string();
    let office = Office::open(&["--listen", &listen]).await;
    let driver = Driver::start().await;
    let tab = driver.open(&office.url("/"), 1280, 900).await;
    tab.until_text("#link", "Live").await;
    lock_tests::signal::terminate(office.pid());
    office.end().await;
    tab.until_text("#link", "Reconnecting…").await;
    let office = Office::open(&["--listen", &listen, "--seats", "20"]).await;
    tab.until_text("#link", "Live").await;
    assert_eq!(office.buy(2, "Bob", 0).await.status, 200);
    tab.until_text("#seat-2 .who", "to Bob").await;
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn it_fits_a_phone_and_a_desk_and_says_what_its_parts_are() {
    let office = Office::open(&["--pay-ms", "30000"]).await;
    for (seat, buyer) in [(2, "Cleo"), (5, "Maximiliane-Friederike von und zu Hohens"), (9, "Dan")]
    {
        assert_eq!(office.buy(seat, buyer, 0).await.status, 200);
    }
    let mut buyers = Vec::new();
    let long = "W".repeat(40);
    for name in ["Ann", "Bob", "Eve", "Fay", "Gus", &long, "Hal", "Ida"] {
        buyers.push(tokio::spawn(office.buy(7, name, 30_000)));
        let waiting = buyers.len() - 1;
        lock_tests::eventually("all are waiting", office::SOON, async || {
            let line = office.get("/seats/7/line").await.body;
            line["holder"] == "Ann" && line["waiters"].as_array().map(Vec::len) == Some(waiting)
        })
        .await;
    }
    buyers.push(tokio::spawn(office.buy(12, "Grace Hopper", 30_000)));
    let driver = Driver::start().await;
    for (name, width, height) in
        [("phone", 360, 1_700), ("small-phone", 320, 640), ("desktop", 1280, 900)]
    {
        let tab = driver.open(&office.url("/"), width, height).await;
        tab.until_text("#sold", "3").await;
        tab.until_text("#seat-12 .who", "Grace Hopper").await;
        tab.until_text("#seat-7 .line .count", "7 waiting").await;
        tab.type_into("#buyer", "Ada Lovelace").await;
        tab.click("#seat-12 button").await;
        tab.until_text("#seat-12 .line .count", "1 waiting").await;
        assert_eq!(tab.number("document.documentElement.clientWidth").await, width, "{name}");
        let wide = tab.number("document.documentElement.scrollWidth").await;
        assert!(wide <= width, "{name} scrolls sideways: {wide} of {width}");
        assert_eq!(tab.strings(UNNAMED).await, Vec::<String>::new(), "{name}");
        assert_eq!(tab.strings(SMALL).await, Vec::<String>::new(), "{name}");
        tab.screenshot(&format!("ticket-office-{name}.png")).await;
        tab.assert_no_errors().await;
        tab.click_again("#seat-12 button").await;
        tab.until_text_has("#news li:first-child", "You left the queue").await;
        tab.until_text_has("#toast", "You left the queue").await;
    }
    buyers.iter().for_each(tokio::task::JoinHandle::abort);
    driver.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/test --browser"]
async fn a_visitor_freezes_a_buyer_and_sees_its_late_write_refused() {
    let (server, scratch) = (lock_tests::RedisServer::start(), scratch::Scratch::new());
    let (url, database) = (server.url(), scratch.database());
    let arguments = ["--redis", &url, "--database", &database, "--lease", "2", "--faults"];
    let office = Office::open(&arguments).await;
    let driver = Driver::start().await;
    let tab = driver.open(&office.url("/"), 1280, 1_100).await;
    tab.click("#faults-start").await;
    tab.until_text_has("#buyer-1 .doing", "pays with token").await;
    tab.click("#buyer-1 [data-fault=freeze]").await;
    tab.until_text_has("#buyer-1 .doing", "frozen").await;
    tab.until_text("#buyer-1 [data-fault=freeze]", "Thaw").await;
    for buyer in ["#buyer-2", "#buyer-3", "#buyer-4"] {
        tab.click("#faults-start").await;
        tab.until_text_has(&format!("{buyer} .doing"), "").await;
    }
    tab.until_text_has("#faults-reports", "Buyer 2: wrote with token").await;
    tab.until_text("#faults-refused", "0").await;
    tab.click("#buyer-1 [data-fault=freeze]").await;
    tab.until_text("#faults-refused", "1").await;
    tab.until_text_has("#faults-reports", "Buyer 1: stale write refused, token").await;
    tab.click("#buyer-3 [data-fault=cut-off]").await;
    tab.until_text_has("#buyer-3 .doing", "cut off").await;
    tab.click("#buyer-4 [data-fault=kill]").await;
    tab.until_text_has("#buyer-4 .doing", "killed").await;
    tab.screenshot("ticket-office-faults-desktop.png").await;
    assert_eq!(tab.strings(UNNAMED).await, Vec::<String>::new());
    tab.assert_no_errors().await;

    let phone = driver.open(&office.url("/"), 360, 2_000).await;
    phone.until_text("#faults-refused", "1").await;
    phone.until_text_has("#buyer-4 .doing", "killed").await;
    let places =
        r#"[...document.querySelectorAll("[data-place^=position]")].map((entry) => entry.id)"#;
    assert_ne!(phone.strings(places).await, Vec::<String>::new());
    let wide = phone.number("document.documentElement.scrollWidth").await;
    assert!(wide <= 360, "it scrolls sideways: {wide}");
    assert_eq!(phone.strings(SMALL).await, Vec::<String>::new());
    phone.screenshot("ticket-office-faults-phone.png").await;
    driver.end().await;
}

/// Finds controls without a name or without keyboard access.
const UNNAMED: &str = r#"[...document.querySelectorAll("button, input, [role=alert], section")].filter((part) => {
    const label = part.labels?.[0]?.textContent ?? part.getAttribute("aria-label")
        ?? document.getElementById(part.getAttribute("aria-labelledby"))?.textContent
        ?? (part.tagName === "BUTTON" ? part.textContent : null);
    const named = part.getAttribute("role") === "alert" || (label ?? "").trim() !== "";
    return !named || part.tabIndex > 0;
}).map((part) => part.outerHTML)"#;

/// Finds buttons too small for a finger.
const SMALL: &str = r#"[...document.querySelectorAll("button")].filter((button) => {
    const { width, height } = button.getBoundingClientRect();
    return button.checkVisibility() && (width < 44 || height < 44);
}).map((button) => button.outerHTML)"#;
