//! `RedisProcess`: a `redis-server` child, from its start until it is killed.

use std::env;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::wire::Wire;
use crate::{Leash, Port, RedisOptions};

/// The start timeout: a machine that compiles next to the tests is slow to start processes.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A running child, with its scratch directory.
#[derive(Debug)]
pub(crate) struct RedisProcess {
    child: Child,
    /// The leash; `None` only while the child is being killed.
    leash: Option<Leash>,
    directory: PathBuf,
}

/// Why a child did not start.
#[derive(Debug)]
pub(crate) enum StartError {
    /// Another process listens on the port: try another.
    PortTaken,
    /// Anything else; with the server's log.
    Failed(String),
}

impl RedisProcess {
    /// Starts a child; returns once it replies to commands.
    pub(crate) fn start(options: &RedisOptions, port: &Port) -> Result<Self, StartError> {
        let directory = scratch_directory(port);
        let log = fs::File::create(directory.join("log")).expect("scratch files can be written");
        let mut command = Command::new(binary());
        if let Some(lines) = options.sentinel_lines() {
            let file = directory.join("sentinel.conf");
            fs::write(&file, lines).expect("scratch files can be written");
            command.arg(file).arg("--sentinel");
        }
        command
            .args(["--bind", "127.0.0.1", "--port", &port.number().to_string()])
            .arg("--dir")
            .arg(&directory);
        if options.sentinel_lines().is_none() {
            command.args(["--save", "", "--appendonly", "no"]);
        }
        if version() >= (7, 0) && options.sentinel_lines().is_none() {
            // DEBUG (sleep, reload ..) is off by default since 7.0; older ones don't know the
            // option.
            command.args(["--enable-debug-command", "local"]);
        }
        if let Some(lines) = options.cluster_lines() {
            fs::write(directory.join("nodes.conf"), lines).expect("scratch files can be written");
            command.args(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]);
        }
        for (name, value) in options.args() {
            command.arg(format!("--{name}"));
            // Some directives take several words, as in redis.conf; an empty value is one word.
            if value.is_empty() {
                command.arg("");
            } else {
                command.args(value.split(' '));
            }
        }
        for (name, value) in options.environment() {
            command.env(name, value);
        }
        let child = command
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("a file can be shared"))
            .stdout(log)
            .process_group(0) // Ctrl-C ends the tests, and the leash then the server
            .spawn()
            .expect("redis-server, which has just said its version, starts");
        let leash = Some(Leash::new(child.id(), Some(&directory)));
        let mut process = Self { child, leash, directory };
        process.await_answer(options, port)?;
        Ok(process)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until this child replies: a stranger on the same port would reply as well.
    fn await_answer(&mut self, options: &RedisOptions, port: &Port) -> Result<(), StartError> {
        let own_id = format!("process_id:{}\r\n", self.child.id());
        // A sentinel has nothing to load, and does not log it.
        let is_loaded =
            |info: &str| options.sentinel_lines().is_some() || info.contains("\nloading:0\r");
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                let log = self.log();
                return Err(if log.contains("Address already in use") {
                    StartError::PortTaken
                } else {
                    StartError::Failed(format!("redis-server ended with {status}:\n{log}"))
                });
            }
            match ask_info(options, port) {
                Ok(info) if info.contains(&own_id) && is_loaded(&info) => return Ok(()),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        let log = self.log();
        Err(StartError::Failed(format!(
            "redis-server did not answer within {START_LIMIT:?}:\n{log}"
        )))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        let _ = self.child.kill(); // a zombie until waited for: its id is not recycled before
        self.leash = None;
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn ask_info(options: &RedisOptions, port: &Port) -> io::Result<String> {
    let mut wire = Wire::connect(port.address(), Duration::from_secs(1))?;
    if let Some(password) = options.password() {
        wire.ask(&["AUTH", password])?;
    }
    wire.ask(&["INFO"])
}

/// Creates an empty directory for this run; the port claim makes its name unique.
fn scratch_directory(port: &Port) -> PathBuf {
    let name = format!("lock-tests-{}-{}", std::process::id(), port.number());
    let directory = env::temp_dir().join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory).expect("files of an earlier process with our id are ours");
    }
    fs::create_dir(&directory).expect("the temporary directory can be written");
    directory
}

fn binary() -> PathBuf {
    env::var_os("REDIS_SERVER").map_or_else(|| Path::new("redis-server").into(), PathBuf::from)
}

/// Returns the major and minor version of the server binary; panics with advice if there is none.
pub(crate) fn version() -> (u32, u32) {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let binary = binary();
        let output = Command::new(&binary).arg("--version").output().unwrap_or_else(|error| {
            panic!(
                "the tests need a real redis-server, and `{}` does not start: {error}. Run \
                 scripts/test, which installs it or says how to, or set REDIS_SERVER to its path",
                binary.display()
            )
        });
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // "Redis server v=7.0.15 sha=..", and the same from its forks.
        text.split_once("v=")
            .and_then(|(_, version)| {
                let mut numbers = version.split('.').map(str::parse);
                Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
            })
            .unwrap_or_else(|| panic!("`{} --version` says no version: {text}", binary.display()))
    })
}
