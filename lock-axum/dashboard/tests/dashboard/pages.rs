//! The content of the pages, as HTML and as JSON.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use lock_dashboard::Dashboard;
use lock_tests::{CommandStats, Log, Raw, RedisServer, eventually};
use lockcore::{Locks, MemoryStore};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{Pages, SOON, read, wait};

const HOSTILE: &str = "<script>alert(1)</script>\"'&\r\n\u{202e}\u{feff}x";

#[tokio::test]
async fn the_page_of_this_process_shows_its_waits_and_holds_by_class_and_one_by_one() {
    let locks = Locks::builder().namespace("shop").in_memory().expect("in range");
    let _guard = locks.key("order:42").class("pay").label("web-1").lock().await.unwrap();
    let _waiting = wait(&locks, "order:42", "web-2", 1).await;
    let pages = Pages::of(&locks);
    let seen = pages.json("node").await;
    assert_eq!(seen["node"], locks.node().as_str());
    assert_eq!((&seen["holding"], &seen["waiting"]), (&json!(1), &json!(1)));
    assert_eq!(seen["commands"], json!({ "down": null }));
    assert_eq!(seen["activity"][0]["lock"], "shop:order:42");
    assert_eq!(seen["activity"][0]["name"], "order:42");
    assert_eq!(seen["activity"][0]["state"], "holding");
    assert_eq!(seen["activity"][1]["label"], "web-2");
    assert_eq!(seen["classes"][1]["class"], "pay");
    assert_eq!(pages.json("node?from=1").await["activity"].as_array().unwrap().len(), 1);
    let page = pages.html("node").await;
    for part in ["web-1", "web-2", "pay", "shop:order:42", "href=\"lock?name=order%3A42\""] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn the_page_of_a_lock_shows_its_holders_and_its_queue_in_order() {
    let locks = Locks::in_memory();
    let guard = locks.key("doc 1").label("web-1").read().await.unwrap();
    let _first = wait(&locks, "doc 1", "first", 1).await;
    let _second = wait(&locks, "doc 1", "second", 2).await;
    let pages = Pages::of(&locks);
    let seen = pages.json("lock?name=doc%201").await;
    assert_eq!((&seen["name"], &seen["holding"]), (&json!("doc 1"), &json!(1)));
    assert_eq!(seen["holders"][0]["label"], "web-1");
    assert_eq!(seen["holders"][0]["demand"], "read");
    assert_eq!(seen["token"], u64::from(guard.fencing_token()));
    assert_eq!(seen["waiters"][0]["label"], "first");
    assert_eq!(seen["waiters"][1]["label"], "second");
    assert!(seen["waiters"][0]["age_ms"].is_u64());
    let page = pages.html("lock?name=doc%201").await;
    assert!(page.find("first") < page.find("second"), "{page}");
    let free = pages.json("lock?name=free").await;
    assert_eq!((&free["holders"], &free["waiting"]), (&json!([]), &json!(0)));
    assert!(pages.html("lock?name=free").await.contains("Nobody."));
}

// Once, its cell was empty.
#[tokio::test]
async fn a_holder_with_an_empty_label_has_the_name_that_it_has_in_the_store() {
    let locks = Locks::in_memory();
    let _guard = locks.key("doc").label("").lock().await.unwrap();
    let pages = Pages::of(&locks);
    let seen = pages.json("lock?name=doc").await;
    let member = seen["holders"][0]["member"].as_str().unwrap();
    for path in ["lock?name=doc", "overview"] {
        let page = pages.html(path).await;
        assert!(page.contains(&format!("<bdi>{member}</bdi>")), "{path}: {page}");
    }
}

// N3: only the label identified the process to restart.
#[tokio::test]
async fn the_page_of_a_lock_shows_the_process_of_holder_and_waiter_beside_the_label() {
    let server = RedisServer::start();
    let locks = Locks::connect(server.url()).await.unwrap();
    let _guard = locks.key("seat").label("Buyer 3").lock().await.unwrap();
    let _waiting = wait(&locks, "seat", "Buyer 4", 1).await;
    let pages = Pages::of(&locks);
    let ends = format!(":{}", std::process::id());
    eventually("it is told", SOON, async || {
        let seen = pages.json("lock?name=seat").await;
        seen["holders"][0]["process"].as_str().is_some_and(|process| process.ends_with(&ends))
    })
    .await;
    let seen = pages.json("lock?name=seat").await;
    assert_eq!(seen["waiters"][0]["process"], seen["holders"][0]["process"]);
    let page = pages.html("lock?name=seat").await;
    let process = seen["holders"][0]["process"].as_str().unwrap();
    for label in ["Buyer 3", "Buyer 4"] {
        let (_, behind) = page.split_once(label).unwrap();
        assert!(behind.split("</th>").next().unwrap().contains(process), "{page}");
    }
}

#[tokio::test]
async fn the_page_of_a_lock_shows_at_how_many_primaries_of_a_quorum_it_is_held() {
    let locks = Locks::builder().in_memory_quorum(3).expect("3 stores");
    let _guard = locks.lock("k").await.unwrap();
    eventually("it is held at all", SOON, async || {
        let held = locks.inspect("k").await.unwrap().holders[0].primaries;
        held.is_some_and(|primaries| primaries.held == 3)
    })
    .await;
    let _waiting = wait(&locks, "k", "next", 1).await;
    let pages = Pages::of(&locks);
    let seen = pages.json("lock?name=k").await;
    assert_eq!(seen["holders"][0]["primaries"], json!([3, 3]));
    assert_eq!(seen["waiters"][0].get("primaries"), None);
    assert!(pages.html("lock?name=k").await.contains("at 3 of 3 primaries"));
}

#[tokio::test]
async fn the_overview_shows_the_locks_of_all_processes_in_the_order_that_is_asked_for() {
    let store = MemoryStore::new();
    let [here, there] = [(); 2].map(|()| Locks::builder().on_memory(&store).unwrap());
    let mut held = vec![there.key("old").label("job-7").lock().await.unwrap()];
    tokio::time::sleep(Duration::from_millis(20)).await;
    held.push(here.lock("hot").await.unwrap());
    let _waits = [wait(&there, "hot", "a", 1).await, wait(&here, "hot", "b", 2).await];
    let pages = Pages::of(&here);
    let names = |seen: &Value| -> Vec<String> {
        let locks = seen["locks"].as_array().unwrap().iter();
        locks.map(|lock| lock["lock"].as_str().unwrap().to_owned()).collect()
    };
    let seen = pages.json("overview").await;
    assert_eq!(names(&seen), ["hot", "old"]);
    assert_eq!((&seen["found"], &seen["is_complete"]), (&json!(2), &json!(true)));
    assert_eq!(
        (&seen["locks"][0]["waiting"], &seen["locks"][0]["holding"]),
        (&json!(2), &json!(1))
    );
    assert!(seen["locks"][0]["next_waits_ms"].is_u64());
    assert_eq!(seen["locks"][1]["holder"], "job-7");
    assert_eq!(names(&pages.json("overview?by=oldest-holder").await), ["old", "hot"]);
    assert_eq!(names(&pages.json("overview?by=oldest-wait&most=1").await), ["hot"]);
    let page = pages.html("overview").await;
    assert!(page.contains("job-7") && page.contains("Locks found: 2, in "), "{page}");
}

#[tokio::test]
async fn a_holder_is_shown_with_the_time_since_it_asked_and_none_for_which_it_has_held() {
    let locks = Locks::in_memory();
    let first = locks.lock("doc").await.unwrap();
    let waiting = wait(&locks, "doc", "second", 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(first);
    let _held = waiting.await.unwrap();
    let pages = Pages::of(&locks);
    let lock = &pages.json("overview").await["locks"][0];
    let holder = &pages.json("lock?name=doc").await["holders"][0];
    for of in [lock, holder] {
        assert!(of["age_ms"].as_u64().unwrap() >= 300, "it has waited first: {of}");
        assert_eq!(of.get("held_ms"), None);
    }
    for path in ["overview", "lock?name=doc"] {
        let page = pages.html(path).await;
        assert!(page.contains("Requested") && page.contains(" ago</td>"), "{path}: {page}");
    }
}

#[tokio::test]
async fn a_text_of_others_is_text_on_every_page() {
    let locks = Locks::builder().namespace("<b>shop</b>").in_memory().expect("in range");
    let hostile = "<i>{x}</i>";
    let _guard = locks.key(hostile).label(HOSTILE).class(HOSTILE).lock().await.unwrap();
    let _waiting = wait(&locks, hostile, HOSTILE, 1).await;
    let pages = Pages::of(&locks);
    for path in ["node", "overview", "lock?name=%3Ci%3E%7Bx%7D%3C/i%3E"] {
        let page = pages.html(path).await;
        let shown = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;\\r\\n\\u{202e}\\u{feff}x";
        assert!(page.contains(shown), "{path}: {page}");
        for markup in ["<script>", "<i>", "<b>", "\u{202e}", "\u{feff}"] {
            assert!(!page.contains(markup), "{markup} on {path}: {page}");
        }
    }
    assert_eq!(pages.json("node").await["activity"][0]["label"], HOSTILE, "as it was set");
}

#[tokio::test]
async fn every_answer_says_that_nothing_is_loaded_from_elsewhere_and_no_page_is_kept() {
    let pages = Pages::of(&Locks::in_memory());
    for (path, accept, kind, kept) in [
        ("node", "text/html", "text/html; charset=utf-8", "no-store"),
        ("node", "application/json", "application/json", "no-store"),
        ("overview", "*/*", "text/html; charset=utf-8", "no-store"),
        ("lock?name=x", "text/html", "text/html; charset=utf-8", "no-store"),
        ("lock?name=", "application/json", "application/problem+json", "no-store"),
        ("dashboard.css", "text/css", "text/css; charset=utf-8", "no-cache"),
        ("dashboard.js", "*/*", "text/javascript; charset=utf-8", "no-cache"),
    ] {
        let response = pages.get(path, accept).await;
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!((header("content-type"), header("cache-control")), (kind.into(), kept.into()));
        assert!(header("content-security-policy").starts_with("default-src 'none'; "), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("vary"), "accept");
        let (_, text) = read(response).await;
        for inline in ["http://", "https://", " style=", " onclick="] {
            assert!(!text.contains(inline), "{inline} in {path}");
        }
    }
}

#[tokio::test]
async fn names_that_are_to_be_redacted_are_on_no_page() {
    let locks = Locks::builder().redact_names(true).in_memory().expect("in range");
    let _guard = locks.key("secret").label("web-1").lock().await.unwrap();
    let pages = Pages::of(&locks);
    for path in ["node", "overview"] {
        for accept in ["text/html", "application/json"] {
            let (_, text) = read(pages.get(path, accept).await).await;
            assert!(text.contains("web-1") && !text.contains("secret"), "{path}: {text}");
        }
    }
    assert_eq!(pages.json("lock?name=secret").await["holders"][0]["label"], "web-1");
}

#[tokio::test]
async fn the_root_leads_to_the_first_page_wherever_the_dashboard_is_nested() {
    let pages = Pages::of(&Locks::in_memory());
    // U5: a trailing slash gave 404.
    for (path, node) in [("/admin/locks", "locks/node"), ("/admin/locks/", "node")] {
        let root = Request::get(path).body(Body::empty()).unwrap();
        let response = pages.ask(root).await;
        assert_eq!(response.status(), 307, "{path}");
        assert_eq!(response.headers()["location"], node, "relative to {path}");
    }
    let nested: Router = Router::new().nest("/x", Dashboard::new(Locks::in_memory()).into_router());
    let root = Request::get("/x").body(Body::empty()).unwrap();
    assert_eq!(nested.oneshot(root).await.unwrap().headers()["location"], "x/node");
}

#[tokio::test]
async fn errors_are_pages_and_problems_with_the_codes_of_the_layers() {
    let locks = Locks::in_memory();
    let pages = Pages::of(&locks);
    let (status, text) = read(pages.get("lock?name=%00", "text/html").await).await;
    assert_eq!(status, 400);
    assert!(text.contains("control character") && text.contains("lock-key-invalid"), "{text}");
    let (status, _) = read(pages.get("lock", "text/html").await).await;
    assert_eq!(status, 400, "no name");
    let peers = Locks::builder().redisson_peers(true).in_memory().expect("in range");
    let (status, text) = read(Pages::of(&peers).get("overview", "application/json").await).await;
    assert_eq!(status, 500);
    assert!(text.contains("inspect them by name"), "{text}");
    locks.shutdown(Duration::ZERO).await;
    for path in ["overview", "lock?name=x"] {
        let (status, text) = read(pages.get(path, "application/json").await).await;
        assert_eq!(status, 503, "{path}: {text}");
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(problem["code"], "lock-unavailable");
    }
}

#[tokio::test]
async fn ten_thousand_waiters_are_told_in_parts() {
    let locks = Locks::builder().max_waiting(20_000).in_memory().expect("in range");
    let _guard = locks.lock("hot").await.unwrap();
    let wait = || Box::pin(locks.key("hot").queue_limit(20_000).lock());
    let mut waits: Vec<_> = (0..10_000).map(|_| wait()).collect();
    for wait in &mut waits {
        assert!(futures_util::poll!(wait.as_mut()).is_pending());
    }
    eventually("all wait", SOON, async || {
        locks.inspect_part("hot", 0, 1).await.unwrap().waiting == 10_000
    })
    .await;
    let pages = Pages::of(&locks);
    let page = pages.html("lock?name=hot").await;
    assert!(page.contains("Positions 1 to 100 of 10\u{202f}000."), "{page}");
    assert!(page.contains("href=\"lock?name=hot&amp;from=100\""), "{page}");
    assert!(page.len() < 60_000, "{} bytes", page.len());
    let page = pages.html("lock?name=hot&from=9990").await;
    assert!(page.contains("Positions 9\u{202f}991 to 10\u{202f}000 of"), "{page}");
    assert!(page.contains("Previous") && !page.contains("Next"), "{page}");
    let page = pages.html("node").await;
    assert!(page.contains("The oldest 100 of 10\u{202f}001 are shown."), "{page}");
    assert!(page.len() < 60_000, "{} bytes", page.len());

    let mut members = Vec::new();
    for from in (0..10_000).step_by(1_000) {
        let seen = pages.json(&format!("lock?name=hot&from={from}&most=1000000")).await;
        assert_eq!(seen["waiting"], 10_000);
        let waiters = seen["waiters"].as_array().unwrap();
        members.extend(waiters.iter().map(|one| one["member"].as_str().unwrap().to_owned()));
    }
    let whole = locks.inspect("hot").await.unwrap();
    assert!(whole.waiters.iter().map(|one| &one.member).eq(&members), "each once, in order");
}

#[tokio::test]
async fn the_overview_counts_the_keys_that_it_cannot_read() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.unwrap();
    let _guard = locks.lock("mine").await.unwrap();
    let pages = Pages::of(&locks);
    assert!(!pages.html("overview").await.contains("cannot be read"));
    redis.run(redis::pipe().cmd("SET").arg("lock:{other}").arg("another program's").ignore()).await;
    let pages = Pages::of(&locks);
    let seen = pages.json("overview").await;
    assert_eq!((&seen["found"], &seen["unreadable"]), (&json!(1), &json!(1)));
    let page = pages.html("overview").await;
    assert!(page.contains("1 more cannot be read: the keys belong to another program"), "{page}");
}

#[tokio::test]
async fn those_who_ask_for_the_overview_at_the_same_time_share_a_survey() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.unwrap();
    let _guard = locks.lock("key").await.unwrap();
    let pages = Pages::of(&locks);
    let before = CommandStats::read(&mut redis).await;
    let asked = (0..20).map(|_| pages.json("overview"));
    for seen in futures_util::future::join_all(asked).await {
        assert_eq!(seen["locks"][0]["lock"], "key");
    }
    let sent = CommandStats::read(&mut redis).await.since(&before);
    assert_eq!(sent.calls("scan"), 1);
}

#[tokio::test]
async fn an_overview_that_its_client_leaves_is_still_searched_for_only_once() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.unwrap();
    let _guard = locks.lock("key").await.unwrap();
    let pages = Pages::of(&locks);
    let before = CommandStats::read(&mut redis).await;
    server.freeze();
    for _ in 0..20 {
        let mut left = Box::pin(pages.get("overview", "application/json"));
        assert!(futures_util::poll!(left.as_mut()).is_pending());
    }
    server.thaw();
    assert_eq!(pages.json("overview").await["locks"][0]["lock"], "key");
    let sent = CommandStats::read(&mut redis).await.since(&before);
    assert_eq!(sent.calls("scan"), 1);
}

// D2, U4: refusals were a line of plain text, without the headers of all other responses.
#[tokio::test]
async fn a_request_that_cannot_be_read_is_refused_in_the_form_that_it_asks_for() {
    let locks = Locks::in_memory();
    let pages = Pages::of(&locks);
    let form = |kind: &str, body: &'static str| {
        let request = Request::post("/admin/locks/release").header("content-type", kind);
        (request, Body::from(body))
    };
    let get = |path: &str| (Request::get(format!("/admin/locks/{path}")), Body::empty());
    for ((request, body), expected, code) in [
        (get("lock"), 400, "request-unreadable"),
        (get("lock?name=k&from=x"), 400, "request-unreadable"),
        (get("node?most=abc"), 400, "request-unreadable"),
        (get("overview?by=nothing"), 400, "request-unreadable"),
        (get("nothing"), 404, "page-unknown"),
        (get("release"), 405, "method-unknown"),
        (form("application/x-www-form-urlencoded", "name=k"), 422, "request-unreadable"),
        (form("text/plain", "name=k&token=x"), 415, "request-unreadable"),
    ] {
        let request = request.header("accept", "application/json").body(body).unwrap();
        let which = request.uri().clone();
        let response = pages.ask(request).await;
        let headers = response.headers();
        assert_eq!(headers["content-type"], "application/problem+json", "{which}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{which}");
        assert_eq!(headers["cache-control"], "no-store", "{which}");
        assert!(headers.contains_key("content-security-policy"), "{which}");
        let (status, text) = read(response).await;
        assert_eq!(status, expected, "{which}: {text}");
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(problem["code"], code, "{which}");
    }
    let (status, page) = read(pages.get("lock?name=k&from=%3Cb%3E", "text/html").await).await;
    assert_eq!(status, 400);
    assert!(page.starts_with("<!DOCTYPE html>") && !page.contains("<b>"), "{page}");
}

// N2: a name copied from the overview or a log was shown as free.
#[tokio::test]
async fn a_name_that_is_free_is_asked_about_where_a_lock_of_that_name_is_held() {
    let store = MemoryStore::new();
    let office = Locks::builder().namespace("office").on_memory(&store).unwrap();
    let all = Locks::builder().on_memory(&store).unwrap();
    let _guard = office.lock("seat:14").await.unwrap();

    // A name with the namespace, which this process knows.
    let pages = Pages::of(&office);
    let page = pages.html("lock?name=office%3Aseat%3A14").await;
    assert!(page.contains("Nobody.") && page.contains("Did you mean"), "{page}");
    assert!(page.contains("href=\"lock?name=seat%3A14\""), "{page}");
    assert_eq!(pages.json("lock?name=office%3Aseat%3A14").await["meant"], json!(["seat:14"]));
    // A name that lacks its first part.
    assert_eq!(pages.json("lock?name=14").await["meant"], json!(["seat:14"]));
    // A name that lacks the namespace, which this process does not know.
    let pages = Pages::of(&all);
    assert_eq!(pages.json("lock?name=seat%3A14").await["meant"], json!(["office:seat:14"]));

    for free in ["lock?name=4", "lock?name=seat%3A15", "lock?name=seat"] {
        assert_eq!(pages.json(free).await.get("meant"), None, "{free}");
        assert!(!pages.html(free).await.contains("Did you mean"), "{free}");
    }
    let page = pages.html("lock?name=office%3Aseat%3A14").await;
    assert!(!page.contains("Did you mean"), "it is held: {page}");
}

#[tokio::test]
async fn pages_have_the_name_by_which_a_lock_is_acquired_and_beside_it_the_name_in_the_store() {
    let locks = Locks::builder().namespace("shop").in_memory().expect("in range");
    let _guard = locks.lock("order:42").await.unwrap();
    let pages = Pages::of(&locks);
    for path in ["node", "overview"] {
        let page = pages.html(path).await;
        let link = "<a href=\"lock?name=order%3A42\"><bdi>order:42</bdi></a>";
        let stored = "<span class=\"stored\"><bdi>shop:order:42</bdi></span>";
        assert!(page.contains(&format!("{link} {stored}")), "{path}: {page}");
    }
    let page = pages.html("lock?name=order%3A42").await;
    assert!(
        page.contains("<p class=\"soft\">In the store: <bdi>shop:order:42</bdi></p>"),
        "{page}"
    );
    assert_eq!(pages.json("lock?name=order%3A42").await["lock"], "shop:order:42");
    let unnamed = Locks::in_memory();
    let _guard = unnamed.lock("order:42").await.unwrap();
    for (path, beside) in [("node", "class=\"stored\""), ("lock?name=order%3A42", "In the store")] {
        let page = Pages::of(&unnamed).html(path).await;
        assert!(!page.contains(beside), "{path}: it is the same");
    }
}

// N15: the overview did not update, and had neither a filter nor the time until the next turn.
#[tokio::test]
async fn the_overview_shows_only_locks_with_a_text_in_their_name_or_in_their_holder() {
    let locks = Locks::builder().namespace("shop").in_memory().expect("in range");
    let _one = locks.key("order:1").label("web-1").lock().await.unwrap();
    let _two = locks.key("cart:2").label("<Job> 7").lock().await.unwrap();
    let pages = Pages::of(&locks);
    for (text, names) in [
        ("ORDER", vec!["order:1"]),
        ("%3Cjob", vec!["cart:2"]),
        ("shop%3A", vec!["cart:2", "order:1"]),
        ("nothing", vec![]),
    ] {
        let seen = pages.json(&format!("overview?by=oldest-wait&has={text}")).await;
        let mut found: Vec<_> =
            seen["locks"].as_array().unwrap().iter().map(|lock| &lock["name"]).collect();
        found.sort_by_key(|name| name.as_str());
        assert_eq!(found, names, "{text}");
        assert_eq!((&seen["found"], &seen["matching"]), (&json!(2), &json!(names.len())));
    }
    let page = pages.html("overview?has=%3Cjob").await;
    assert!(page.contains("value=\"&lt;job\""), "{page}");
    assert!(page.contains("overview?by=oldest-wait&amp;has=%3Cjob"), "it stays: {page}");
    assert!(page.contains("1 match the filter."), "{page}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_told_its_turn_as_the_queue_was_seen_to_go() {
    let locks = Locks::in_memory();
    let mut held = locks.lock("doc").await.unwrap();
    let mut waits = Vec::new();
    for place in 1..=6 {
        waits.push(wait(&locks, "doc", "next", place).await);
    }
    let pages = Pages::of(&locks);
    for turn in 0..4 {
        let waiters = &pages.json("lock?name=doc").await["waiters"];
        let busy = &pages.json("overview").await["locks"][0];
        let known = turn >= 2;
        assert_eq!(waiters[0]["turn_in_ms"].as_u64(), known.then_some(10_000), "{waiters}");
        assert_eq!(waiters[2]["turn_in_ms"].as_u64(), known.then_some(30_000), "{waiters}");
        assert_eq!(busy["turn_in_ms"].as_u64(), known.then_some(10_000), "{busy}");
        tokio::time::sleep(Duration::from_secs(10)).await;
        held.release().await.unwrap();
        held = waits.remove(0).await.unwrap().unwrap();
    }
    assert!(pages.html("lock?name=doc").await.contains("Turn in"));
}

// N15: permits "have none".
#[tokio::test]
async fn permits_have_no_token_on_the_page_of_their_lock() {
    let locks = Locks::in_memory();
    let _permit = locks.permit("pool", 3).await.unwrap();
    assert_eq!(Pages::of(&locks).json("lock?name=pool").await["token"], Value::Null);
}

// N9: ten minutes after a storm, nothing showed which lock was affected.
#[tokio::test(start_paused = true)]
async fn the_last_minutes_are_seen_by_who_looks_afterwards() {
    let (log, _here) = Log::listen();
    let locks = Locks::builder().namespace("shop").in_memory().expect("in range");
    let pages = Pages::of(&locks);
    let guard = locks.key("order:42").class("pay").lock().await.unwrap();
    let storm =
        |_| locks.key("order:42").class("pay").queue_limit(1).wait(Duration::from_secs(30)).lock();
    let refused = futures_util::future::join_all((0..4).map(storm)).await;
    assert_eq!(refused.iter().filter(|one| one.is_err()).count(), 4);
    drop(guard);
    tokio::time::sleep(Duration::from_secs(60)).await;

    let seen = pages.json("node").await;
    let [past] = seen["past"].as_array().unwrap().as_slice() else { panic!("{seen}") };
    assert_eq!(past["class"], "pay");
    let sum = |of: &str| past[of].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!(sum("refused"), 4, "{past}");
    assert!(sum("waiting") >= 5 && sum("holding") >= 5, "{past}");
    let samples = past["refused"].as_array().unwrap();
    assert!((18..=21).contains(&samples.len()), "one each five seconds: {past}");
    assert_eq!(samples.last(), Some(&json!(0)));
    let warned = log.warnings();
    let full: Vec<_> = warned.iter().filter(|line| line.contains("the queue was full")).collect();
    assert!(matches!(*full, [line] if line.contains(" lock=shop:order:42 times=1 ")), "{warned:?}");
    let [hour] = seen["hottest"].as_array().unwrap().as_slice() else { panic!("{seen}") };
    assert_eq!(
        hour["refused"],
        json!([{ "lock": "shop:order:42", "name": "order:42", "times": 4 }])
    );
    assert_eq!(hour["waited"][0]["name"], "order:42");
    assert_eq!(hour["waited"][0]["longest_ms"], 30_000);

    let page = pages.html("node").await;
    for part in [
        "<svg class=\"plot waiting\"",
        "aria-label=\"pay, refused in 5 s: at most 3",
        "4 in all",
        "4 ×",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_task_that_takes_samples_ends_with_the_dashboard() {
    let locks = Locks::in_memory();
    drop(locks.lock("key").await.unwrap());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let pages = Pages::of(&locks);
    for _ in 0..3 {
        pages.html("node").await;
    }
    assert_eq!(tasks(), before + 1);
    drop(pages);
    eventually("it has ended", SOON, async || tasks() == before).await;
}

#[test]
fn a_dashboard_that_is_built_outside_of_a_runtime_takes_samples_from_the_first_look_on() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lasting = runtime();
    let locks = lasting.block_on(async { Locks::in_memory() });
    let pages = Pages::of(&locks);
    lasting.block_on(async {
        let _guard = locks.lock("key").await.unwrap();
        pages.html("node").await;
        eventually("there is a sample", SOON, async || {
            pages.json("node").await["past"][0]["holding"] == json!([1])
        })
        .await;
    });
    drop(lasting);
    // The page view in another runtime starts the task again, because the first runtime has ended
    // it.
    runtime().block_on(async {
        eventually("there is another sample", SOON, async || {
            pages.json("node").await["past"][0]["holding"].as_array().unwrap().len() > 1
        })
        .await;
    });
}
