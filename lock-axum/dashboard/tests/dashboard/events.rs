//! The event streams that update open pages.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::BodyDataStream;
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use lock_dashboard::Dashboard;
use lock_tests::{CommandStats, Raw, RedisServer, eventually};
use lockcore::Locks;
use tokio_util::sync::CancellationToken;

use crate::support::{Pages, SOON, read, wait};

const EVENTS: &str = "text/event-stream";

/// A reader of the markup in a response's server-sent events.
struct Events(BodyDataStream);

impl Events {
    fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self(response.into_body().into_data_stream())
    }

    /// Returns the markup of the next event; `None` once the response has ended.
    async fn next(&mut self) -> Option<String> {
        loop {
            let chunk = self.0.next().await?.unwrap();
            let text = std::str::from_utf8(&chunk).unwrap();
            let data: Vec<_> =
                text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            match data.as_slice() {
                [] => {} // an empty event detects a closed page
                [data] => return Some(serde_json::from_str(data).unwrap()),
                _ => panic!("one line an event: {text}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_page_is_told_each_second_how_it_looks_now() {
    let locks = Locks::in_memory();
    let guard = locks.key("key").label("a\r\nb").lock().await.unwrap();
    let pages = Pages::of(&locks);
    let mut node = Events::of(pages.get("node", EVENTS).await);
    let mut lock = Events::of(pages.get("lock?name=key", EVENTS).await);
    assert!(node.next().await.unwrap().contains("a\\r\\nb"));
    assert!(lock.next().await.unwrap().contains("a\\r\\nb"));
    let _waiting = wait(&locks, "key", "<waiter>", 1).await;
    eventually("the waiter is told", SOON, async || {
        let (node, lock) = (node.next().await.unwrap(), lock.next().await.unwrap());
        node.contains("&lt;waiter&gt;") && lock.contains("&lt;waiter&gt;")
    })
    .await;
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_page_end_after_ten_seconds() {
    let pages = Pages::of(&Locks::in_memory());
    let begun = tokio::time::Instant::now();
    let mut events = Events::of(pages.get("node", EVENTS).await);
    let mut count = 0;
    while events.next().await.is_some() {
        count += 1;
    }
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert!((8..=10).contains(&count), "{count}");
}

// N4: the server waited for an open page for a minute.
#[tokio::test]
async fn an_open_page_ends_when_told_and_a_graceful_shutdown_does_not_wait_for_it() {
    let end = CancellationToken::new();
    let dashboard = Dashboard::new(Locks::in_memory()).until(end.clone().cancelled_owned());
    let dashboard = dashboard.into_router();
    let app: Router = Router::new().nest_service("/locks", dashboard);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/locks/node", listener.local_addr().unwrap());
    let shutdown = end.clone().cancelled_owned();
    let server = axum::serve(listener, app).with_graceful_shutdown(shutdown);
    let server = tokio::spawn(server.into_future());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut open = client.get(url).header("accept", EVENTS).send().await.unwrap();
    assert!(open.chunk().await.unwrap().is_some(), "it is live");
    let begun = std::time::Instant::now();
    end.cancel();
    server.await.unwrap().unwrap();
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    while open.chunk().await.unwrap().is_some() {}
}

#[tokio::test]
async fn many_open_pages_cost_the_server_as_much_as_one_and_closed_ones_nothing() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.unwrap();
    let pages = Pages::of(&locks);
    let mut open = Vec::new();
    for _ in 0..50 {
        open.push(Events::of(pages.get("lock?name=key", EVENTS).await));
    }
    for events in &mut open {
        assert!(events.next().await.unwrap().contains("Nobody."));
    }
    let before = CommandStats::read(&mut redis).await;
    let begun = std::time::Instant::now();
    for _ in 0..3 {
        for events in &mut open {
            events.next().await.unwrap();
        }
    }
    let calls = |stats: &CommandStats| stats.calls("evalsha") + stats.calls("eval");
    let sent = CommandStats::read(&mut redis).await.since(&before);
    let seconds = begun.elapsed().as_secs() + 2;
    assert!((3..=2 * seconds).contains(&calls(&sent)), "{} in {seconds} s", calls(&sent));

    drop(open);
    eventually("the task has ended", SOON, async || {
        let before = CommandStats::read(&mut redis).await;
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        calls(&CommandStats::read(&mut redis).await.since(&before)) == 0
    })
    .await;
    // A page that is opened later starts the task again.
    let mut again = Events::of(pages.get("lock?name=key", EVENTS).await);
    assert!(again.next().await.unwrap().contains("Nobody."));
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_open_pages_end_with_them() {
    let locks = Locks::in_memory();
    let pages = Pages::of(&locks);
    // Use a lock first, so that the node has already started its own tasks.
    drop(locks.lock("key").await.unwrap());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let mut open = Events::of(pages.get("node", EVENTS).await);
    let other = Events::of(pages.get("lock?name=key", EVENTS).await);
    let same = Events::of(pages.get("node", EVENTS).await);
    open.next().await.unwrap();
    assert_eq!(tasks(), before + 2, "one for each page that differs");
    drop((open, other, same));
    eventually("it has ended", SOON, async || tasks() == before).await;
}

#[tokio::test]
async fn a_page_that_waits_for_the_server_does_not_delay_a_page_that_needs_none() {
    let server = RedisServer::start();
    let locks = Locks::connect(server.url()).await.unwrap();
    let pages = Pages::of(&locks);
    let mut node = Events::of(pages.get("node", EVENTS).await);
    let mut lock = Events::of(pages.get("lock?name=key", EVENTS).await);
    assert!(node.next().await.is_some());
    assert!(lock.next().await.unwrap().contains("Nobody."));
    server.freeze();
    // Each lookup of the lock ends after the request time-out of 2 s. One may just have been
    // served.
    let mut updates = 0;
    let mut slow = pin!(async { (lock.next().await, lock.next().await) });
    loop {
        match select(slow.as_mut(), pin!(node.next())).await {
            Either::Left(_) => break,
            Either::Right((update, _)) => {
                assert!(update.is_some());
                updates += 1;
            }
        }
    }
    server.thaw();
    assert!(updates >= 3, "{updates}");
}

// N15: the overview did not update.
#[tokio::test(start_paused = true)]
async fn an_open_overview_is_told_how_it_looks_now() {
    let locks = Locks::in_memory();
    let pages = Pages::of(&locks);
    let mut open = Events::of(pages.get("overview?has=web", EVENTS).await);
    assert!(open.next().await.unwrap().contains("None."));
    let _other = locks.key("other").label("job").lock().await.unwrap();
    let _guard = locks.key("key").label("web-1").lock().await.unwrap();
    eventually("it is told", SOON, async || {
        let event = open.next().await.unwrap();
        event.contains("web-1") && !event.contains("other")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_different_page_too_many_stands_still_until_another_is_closed() {
    let pages = Pages::of(&Locks::in_memory());
    let mut open = Vec::new();
    for number in 0..16 {
        open.push(Events::of(pages.get(&format!("lock?name={number}"), EVENTS).await));
    }
    let mut same = Events::of(pages.get("lock?name=3", EVENTS).await);
    assert!(same.next().await.is_some(), "that of another page is no new one");
    let (status, text) = read(pages.get("lock?name=16", EVENTS).await).await;
    assert_eq!(status, 503);
    assert!(text.contains("watchers-full"), "{text}");
    assert!(pages.html("lock?name=16").await.contains("Nobody."), "it is shown");
    open.pop();
    Events::of(pages.get("lock?name=16", EVENTS).await);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_begins_behind_the_highest_position_stops_no_other() {
    let locks = Locks::in_memory();
    let _guard = locks.lock("key").await.unwrap();
    let _waiting = wait(&locks, "key", "next", 1).await;
    let pages = Pages::of(&locks);
    let mut node = Events::of(pages.get("node", EVENTS).await);
    let mut last = Events::of(pages.get("lock?name=key&from=4294967295", EVENTS).await);
    assert!(last.next().await.unwrap().contains("None of 1."));
    for _ in 0..2 {
        assert!(node.next().await.is_some(), "it is updated");
    }
}
