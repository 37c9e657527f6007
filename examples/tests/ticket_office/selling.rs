//! Buying and looking, in a single process with in-memory locks: every endpoint, every status.

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::office::{Office, answer};

#[tokio::test]
async fn a_seat_is_sold_once_and_with_its_token() {
    let office = Office::open(&["--seats", "3", "--pay-ms", "0"]).await;
    let free = |seat: u32| json!({ "seat": seat, "buyer": null, "token": null });
    assert_eq!(office.get("/seats").await.body, json!([free(1), free(2), free(3)]));

    let bought = office.post("/seats/2/buy", "application/json", r#"{"buyer":" Ann "}"#);
    let bought = answer(bought).await;
    assert_eq!(bought.status, 200, "{bought:?}");
    let token = bought.body["token"].as_u64().expect("a number");
    assert!(token > 0 && bought.body["waited_ms"].is_u64(), "{bought:?}");
    assert_eq!((&bought.body["seat"], &bought.body["buyer"]), (&json!(2), &json!("Ann")));
    assert_eq!(bought.body.as_object().map(serde_json::Map::len), Some(4));

    let sold = json!({ "seat": 2, "buyer": "Ann", "token": token });
    assert_eq!(office.get("/seats").await.body, json!([free(1), sold, free(3)]));
    office.buy(2, "Bob", 0).await.refuses(409, "seat-sold");
    assert_eq!(office.buyer(2).await, "Ann");
}

#[tokio::test]
async fn the_payment_takes_as_long_as_the_order_or_the_flag_says() {
    let office = Office::open(&["--pay-ms", "300"]).await;
    for (seat, order, least) in
        [(1, r#"{"buyer":"Ann"}"#, 300), (2, r#"{"buyer":"Ann","pay_ms":700}"#, 700)]
    {
        let started = Instant::now();
        let bought =
            answer(office.post(&format!("/seats/{seat}/buy"), "application/json", order)).await;
        assert_eq!(bought.status, 200, "{bought:?}");
        assert!(started.elapsed() >= Duration::from_millis(least), "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn a_seat_that_is_not_there_is_404() {
    let office = Office::open(&["--seats", "3"]).await;
    for seat in ["0", "4", "-1", "one", "4294967297", "%00"] {
        let order =
            office.post(&format!("/seats/{seat}/buy"), "application/json", r#"{"buyer":"Ann"}"#);
        answer(order).await.refuses(404, "seat-unknown");
        office.get(&format!("/seats/{seat}/line")).await.refuses(404, "seat-unknown");
    }
}

// N8: the dashboard was visible only in a program written for it.
#[tokio::test]
async fn the_page_of_the_office_leads_to_the_pages_of_its_locks() {
    let office = Office::open(&[]).await;
    let page = office.ask("/").send().await.expect("an answer").text().await.expect("a page");
    assert!(page.contains("<a href=\"/locks\">"), "{page}");
    let paying = tokio::spawn(office.buy(1, "Ann", 20_000));
    office.until_line(1, Some("Ann"), &[]).await;
    for path in ["/locks", "/locks/", "/locks/node"] {
        let locks = answer(office.ask(path).header("accept", "application/json")).await;
        assert_eq!(locks.body["activity"][0]["name"], "seat:1", "{path}: {locks:?}");
        assert_eq!(locks.body["activity"][0]["label"], "Ann");
    }
    paying.abort();
}

#[tokio::test]
async fn a_bad_order_is_refused_at_once_and_never_gets_in_line() {
    let office = Office::open(&[]).await;
    let paying = tokio::spawn(office.buy(1, "Ann", 20_000));
    office.until_line(1, Some("Ann"), &[]).await;
    let long = json!({ "buyer": "x".repeat(41) }).to_string();
    for order in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"buyer":7}"#,
        r#"{"buyer":""}"#,
        r#"{"buyer":"  "}"#,
        r#"{"buyer":"two\nlines"}"#,
        r#"{"buyer":"Bob","pay_ms":-1}"#,
        r#"{"buyer":"Bob","pay_ms":"1"}"#,
        &long,
    ] {
        answer(office.post("/seats/1/buy", "application/json", order))
            .await
            .refuses(422, "order-invalid");
    }
    // A foreign site's form could send this without preflight.
    answer(office.post("/seats/1/buy", "text/plain", r#"{"buyer":"Bob"}"#))
        .await
        .refuses(415, "order-invalid");
    let huge = json!({ "buyer": "x".repeat(20 << 10) }).to_string();
    answer(office.post("/seats/1/buy", "application/json", &huge))
        .await
        .refuses(413, "order-invalid");
    office.until_line(1, Some("Ann"), &[]).await;
    assert!(!paying.is_finished());
    paying.abort();
}

#[tokio::test]
async fn it_is_healthy_and_counts() {
    let office = Office::open(&[]).await;
    assert_eq!(office.get("/healthz").await.status, 200);
    office.buy(1, "Ann", 0).await;
    let metrics = office.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.kind.starts_with("text/plain; version=0.0.4"), "{}", metrics.kind);
    for line in [
        "ticket_office_sold_total 1",
        "ticket_office_fenced_total 0",
        "ticket_office_connected 1",
        "# TYPE lockcore_wait_seconds histogram",
        "lockcore_wait_seconds_count{class=\"seats\"} 1",
    ] {
        assert!(metrics.text.lines().any(|other| other == line), "{line}: {}", metrics.text);
    }
}

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere_and_may_run_nothing_inline() {
    let office = Office::open(&[]).await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
    ] {
        let file = office.get(path).await;
        assert_eq!((file.status, file.kind.as_str()), (200, kind), "{path}");
        assert!(!file.text.contains("https://"), "{path}");
    }
    let response = office.ask("/").send().await.expect("it answers");
    let policy = response.headers()["content-security-policy"].to_str().expect("it is text");
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(office.get("/nothing").await.body, Value::Null);
}
