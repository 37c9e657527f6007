//! `RedisServer`: a `redis-server` started for the tests, on a free loopback port.

use std::net::SocketAddr;

use crate::process::{self, RedisProcess, StartError};
use crate::{Port, RedisOptions, signal};

/// A real server, killed on drop and also if the test process dies.
///
/// It keeps nothing on disk: killed and [restarted](Self::restart), it is empty. The binary is
/// `$REDIS_SERVER`, else `redis-server` on `PATH`. Starting blocks the thread for some
/// milliseconds.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    port: Port,
    /// The process; `None` between `kill` and `restart`.
    process: Option<RedisProcess>,
}

impl RedisServer {
    /// Starts a server with the default options and returns once it replies.
    ///
    /// # Panics
    ///
    /// If there is no `redis-server`, or it does not come up; the message says which, with its log.
    #[must_use]
    pub fn start() -> Self {
        Self::options().start()
    }

    /// Returns the options for a server with other settings.
    #[must_use]
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    pub(crate) fn start_with(options: RedisOptions) -> Self {
        for _ in 0..20 {
            let port = Port::free();
            match RedisProcess::start(&options, &port) {
                Ok(process) => {
                    return Self { options, port, process: Some(process) };
                }
                Err(StartError::PortTaken) => {}
                Err(StartError::Failed(reason)) => panic!("{reason}"),
            }
        }
        panic!("20 free ports in a row were taken before redis-server could listen on them");
    }

    pub(crate) fn start_on(options: RedisOptions, port: Port) -> Self {
        let mut server = Self { options, port, process: None };
        server.restart();
        server
    }

    /// Returns the server's major and minor version, because tests expect different replies from
    /// older servers.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        process::version()
    }

    /// Returns the listening address, also while the server is down.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns the port, also while the server is down.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the URL, `redis://127.0.0.1:<port>/`, with the password if [`RedisOptions::arg`] has
    /// set one.
    #[must_use]
    pub fn url(&self) -> String {
        let password = self.password().map_or(String::new(), |password| format!(":{password}@"));
        format!("redis://{password}{}/", self.address())
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.options.password()
    }

    /// Returns the process id of the running server.
    ///
    /// # Panics
    ///
    /// If it is down.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("the server is up").pid()
    }

    /// Kills the server (SIGKILL); it is gone when this returns. If the server is down already,
    /// nothing happens.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Adds a configuration directive for later [restarts](Self::restart).
    pub fn restarts_with(&mut self, name: &str, value: &str) {
        self.options = self.options.clone().arg(name, value);
    }

    /// Starts the server again on the same port, empty, killing it first if it is up.
    ///
    /// # Panics
    ///
    /// As [`RedisServer::start`].
    pub fn restart(&mut self) {
        self.kill();
        match RedisProcess::start(&self.options, &self.port) {
            Ok(process) => self.process = Some(process),
            Err(StartError::PortTaken) => panic!("somebody took port {}", self.port.number()),
            Err(StartError::Failed(reason)) => panic!("{reason}"),
        }
    }

    /// Stops the server (SIGSTOP): connections stay open and are accepted, but nothing is replied.
    pub fn freeze(&self) {
        signal::stop(self.pid());
    }

    /// Resumes a frozen server (SIGCONT).
    pub fn thaw(&self) {
        signal::resume(self.pid());
    }
}
