//! `lockctl become`: becomes CMD, which the kernel kills if `lockctl exec` ends first.
//!
//! Only the process to be killed can set this up. A child could also do so between `fork` and
//! `exec`, but only in unsafe code.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::arguments::Become;
use crate::exit::{self, Failure};

/// The path by which Linux runs this program again, even after the program file was replaced.
const ITSELF: &str = "/proc/self/exe";

/// Returns a command that starts CMD. On Linux it starts `lockctl become`, so that the kernel kills
/// CMD when this process ends. Otherwise, or without `/proc`, it starts CMD directly, without this
/// protection.
pub(crate) fn command(program: &OsStr, arguments: &[OsString]) -> Command {
    if cfg!(target_os = "linux") && Path::new(ITSELF).exists() {
        let mut command = Command::new(ITSELF);
        let own = std::process::id().to_string();
        command.arg0("lockctl").args(["become", &own, "--"]).arg(program).args(arguments);
        return command;
    }
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Replaces this process by CMD. On Linux, the kernel then kills CMD when the process `parent`
/// ends. Returns only if CMD cannot be started.
pub(crate) fn run(Become { parent, command }: &Become) -> Failure {
    let [program, arguments @ ..] = &command[..] else {
        return Failure::new(exit::USAGE, "CMD is missing");
    };
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            return Failure::new(exit::FAILED, format!("CMD cannot be bound to lockctl: {error}"));
        }
        // `lockctl` may have exited before the setting took effect.
        if getppid() != Pid::from_raw(*parent) {
            return Failure::new(exit::LOST, "lockctl ended before CMD started");
        }
    }
    not_started(program, &Command::new(program).args(arguments).exec())
}

/// Returns the failure for a CMD that was not found or cannot be executed.
pub(crate) fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    };
    Failure::new(code, format!("CMD {}: {error}", program.to_string_lossy()))
}
