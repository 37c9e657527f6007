//! CMD and the processes that it has started, as Linux lists them in `/proc`.

use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, test_kill_process, waitpid};

/// One line of the process table.
struct Process {
    id: Pid,
    parent: Option<Pid>,
    has_ended: bool,
}

/// Makes this process the new parent of each process below it whose own parent ends: `descendants`
/// finds also those that went to the background or into a session of their own.
pub(crate) fn adopt() {
    #[cfg(target_os = "linux")]
    {
        // Where this is not allowed, a loss stops only the processes that still have their parents.
        let _ = rustix::process::set_child_subreaper(Some(getpid()));
    }
}

/// All processes below this one that it may send signals to. Empty where there is no `/proc`.
pub(crate) fn descendants() -> Vec<Pid> {
    let all = table();
    let mut found = vec![getpid()];
    let mut at = 0;
    while at < found.len() {
        let children = all.iter().filter(|process| process.parent == Some(found[at]));
        found.extend(children.map(|process| process.id).collect::<Vec<_>>());
        at += 1;
    }
    found.remove(0);
    found.retain(|id| {
        // A process that has changed its user is not ours to stop.
        all.iter().any(|process| process.id == *id && !process.has_ended)
            && test_kill_process(*id).is_ok()
    });
    found
}

/// Sends a signal to each process. One that has ended meanwhile gets none: its id is not used again
/// so soon.
pub(crate) fn send(all: &[Pid], signal: Signal) {
    for id in all {
        let _ = kill_process(*id, signal);
    }
}

/// Forgets adopted processes that have ended, as their parent has to. `command` is CMD's, whose
/// status is still needed.
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

/// `stat` is `ID (NAME) STATE PARENT …`, and the name may hold anything.
fn process(id: &str) -> Option<Process> {
    let id: i32 = id.parse().ok()?;
    let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let has_ended = matches!(fields.next()?, "Z" | "X");
    let parent = Pid::from_raw(fields.next()?.parse().ok()?);
    Some(Process { id: Pid::from_raw(id)?, parent, has_ended })
}
