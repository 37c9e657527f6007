//! Compares dropped guards with released guards: alternating on few threads with a distant server,
//! in a flood of cancelled waits, and many at once.

use std::process::ExitCode;
use std::time::Duration;

use lock_tests::chaos::{
    GuardEnd, Turns, Workers, hand_over_in_a_flood, ping_in_a_burst, turns_of,
};

use crate::say;

/// The number of time slices per row, to show whether throughput stays flat.
const PARTS: usize = 4;
const ROUNDS: usize = 5;
const BURST: usize = 20_000;

/// Measures each row for the given seconds with either kind of end. Only two results are judged:
/// the bound of holds without an owner, and a hand-off that does not wait for the flood. Ratios
/// depend on the machine.
pub(crate) fn dropped(seconds: u64) -> ExitCode {
    let mut is_kept = true;
    let part = Duration::from_secs(seconds) / PARTS as u32;
    for (threads, each_way_ms) in [(1, 0), (2, 0), (2, 25)] {
        for tasks in [100, 1_000] {
            let each_way = Duration::from_millis(each_way_ms);
            let workers = Workers { threads, each_way, tasks };
            let [dropped, released] = [GuardEnd::Dropped, GuardEnd::Released]
                .map(|end| turns_of(workers, end, (PARTS, part)));
            let sum = |turns: &Turns| turns.parts.iter().sum::<u64>() as f64;
            let each = |turns: &Turns| -> Vec<u64> {
                turns.parts.iter().map(|turns| turns * PARTS as u64 / seconds.max(1)).collect()
            };
            say(&format!(
                "{tasks} tasks, {threads} threads, {each_way_ms} ms each way: dropped / released \
                 {:.2}; turns a second {:?} / {:?}; without an owner at most {} / {}",
                sum(&dropped) / sum(&released),
                each(&dropped),
                each(&released),
                dropped.releasing,
                released.releasing,
            ));
            is_kept &= dropped.releasing < 2 * tasks;
        }
    }
    for each_way_ms in [0, 1, 5] {
        let each_way = Duration::from_millis(each_way_ms);
        let [dropped, released] = [GuardEnd::Dropped, GuardEnd::Released].map(|end| {
            let mut took: Vec<_> =
                (0..ROUNDS).map(|_| hand_over_in_a_flood(each_way, end)).collect();
            took.sort_unstable();
            took[ROUNDS / 2]
        });
        say(&format!(
            "5000 waits cancelled at once, {each_way_ms} ms each way: handed over after \
             {dropped:.1?} if dropped, {released:.1?} if released"
        ));
        is_kept &= dropped <= 2 * released + Duration::from_millis(20);
    }
    let [dropped, released] =
        [GuardEnd::Dropped, GuardEnd::Released].map(|end| ping_in_a_burst(BURST, end));
    say(&format!(
        "{BURST} guards at once: the longest PING of another {dropped:.1?} if dropped, \
         {released:.1?} if released"
    ));
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
