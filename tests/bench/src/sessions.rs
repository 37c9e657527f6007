//! The processor time of PostgreSQL, which serves each session in a separate process.

use std::fs;

use lock_tests::Postgres;

/// The processor time of all its processes so far, µs.
pub(crate) fn cpu_us(server: &Postgres) -> f64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let ours = server.pid();
    pids.filter(|pid| *pid == ours || parent(*pid) == Some(ours)).map(run_us).sum()
}

/// The processor time of a single-threaded process so far, µs: more precise than the count for all
/// threads.
fn run_us(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e3
}

fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
