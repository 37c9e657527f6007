//! `lock-simulate [--seed N] [--runs N] [--events N] [KIND...]`: runs seeds until a law is broken, and says which seed it was.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;
use std::time::Instant;

use lock_simulate::{Outcome, Plan, run};

fn main() -> ExitCode {
    let (mut seed, mut runs, mut events, mut kinds) = (1, 100, 200_000, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let number = match argument.as_str() {
            "--seed" => &mut seed,
            "--runs" => &mut runs,
            "--events" => &mut events,
            kind if Plan::KINDS.iter().any(|(name, _)| *name == kind) => {
                kinds.push(argument);
                continue;
            }
            _ => return usage(),
        };
        match arguments.next().and_then(|value| value.parse().ok()) {
            Some(value) => *number = value,
            None => return usage(),
        }
    }
    let begun = Instant::now();
    let mut total = Outcome::default();
    for seed in seed..seed + runs {
        for (kind, faults) in Plan::KINDS {
            if !kinds.is_empty() && !kinds.iter().any(|wanted| wanted == kind) {
                continue;
            }
            let size = 2 + seed % 20;
            let plan = Plan {
                seed,
                events,
                nodes: size,
                callers: 1 + seed % 9,
                locks: 1 + seed % 7,
                faults,
            };
            match run(plan) {
                Ok(outcome) => {
                    total.events += outcome.events;
                    total.holds += outcome.holds;
                    total.lost += outcome.lost;
                    total.killed += outcome.killed;
                }
                Err(broken) => {
                    eprintln!("{kind}, seed {seed}: {broken}");
                    eprintln!(
                        "again: lock-simulate --seed {seed} --runs 1 --events {events} {kind}"
                    );
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    let Outcome { events, holds, lost, killed, .. } = total;
    println!(
        "{events} events, {holds} holds ({lost} lost), {killed} processes killed, no law broken, {:.1?}",
        begun.elapsed()
    );
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    let kinds: Vec<_> = Plan::KINDS.iter().map(|(name, _)| *name).collect();
    eprintln!("usage: lock-simulate [--seed N] [--runs N] [--events N] [{}]...", kinds.join(" | "));
    ExitCode::FAILURE
}
