//! `Leash`: ends a child process with the test process, however the test process ends.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The script, which reads until the pipe closes: the kernel closes the pipe when the test process
/// is gone.
const SCRIPT: &str =
    r#"read -r _; kill -9 "$1" 2>/dev/null; if [ -n "$2" ]; then rm -rf -- "$2"; fi"#;

/// Kills a process when *this* process ends without having dropped the leash.
///
/// `Drop` does not run for a killed or aborted test process, nor for a server kept in a `static`. A
/// leash is a shell that waits on a pipe from us: the pipe closes with us in every case.
///
/// Drop it before the child is reaped (`wait`), so that it can never meet a recycled process id.
#[derive(Debug)]
pub struct Leash {
    shell: Child,
}

impl Leash {
    /// Creates a leash: the process `pid` is killed when this process ends. `scratch`, a directory,
    /// is then removed.
    ///
    /// # Panics
    ///
    /// If no shell can be started.
    #[must_use]
    pub fn new(pid: u32, scratch: Option<&Path>) -> Self {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "leash", &pid.to_string()])
            .arg(scratch.unwrap_or_else(|| Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // a signal to our whole group (Ctrl-C, a CI's kill) must not end it too
            .spawn()
            .expect("a shell `sh` is on PATH");
        Self { shell }
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        // Killed, not signalled: closing the pipe would make the shell kill its charge.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
