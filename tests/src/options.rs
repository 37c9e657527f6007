//! `RedisOptions`: the start options of a `redis-server`.

use std::ffi::OsString;

use crate::{Port, RedisServer};

/// Options of a [`RedisServer`], on top of the harness' own: loopback, no persistence.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    args: Vec<(String, String)>,
    sentinel: Option<String>,
    cluster: Option<String>,
    environment: Vec<(String, OsString)>,
}

impl RedisOptions {
    /// Adds a configuration directive, as in `redis.conf`; a later one overrides an earlier.
    ///
    /// With `requirepass`, [`RedisServer::url`] contains the password.
    #[must_use]
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.args.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes the server a sentinel, with these lines in its configuration file, which the sentinel
    /// rewrites.
    #[must_use]
    pub fn sentinel(mut self, lines: String) -> Self {
        self.sentinel = Some(lines);
        self
    }

    /// Makes the server a Redis Cluster server that knows the nodes in these lines at each start.
    #[must_use]
    pub fn cluster(mut self, lines: String) -> Self {
        self.cluster = Some(lines);
        self
    }

    /// Sets an environment variable of the server.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn environment(&self) -> &[(String, OsString)] {
        &self.environment
    }

    pub(crate) fn cluster_lines(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    pub(crate) fn sentinel_lines(&self) -> Option<&str> {
        self.sentinel.as_deref()
    }

    /// Starts the server on a free port and returns once it replies.
    ///
    /// # Panics
    ///
    /// If there is no `redis-server`, or it does not come up; the message says which, with its log.
    #[must_use]
    pub fn start(self) -> RedisServer {
        RedisServer::start_with(self)
    }

    /// Starts the server on a port claimed earlier, for example a port that a client already tries.
    ///
    /// # Panics
    ///
    /// As [`RedisOptions::start`].
    #[must_use]
    pub fn start_on_port(self, port: Port) -> RedisServer {
        RedisServer::start_on(self, port)
    }

    pub(crate) fn args(&self) -> &[(String, String)] {
        &self.args
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.args.iter().rev().find(|(name, _)| name == "requirepass").map(|(_, value)| &**value)
    }
}
