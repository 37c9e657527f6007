//! The records of failovers, one per line of a file: a run continues where the last one ended, and
//! `--table` summarises all lines of a file.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::process::ExitCode;

use lock_tests::chaos::{Failover, FailoverPlan, Fault, failover_table};

use crate::{main_loop, say};

/// Runs `COUNT [KIND...] [--replicas=N] [--careful | --cluster]`, or prints the table of a file.
pub(crate) fn failovers(file: &str, words: &[&str]) -> ExitCode {
    let (flags, words): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with("--"));
    if flags == ["--table"] {
        let text = fs::read_to_string(file).expect("FILE can be read");
        say(failover_table(text.lines().map(Failover::parse)).trim_end());
        return ExitCode::SUCCESS;
    }
    let [count, kinds @ ..] = words.as_slice() else { panic!("COUNT is missing") };
    let mut plan = FailoverPlan {
        faults: kinds.iter().map(|kind| kind.parse().expect("a kind")).collect(),
        count: count.parse().expect("COUNT is a number"),
        replicas: 0,
        careful: false,
        cluster: false,
    };
    for flag in flags {
        match flag.split_once('=') {
            Some(("--replicas", count)) => plan.replicas = count.parse().expect("N is a number"),
            None if flag == "--careful" => plan.careful = true,
            None if flag == "--cluster" => plan.cluster = true,
            _ => panic!("no such option: {flag}"),
        }
    }
    if plan.faults.is_empty() {
        plan.faults = Fault::ALL.to_vec();
    }
    main_loop(run(file, &plan))
}

async fn run(file: &str, plan: &FailoverPlan) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let mut file = OpenOptions::new().create(true).append(true).open(file).expect("FILE");
    let report = |failover: Failover| {
        say(&failover.to_string());
        writeln!(file, "{failover}").expect("FILE can be written");
        for violation in failover.violations() {
            say(&format!("  {violation}"));
            code = ExitCode::FAILURE;
        }
    };
    plan.run(report).await;
    code
}
