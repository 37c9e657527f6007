//! The fault panel: buyers' processes are killed, frozen and disconnected.

use std::path::Path;
use std::time::Duration;

use lock_tests::{RedisServer, eventually, eventually_some, signal};
use serde_json::{Value, json};

use crate::office::{Answer, Office, SOON, answer, command};
use crate::scratch::Scratch;
use crate::sse::Events;

/// The seat at which the buyers take turns: the last.
const SEAT: u32 = 3;

/// An office with the panel, and buyers that wait for each other.
struct Stage {
    office: Office,
    _scratch: Scratch,
    _server: RedisServer,
}

impl Stage {
    /// Opens an office whose payments take `pay_ms`, with a lease of 2 s.
    async fn open(pay_ms: u64) -> Self {
        let (server, scratch) = (RedisServer::start(), Scratch::new());
        let (url, database, pay) = (server.url(), scratch.database(), pay_ms.to_string());
        let arguments = ["--redis", &url, "--database", &database, "--pay-ms", &pay];
        let more = ["--seats", "3", "--lease", "2", "--faults"];
        let office = Office::open(&[arguments.as_slice(), &more].concat()).await;
        Self { office, _scratch: scratch, _server: server }
    }

    async fn post(&self, path: &str) -> Answer {
        answer(self.office.post(&format!("/faults/buyers{path}"), "text/plain", "")).await
    }

    /// Starts a buyer, and waits until it is queued.
    async fn start(&self, number: u32) {
        let started = self.post("").await;
        assert_eq!(started.status, 201, "{started:?}");
        let name = format!("Buyer {number}");
        eventually(&format!("{name} is queued"), SOON, async || {
            let line = self.office.get(&format!("/seats/{SEAT}/line")).await.body;
            line["holder"] == json!(name)
                || line["waiters"].as_array().is_some_and(|all| all.contains(&json!(name)))
        })
        .await;
    }

    async fn fault(&self, number: u32, fault: &str) {
        let done = self.post(&format!("/{number}/{fault}")).await;
        assert_eq!(done.status, 200, "{done:?}");
    }

    async fn panel(&self) -> Value {
        self.office.get("/faults").await.body
    }

    /// Waits until a buyer reaches this stage, with a token above `after`; returns the token.
    async fn until(&self, number: u32, stage: &str, after: u64) -> u64 {
        eventually_some(&format!("buyer {number}: {stage}"), 2 * SOON, async || {
            let panel = self.panel().await;
            let buyers = panel["buyers"].as_array()?.clone();
            let buyer = buyers.into_iter().find(|buyer| buyer["number"] == number)?;
            let token = buyer["last"]["token"].as_u64()?;
            (buyer["last"]["stage"] == stage && token > after).then_some(token)
        })
        .await
    }

    /// Waits until the panel has this write report.
    async fn until_reported(&self, number: u32, stage: &str, token: u64) {
        let what = format!("buyer {number} reports {stage} of {token}");
        eventually(&what, 2 * SOON, async || {
            let panel = self.panel().await;
            panel["reports"].as_array().is_some_and(|reports| {
                reports.iter().any(|report| {
                    report["name"] == format!("Buyer {number}")
                        && report["stage"] == stage
                        && report["token"] == token
                })
            })
        })
        .await;
    }

    async fn pid(&self, number: u32) -> u32 {
        let panel = self.panel().await;
        let pid = panel["buyers"][number as usize - 1]["pid"].as_u64();
        pid.and_then(|pid| pid.try_into().ok()).expect("it runs")
    }
}

#[tokio::test]
async fn a_killed_holder_and_a_killed_waiter_do_not_stop_the_queue() {
    let stage = Stage::open(30_000).await;
    stage.start(1).await;
    let first = stage.until(1, "paying", 0).await;
    stage.start(2).await;
    stage.start(3).await;
    let dead = stage.pid(2).await;
    stage.fault(2, "kill").await;
    stage.fault(1, "kill").await;
    let next = stage.until(3, "paying", first).await;
    assert!(next > first);
    eventually("it has ended, and is no zombie", SOON, async || {
        !Path::new(&format!("/proc/{dead}")).exists()
    })
    .await;
    let panel = stage.panel().await;
    assert_eq!(panel["written"], 0, "{panel}");
    let ended = &panel["buyers"][1];
    assert_eq!((&ended["is_killed"], &ended["has_ended"]), (&json!(true), &json!(true)));
    stage.post("/2/thaw").await.refuses(404, "buyer-unknown");
}

#[tokio::test]
async fn the_late_write_of_a_frozen_holder_is_refused_and_counted() {
    let stage = Stage::open(3_000).await;
    stage.start(1).await;
    let old = stage.until(1, "paying", 0).await;
    stage.fault(1, "freeze").await;
    let stale = stage.until(1, "paying", old - 1).await;
    stage.start(2).await;
    let new = stage.until(2, "paying", stale).await;
    stage.until_reported(2, "written", new).await;
    assert_eq!(stage.panel().await["refused"], 0);
    stage.fault(1, "thaw").await;
    stage.until_reported(1, "refused", stale).await;
    let panel = stage.panel().await;
    assert_eq!(panel["refused"], 1, "{panel}");
    let metrics = stage.office.get("/metrics").await;
    assert!(metrics.text.contains("ticket_office_fenced_total 1\n"), "{}", metrics.text);
    // It queues again, and is served.
    let served = stage.until(1, "paying", new).await;
    stage.until_reported(1, "written", served).await;
}

#[tokio::test]
async fn a_holder_that_is_cut_off_loses_its_lock_and_comes_back() {
    let stage = Stage::open(5_000).await;
    stage.start(1).await;
    let old = stage.until(1, "paying", 0).await;
    stage.fault(1, "cut-off").await;
    stage.start(2).await;
    // The lease of 2 s expires before the payment ends.
    let new = stage.until(2, "paying", old).await;
    stage.until_reported(1, "refused", old).await;
    stage.until_reported(2, "written", new).await;
    stage.fault(1, "reconnect").await;
    assert!(stage.until(1, "paying", new).await > new);
}

#[tokio::test]
async fn a_page_follows_the_panel() {
    let stage = Stage::open(200).await;
    let mut events = Events::of(stage.office.ask("/events")).await;
    stage.start(1).await;
    let written = async {
        loop {
            let (name, panel) = events.next().await.expect("it has not ended");
            if name == "faults" && panel["written"].as_u64() > Some(1) {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, written).await.expect("it is shown in time");
}

#[tokio::test]
async fn buyers_end_with_their_office_also_frozen_ones() {
    let stage = Stage::open(1_000).await;
    stage.start(1).await;
    stage.start(2).await;
    stage.until(1, "paying", 0).await;
    stage.fault(1, "freeze").await;
    let pids = [stage.pid(1).await, stage.pid(2).await];
    signal::kill(stage.office.pid());
    stage.office.end().await;
    for pid in pids {
        eventually("the buyer has ended", SOON, async || has_ended(pid)).await;
    }
}

/// Whether a process has exited, even if not yet reaped by its new parent.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']))
}

#[tokio::test]
async fn at_most_8_buyers_run_at_once() {
    let stage = Stage::open(100).await;
    for _ in 0..8 {
        assert_eq!(stage.post("").await.status, 201);
    }
    stage.post("").await.refuses(409, "buyers-full");
}

#[tokio::test]
async fn another_sites_page_cannot_send_a_fault() {
    let stage = Stage::open(100).await;
    let request = || stage.office.post("/faults/buyers", "text/plain", "");
    answer(request().header("origin", "https://example.org")).await.refuses(403, "cross-site");
    answer(request().header("host", "example.org")).await.refuses(403, "cross-site");
    assert_eq!(stage.panel().await["buyers"], json!([]));
    let own = answer(request().header("origin", stage.office.url(""))).await;
    assert_eq!(own.status, 201, "{own:?}");
}

#[tokio::test]
async fn without_the_flag_there_is_no_panel_and_with_it_only_where_it_can_do_no_harm() {
    let office = Office::open(&[]).await;
    office.get("/faults").await.refuses(404, "faults-off");
    answer(office.post("/faults/buyers", "text/plain", "")).await.refuses(404, "faults-off");
    let redis = "redis://127.0.0.1:1/";
    for arguments in [
        ["--faults", "--listen=0.0.0.0:0", "--database=/nowhere/x", &format!("--redis={redis}")],
        ["--faults", "--listen=127.0.0.1:0", "--database=:memory:", &format!("--redis={redis}")],
        ["--faults", "--listen=127.0.0.1:0", "--database=/nowhere/x", "--redis="],
        [
            "--faults",
            "--listen=127.0.0.1:0",
            "--database=/nowhere/x",
            "--redis=redis+cluster://127.0.0.1",
        ],
    ] {
        let ended = command(&arguments).output();
        let ended = tokio::time::timeout(Duration::from_secs(30), ended).await.expect("it ends");
        let ended = ended.expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.starts_with("ticket-office: --faults: "), "{said}");
    }
}
