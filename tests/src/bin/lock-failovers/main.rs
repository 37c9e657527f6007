//! `lock-failovers`: failovers under load, one after the other, and what each cost: leases that
//! overlapped, updates that were lost, tokens that fell, places that were lost, and for how long
//! nothing was granted.
//!
//! Each failover is a line of a file; a run goes on where the last one ended, and `--table` puts
//! all lines of a file together.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it says what it counts")]

mod count;
mod fault;
mod line;
mod load;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use fault::{Fault, Scene};
use line::Line;
use load::Load;

const USAGE: &str = "usage: lock-failovers FILE COUNT [KIND...] [--replicas N] [--careful]
       lock-failovers FILE --table
  KIND        kill, freeze, cut, planned (default: all, in turns)
  --replicas  require_replicas(N, 500 ms) for every grant
  --careful   min-replicas-to-write 1 on every server";
/// The load runs for so long before a fault,
const BEFORE: Duration = Duration::from_secs(1);
/// and after the new primary is there.
const AFTER: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (flags, words): (Vec<&str>, Vec<&str>) =
        words.iter().map(String::as_str).partition(|word| word.starts_with("--"));
    match (words.as_slice(), flags.as_slice()) {
        ([file], ["--table"]) => {
            let text = std::fs::read_to_string(file).expect("FILE can be read");
            print!("{}", line::table(text.lines().map(Line::parse)));
            ExitCode::SUCCESS
        }
        ([file, count, kinds @ ..], flags) => {
            let count = count.parse().expect("COUNT is a number");
            let mut kinds: Vec<Fault> = kinds.iter().filter_map(|kind| Fault::of(kind)).collect();
            if kinds.is_empty() {
                kinds = Fault::ALL.to_vec();
            }
            let replicas = flags.iter().find_map(|flag| flag.strip_prefix("--replicas="));
            let replicas = replicas.map_or(0, |count| count.parse().expect("--replicas=N"));
            let careful = flags.contains(&"--careful");
            let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
            runtime.block_on(run(file.as_ref(), count, &kinds, replicas, careful));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(64)
        }
    }
}

async fn run(file: &Path, count: usize, kinds: &[Fault], replicas: u32, careful: bool) {
    let mut file = OpenOptions::new().create(true).append(true).open(file).expect("FILE");
    let mut scene = Scene::start(careful).await;
    for turn in 0..count {
        let fault = kinds[turn % kinds.len()];
        let load = Load::start(&scene.url(), replicas).await;
        tokio::time::sleep(BEFORE).await;
        let began = load.now();
        scene.break_by(fault).await;
        let promoted = load.now();
        tokio::time::sleep(AFTER).await;
        let is_alone = scene.mend().await;
        let measured = load.stop().await;
        let line = Line {
            // The sentinels may have seen a fault where there was none, and changed once more.
            kind: if is_alone { fault.name().to_owned() } else { format!("{}+", fault.name()) },
            replicas,
            careful,
            promoted_ms: (promoted - began).as_millis() as u64,
            cost: count::cost(measured, began),
        };
        println!("{line}");
        writeln!(file, "{line}").expect("FILE can be written");
    }
}
