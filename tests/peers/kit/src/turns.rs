//! The command `loop`: many tasks that acquire a lock, hold it and release it, over and over.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::line::Line;
use crate::{Peer, now, say};

/// When the request, the grant, and the begin and the end of the release happened; 0 for an event
/// that did not happen.
type Turn = [u64; 4];

#[derive(Clone, Copy)]
struct Plan {
    first: usize,
    step: usize,
    hold: Duration,
    patience: Duration,
    until: u64,
}

pub(crate) async fn run<P: Peer>(peer: &Arc<P>, line: &Line<'_>) {
    let keys = std::fs::read_to_string(line.text("keys")).expect("the driver wrote the keys");
    let keys: Arc<[String]> = keys.lines().map(str::to_owned).collect();
    let mut tasks = Vec::new();
    let mut ends = Vec::new();
    let plan = Plan {
        first: 0,
        step: line.number("step") as usize,
        hold: Duration::from_micros(line.number("hold_us")),
        patience: Duration::from_micros(line.number("patience_us")),
        until: line.number("until"),
    };
    for task in 0..line.number("tasks") as usize {
        let first = line.number("first") as usize + task * line.number("stride") as usize;
        let (end, over) = oneshot::channel();
        ends.push(end);
        tasks.push(tokio::spawn(turns(peer.clone(), keys.clone(), Plan { first, ..plan }, over)));
    }
    sleep(Duration::from_nanos(plan.until.saturating_sub(now()))).await;
    drop(ends);
    let file = std::fs::File::create(line.text("records")).expect("the driver made the directory");
    let mut file = std::io::BufWriter::new(file);
    for (task, turns) in tasks.into_iter().enumerate() {
        for [asked, granted, giving, given] in turns.await.expect("a task without a panic") {
            writeln!(file, "{task} {asked} {granted} {giving} {given}").expect("room on the disk");
        }
    }
    file.flush().expect("room on the disk");
    say("looped");
}

async fn turns<P: Peer>(
    peer: Arc<P>,
    keys: Arc<[String]>,
    plan: Plan,
    mut over: oneshot::Receiver<()>,
) -> Vec<Turn> {
    let mut turns = Vec::new();
    while now() < plan.until {
        let key = keys[(plan.first + turns.len() * plan.step) % keys.len()].clone();
        let asked = now();
        let hold = tokio::select! {
            hold = take(&*peer, key, patience(plan.patience, plan.first + turns.len())) => hold,
            _ = &mut over => None,
        };
        let Some(hold) = hold else {
            turns.push([asked, 0, 0, 0]);
            continue;
        };
        let granted = now();
        if !plan.hold.is_zero() {
            sleep(plan.hold).await;
        }
        let giving = now();
        peer.give(hold).await;
        turns.push([asked, granted, giving, now()]);
    }
    turns
}

/// The wait limit of a turn: different for each turn, up to the maximum, and the same in every run.
fn patience(greatest: Duration, number: usize) -> Option<Duration> {
    (!greatest.is_zero()).then(|| greatest * (number * 7919 % 1000) as u32 / 1000)
}

pub(crate) async fn take<P: Peer>(
    peer: &P,
    key: String,
    patience: Option<Duration>,
) -> Option<P::Hold> {
    match patience {
        Some(patience) => timeout(patience, peer.take(key)).await.ok(),
        None => Some(peer.take(key).await),
    }
}
