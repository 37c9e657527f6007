//! `lockctl become`: turns into CMD, and lets the kernel kill it when `lockctl exec` ends first.
//!
//! The kernel accepts the setting only from the process that is to be killed. A child between
//! `fork` and `exec` could make it as well, but only in unsafe code.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::arguments::Become;
use crate::exit::{self, Failure};

/// The path of this program, also after its file has been replaced.
const ITSELF: &str = "/proc/self/exe";

/// The command that becomes CMD; CMD itself, where the kernel has no such setting.
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

/// Executes CMD, and returns only if CMD does not start.
pub(crate) fn run(Become { parent, command }: &Become) -> Failure {
    let [program, arguments @ ..] = &command[..] else {
        return Failure::new(exit::USAGE, "CMD is missing");
    };
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            return Failure::new(exit::FAILED, format!("CMD cannot be tied to lockctl: {error}"));
        }
        // `lockctl` may have ended before the kernel had the setting.
        if getppid() != Pid::from_raw(*parent) {
            return Failure::new(exit::LOST, "lockctl ended before CMD started");
        }
    }
    not_started(program, &Command::new(program).args(arguments).exec())
}

/// The failure of a CMD that cannot be executed, or was not found.
pub(crate) fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    };
    Failure::new(code, format!("CMD {}: {error}", program.to_string_lossy()))
}
