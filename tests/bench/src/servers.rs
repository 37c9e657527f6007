//! `Servers`: the servers and proxies that all programs of a run use.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::delay::Delay;
use crate::peer::Peer;
use crate::postgres::Postgres;
use crate::redis_server::Redis;

pub(crate) struct Servers {
    pub(crate) redis: Redis,
    pub(crate) postgres: Result<Postgres, String>,
    delayed_redis: Delay,
    delayed_postgres: Option<Delay>,
    /// Those of each lock that is a quorum's, with a proxy each. They are never emptied: a primary
    /// that was does not count for a minute.
    primaries: BTreeMap<&'static str, Vec<(Redis, Delay)>>,
}

fn delay(address: SocketAddr) -> Delay {
    Delay::start(address, Duration::from_millis(1))
}

impl Servers {
    /// Starts PostgreSQL by that program, with `initdb` beside it.
    pub(crate) fn start(postgres: Result<&[String], String>) -> Self {
        let redis = Redis::start();
        let postgres = postgres.and_then(Postgres::start);
        let delayed_redis = delay(redis.address());
        let delayed_postgres = postgres.as_ref().ok().map(|postgres| delay(postgres.address()));
        Self { redis, postgres, delayed_redis, delayed_postgres, primaries: BTreeMap::new() }
    }

    /// The address to which a program connects. Of a quorum three of them with commas between, of
    /// servers that start now: primaries belong to one list of addresses.
    pub(crate) fn address(&mut self, peer: &Peer, delayed: bool) -> Result<String, String> {
        let url = |(redis, proxy): (&Redis, &Delay)| {
            format!("redis://{}/", if delayed { proxy.address() } else { redis.address() })
        };
        if peer.on_quorum() {
            let start = |_| {
                let redis = Redis::start();
                let proxy = delay(redis.address());
                (redis, proxy)
            };
            let primaries: Vec<_> = (0..3).map(start).collect();
            let urls: Vec<_> = primaries.iter().map(|(redis, proxy)| url((redis, proxy))).collect();
            self.primaries.insert(peer.id, primaries);
            return Ok(urls.join(","));
        }
        if !peer.on_postgres() {
            return Ok(url((&self.redis, &self.delayed_redis)));
        }
        let postgres = self.postgres.as_ref().map_err(Clone::clone)?;
        let delay = self.delayed_postgres.as_ref().filter(|_| delayed).map(Delay::address);
        Ok(postgres.url(delay.unwrap_or(postgres.address())))
    }

    /// The servers of a lock on Redis.
    pub(crate) fn of(&mut self, peer: &Peer) -> Vec<&mut Redis> {
        match self.primaries.get_mut(peer.id) {
            Some(primaries) => primaries.iter_mut().map(|(redis, _)| redis).collect(),
            None => vec![&mut self.redis],
        }
    }

    /// The processor time of the servers of a lock so far, µs.
    pub(crate) fn cpu_us(&mut self, peer: &Peer) -> f64 {
        match &self.postgres {
            Ok(postgres) if peer.on_postgres() => postgres.cpu_us(),
            _ => self.of(peer).into_iter().map(Redis::cpu_us).sum(),
        }
    }

    /// The time of the scripts of a lock so far, µs.
    pub(crate) fn script_us(&mut self, peer: &Peer) -> f64 {
        self.of(peer).into_iter().map(|redis| redis.scripts().1).sum()
    }
}
