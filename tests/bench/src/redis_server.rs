//! `Redis`: the only server of a run, and its own counters.

use std::time::{Duration, Instant};

use lock_tests::RedisServer;
use redis::{Connection, cmd};

pub(crate) struct Redis {
    server: RedisServer,
    connection: Connection,
    replicas: Vec<RedisServer>,
}

impl Redis {
    pub(crate) fn start() -> Self {
        // Some programs need a connection per waiter.
        let server = RedisServer::options().arg("maxclients", "20000").start();
        let client = redis::Client::open(server.url()).expect("a URL");
        let connection = client.get_connection().expect("the server is up");
        Self { server, connection, replicas: Vec::new() }
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    /// Starts or stops replicas, so that the server has this many from now on.
    pub(crate) fn follow_by(&mut self, replicas: usize) {
        self.replicas.clear();
        let primary = format!("127.0.0.1 {}", self.address().port());
        let replica = || {
            let options = RedisServer::options().arg("replicaof", &primary);
            options.arg("repl-diskless-sync-delay", "0").start()
        };
        self.replicas.extend(std::iter::repeat_with(replica).take(replicas));
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.info("replication").matches("state=online").count() < replicas {
            assert!(Instant::now() < deadline, "the replicas do not follow");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Switches the append-only file with a policy of `always` on or off.
    pub(crate) fn keep_on_disk(&mut self, keeps: bool) {
        for (name, value) in
            [("appendfsync", "always"), ("appendonly", if keeps { "yes" } else { "no" })]
        {
            let mut set = cmd("CONFIG");
            let set = set.arg("SET").arg(name).arg(value);
            let _: String = set.query(&mut self.connection).expect("answered");
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.number("persistence", "aof_rewrite_in_progress") > 0.0 {
            assert!(Instant::now() < deadline, "the file is not written");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn info(&mut self, section: &str) -> String {
        cmd("INFO").arg(section).query(&mut self.connection).expect("answered")
    }

    fn number(&mut self, section: &str, field: &str) -> f64 {
        let info = self.info(section);
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
    }

    pub(crate) fn version(&mut self) -> String {
        let info = self.info("server");
        let value = |field: &str| {
            info.lines().find_map(|line| line.strip_prefix(field)).map(str::trim).map(str::to_owned)
        };
        value("valkey_version:").or_else(|| value("redis_version:")).unwrap_or_default()
    }

    /// The processor time so far, µs.
    pub(crate) fn cpu_us(&mut self) -> f64 {
        (self.number("cpu", "used_cpu_user") + self.number("cpu", "used_cpu_sys")) * 1e6
    }

    /// The memory without the buffers of connections.
    pub(crate) fn memory_bytes(&mut self) -> f64 {
        self.number("memory", "used_memory") - self.number("memory", "mem_clients_normal")
    }

    /// The number of scripts run so far, and their total time, µs.
    pub(crate) fn scripts(&mut self) -> (f64, f64) {
        let info = self.info("commandstats");
        let mut sum = (0.0, 0.0);
        for name in ["cmdstat_evalsha:", "cmdstat_eval:"] {
            let Some(fields) = info.lines().find_map(|line| line.strip_prefix(name)) else {
                continue;
            };
            let field = |wanted: &str| {
                let value = fields.split(',').find_map(|field| field.strip_prefix(wanted));
                value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
            };
            sum = (sum.0 + field("calls="), sum.1 + field("usec="));
        }
        sum
    }

    /// Waits until hardly anything runs any more.
    pub(crate) fn quiet(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(300);
        let mut before = self.number("stats", "total_commands_processed");
        while Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.number("stats", "total_commands_processed");
            if now - before < 50.0 {
                return Ok(());
            }
            before = now;
        }
        Err("the server did not become quiet within 300 s".to_owned())
    }

    /// Empties the server; loaded scripts stay.
    pub(crate) fn clear(&mut self) {
        let _: String = cmd("FLUSHALL").query(&mut self.connection).expect("answered");
    }

    /// Measures the median of many round trips, µs.
    pub(crate) fn ping_us(&mut self) -> f64 {
        let mut times: Vec<f64> = (0..1000)
            .map(|_| {
                let start = Instant::now();
                let _: String = cmd("PING").query(&mut self.connection).expect("answered");
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}
