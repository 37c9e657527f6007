//! CMD and all descendants, as Linux lists them in `/proc`.

use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, test_kill_process, waitpid};

pub(crate) struct Process {
    id: Pid,
    parent: Option<Pid>,
    has_ended: bool,
    /// When it started, in clock ticks since boot: ids are reused.
    started: u64,
}

/// Makes this process the new parent of orphaned descendants, so that `descendants` also finds
/// processes in the background or in a separate session.
pub(crate) fn adopt() {
    #[cfg(target_os = "linux")]
    {
        // If this is not allowed, a loss stops only processes that still have their parents.
        let _ = rustix::process::set_child_subreaper(Some(getpid()));
    }
}

/// Returns all descendants of this process, except the processes in `earlier` and what they have
/// started since. Empty without `/proc`.
pub(crate) fn descendants(earlier: &[Process]) -> Vec<Process> {
    let mut all = table();
    all.retain(|one| !earlier.iter().any(|it| (it.id, it.started) == (one.id, one.started)));
    let mut found = Vec::new();
    let mut parents = vec![getpid()];
    while let Some(parent) = parents.pop() {
        for child in all.extract_if(.., |process| process.parent == Some(parent)) {
            parents.push(child.id);
            found.push(child);
        }
    }
    found
}

/// Returns the ids of the running processes to which this process may send signals: a process that
/// has changed its user is not ours to stop.
pub(crate) fn running(all: &[Process]) -> Vec<Pid> {
    let running = all.iter().filter(|process| !process.has_ended).map(|process| process.id);
    running.filter(|id| test_kill_process(*id).is_ok()).collect()
}

/// Sends a signal to each of these processes, which were just listed. If a process has ended
/// meanwhile, no other process receives the signal, because ids are not reused that quickly.
pub(crate) fn send(all: &[Pid], signal: Signal) {
    for id in all {
        let _ = kill_process(*id, signal);
    }
}

/// Reaps the processes that [`adopt`] has made children of this process, once they have ended.
/// Leaves CMD, whose id is `command`, because its exit status is still needed.
pub(crate) fn reap(command: Option<Pid>) {
    let own = Some(getpid());
    for process in table() {
        if process.has_ended && process.parent == own && Some(process.id) != command {
            let _ = waitpid(Some(process.id), WaitOptions::NOHANG);
        }
    }
}

fn table() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| process(entry.file_name().to_str()?)).collect()
}

/// Returns the process with this id; `None` if there is none. Parses `/proc/ID/stat`, which is
/// `ID (NAME) STATE PARENT …` with the start as field 22; the name may contain any character.
fn process(id: &str) -> Option<Process> {
    let id: i32 = id.parse().ok()?;
    let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let has_ended = matches!(fields.next()?, "Z" | "X");
    let parent = Pid::from_raw(fields.next()?.parse().ok()?);
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { id: Pid::from_raw(id)?, parent, has_ended, started })
}
