//! `Postgres`: a PostgreSQL server started for the run, on a free loopback port.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Leash, Port};

/// The session limit: one per holding or waiting task, and some more.
const SESSIONS: &str = "max_connections=600";
const USER: &str = "postgres";
/// The start timeout: a machine that compiles next to the tests is slow to start processes.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A running server, stopped on drop and also if the test process dies.
#[derive(Debug)]
pub struct Postgres {
    child: Child,
    /// The leash; `None` only while the server is being stopped.
    leash: Option<Leash>,
    port: Port,
    directory: PathBuf,
}

impl Postgres {
    /// Starts the installed server.
    ///
    /// # Panics
    ///
    /// If no server is installed, or it does not start.
    #[must_use]
    pub fn installed() -> Self {
        let programs = programs().expect("PostgreSQL is installed: scripts/setup --postgres");
        Self::start(&programs).expect("the PostgreSQL that is installed starts")
    }

    /// Starts the server from a folder of PostgreSQL programs; returns once it replies.
    ///
    /// # Errors
    ///
    /// Why it does not start, as a sentence.
    pub fn start(programs: &Path) -> Result<Self, String> {
        let port = Port::free();
        let name = format!("lock-postgres-{}-{}", std::process::id(), port.number());
        let directory = std::env::temp_dir().join(name);
        run(Command::new("mkdir").args(["-m", "700"]).arg(&directory))?;
        if is_root() {
            run(Command::new("chown").arg(USER).arg(&directory))?;
        }
        let data = directory.join("data");
        let mut initdb = unprivileged(&programs.join("initdb"), &directory);
        run(initdb.args(["-U", USER, "--auth=trust", "-D"]).arg(&data))?;
        let child = unprivileged(&programs.join("postgres"), &directory)
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
        postgres.await_answer(&programs.join("pg_isready"))?;
        Ok(postgres)
    }

    fn await_answer(&mut self, is_ready: &Path) -> Result<(), String> {
        let port = self.port.number().to_string();
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("postgres ended with {status}"));
            }
            let asked =
                Command::new(is_ready).args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
            if asked.map_err(|error| format!("pg_isready does not start: {error}"))?.success() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("postgres did not answer within {START_LIMIT:?}"))
    }

    /// Returns the listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns the server URL, at its own address or a proxy's.
    #[must_use]
    pub fn url(&self, address: SocketAddr) -> String {
        format!("postgres://{USER}@{address}/{USER}")
    }

    /// Returns the process id of the server; its sessions are child processes.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // PostgreSQL's own immediate shutdown: a killed server would leave its sessions and their
        // memory for a while.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-QUIT", &pid]).status();
        self.leash = None;
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns the program folder of the newest version, which Debian does not put on PATH.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    versions.sort_unstable();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> =
        versions.into_iter().rev().map(|(_, version)| version.join("bin")).collect();
    folders.extend(std::env::split_paths(&path));
    folders.into_iter().find(|folder| folder.join("initdb").is_file())
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
