//! `Postgres`: a PostgreSQL of the run's own, on a free loopback port.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lock_tests::{Leash, Port};

use crate::ready::until_ready;

/// The limit of sessions: one for each task that holds or waits, and some more.
const SESSIONS: &str = "max_connections=600";
const USER: &str = "postgres";

#[derive(Debug)]
pub(crate) struct Postgres {
    child: Child,
    /// The leash, which is `None` only while the server is being stopped.
    leash: Option<Leash>,
    port: Port,
    directory: PathBuf,
}

impl Postgres {
    /// Starts the programs of a folder, which is the one word of the command.
    pub(crate) fn start(command: &[String]) -> Result<Self, String> {
        let [programs] = command else { return Err("no folder of programs".to_owned()) };
        let port = Port::free();
        let directory = std::env::temp_dir().join(format!("lock-bench-{}", std::process::id()));
        run(Command::new("mkdir").args(["-m", "700"]).arg(&directory))?;
        if is_root() {
            run(Command::new("chown").arg(USER).arg(&directory))?;
        }
        let data = directory.join("data");
        let mut initdb = unprivileged(&Path::new(programs).join("initdb"), &directory);
        run(initdb.args(["-U", USER, "--auth=trust", "-D"]).arg(&data))?;
        let child = unprivileged(&Path::new(programs).join("postgres"), &directory)
            .arg("-D")
            .arg(&data)
            .args(["-h", "127.0.0.1", "-p", &port.number().to_string(), "-c", SESSIONS])
            .arg("-k")
            .arg(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("postgres does not start: {error}"))?;
        let leash = Some(Leash::new(child.id(), Some(&directory)));
        let mut postgres = Self { child, leash, port, directory };
        postgres.await_answer(&Path::new(programs).join("pg_isready"))?;
        Ok(postgres)
    }

    fn await_answer(&mut self, is_ready: &Path) -> Result<(), String> {
        let port = self.port.number().to_string();
        until_ready("postgres", &mut self.child, || {
            let asked =
                Command::new(is_ready).args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
            let status = asked.map_err(|error| format!("pg_isready does not start: {error}"))?;
            Ok(status.success())
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The URL of the server at that address.
    pub(crate) fn url(&self, address: SocketAddr) -> String {
        format!("postgres://{USER}@{address}/{USER}")
    }

    /// The processor time of all its processes so far, µs.
    pub(crate) fn cpu_us(&self) -> f64 {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ours = self.child.id();
        pids.filter(|pid| *pid == ours || parent(*pid) == Some(ours)).map(run_us).sum()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // PostgreSQL's own way to stop at once: a killed server would leave its sessions and their
        // memory for a while.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-QUIT", &pid]).status();
        self.leash = None;
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The processor time of a process with one thread so far, µs: finer than the count for all
/// threads.
fn run_us(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e3
}

fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Runs the program as an unprivileged user: PostgreSQL refuses to run as root.
fn unprivileged(program: &Path, directory: &Path) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir(directory);
    command
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.starts_with(b"0\n"))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
