//! `Servers`: the servers and proxies that all programs of a run use.

use std::net::SocketAddr;
use std::time::Duration;

use crate::delay::Delay;
use crate::postgres::Postgres;
use crate::redis_server::Redis;

pub(crate) struct Servers {
    pub(crate) redis: Redis,
    pub(crate) postgres: Result<Postgres, String>,
    delayed_redis: Delay,
    delayed_postgres: Option<Delay>,
}

impl Servers {
    /// Starts PostgreSQL by that program, with `initdb` beside it.
    pub(crate) fn start(postgres: Result<&[String], String>) -> Self {
        let redis = Redis::start();
        let postgres = postgres.and_then(Postgres::start);
        let delay = |address: SocketAddr| Delay::start(address, Duration::from_millis(1));
        let delayed_redis = delay(redis.address());
        let delayed_postgres = postgres.as_ref().ok().map(|postgres| delay(postgres.address()));
        Self { redis, postgres, delayed_redis, delayed_postgres }
    }

    /// The address to which a program connects.
    pub(crate) fn address(&self, on_postgres: bool, delayed: bool) -> Result<String, String> {
        if !on_postgres {
            let delay = delayed.then(|| self.delayed_redis.address());
            return Ok(format!("redis://{}/", delay.unwrap_or(self.redis.address())));
        }
        let postgres = self.postgres.as_ref().map_err(Clone::clone)?;
        let delay = self.delayed_postgres.as_ref().filter(|_| delayed).map(Delay::address);
        Ok(postgres.url(delay.unwrap_or(postgres.address())))
    }

    /// The processor time so far, µs.
    pub(crate) fn cpu_us(&mut self, on_postgres: bool) -> f64 {
        match &self.postgres {
            Ok(postgres) if on_postgres => postgres.cpu_us(),
            _ => self.redis.cpu_us(),
        }
    }
}
