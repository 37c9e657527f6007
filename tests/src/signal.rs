//! Signals to child processes, by process id.
//!
//! Every function panics if there is no such process: a fault that hits no process proves nothing.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Kills the process at once (SIGKILL). It stays a zombie until its parent waits for it.
pub fn kill(pid: u32) {
    send(pid, Signal::KILL);
}

/// Requests the process to end (SIGTERM).
pub fn terminate(pid: u32) {
    send(pid, Signal::TERM);
}

/// Interrupts the process (SIGINT), like Ctrl-C.
pub fn interrupt(pid: u32) {
    send(pid, Signal::INT);
}

/// Stops a child of this process (SIGSTOP); it has stopped when this returns.
///
/// # Panics
///
/// If the process is no child of this one, or has not stopped within 10 s.
pub fn stop(pid: u32) {
    send(pid, Signal::STOP);
    await_change(pid, WaitIdOptions::STOPPED, "stopped");
}

/// Stops this process itself (SIGSTOP), until another process resumes it.
pub fn stop_self() {
    send(std::process::id(), Signal::STOP);
}

/// Resumes a stopped child of this process (SIGCONT); it runs again when this returns.
///
/// # Panics
///
/// If the process is no child of this one, or was not stopped.
pub fn resume(pid: u32) {
    send(pid, Signal::CONT);
    await_change(pid, WaitIdOptions::CONTINUED, "continued");
}

/// Resumes a child of this process (SIGCONT) if it is stopped; it may also have ended.
pub fn go_on(pid: u32) {
    send(pid, Signal::CONT);
}

fn send(pid: u32, signal: Signal) {
    if let Err(error) = kill_process(id(pid), signal) {
        panic!("process {pid} did not get {signal:?}: {error}");
    }
}

/// Waits until this signal has taken effect, by querying the kernel: signals take effect some time
/// after they are sent.
fn await_change(pid: u32, change: WaitIdOptions, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        // Without EXITED this never reaps the child: its parent does that.
        match waitid(WaitId::Pid(id(pid)), change | WaitIdOptions::NOHANG) {
            Ok(Some(_)) => return,
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("process {pid} is no child of the tests: {error}"),
        }
    }
    panic!("process {pid} has not {name} within 10 s");
}

fn id(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id is a positive i32")
}
