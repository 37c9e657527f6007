//! `Servers`: the servers and proxies shared by all programs of a run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use lock_tests::{Delay, Postgres};

use crate::etcd::Etcd;
use crate::peer::{Peer, Server};
use crate::redis_server::Redis;
use crate::sessions;

/// A server with its proxy, which delays packets by 1 ms each way, or why there is none.
type Proxied<S> = Result<(S, Delay), String>;

pub(crate) struct Servers {
    pub(crate) redis: Redis,
    /// The proxies in front of the server, by latency each way in ms.
    delayed_redis: BTreeMap<u64, Delay>,
    postgres: Proxied<Postgres>,
    etcd: Proxied<Etcd>,
    /// The primaries of each quorum lock, with a proxy each. They are never emptied: an emptied
    /// primary does not count for a minute.
    primaries: BTreeMap<&'static str, Vec<(Redis, Delay)>>,
}

fn delay(address: SocketAddr) -> Delay {
    Delay::start(address, Duration::from_millis(1))
}

fn proxied<S>(server: S, address: impl Fn(&S) -> SocketAddr) -> (S, Delay) {
    let proxy = delay(address(&server));
    (server, proxy)
}

impl Servers {
    /// Starts PostgreSQL from its program, with `initdb` beside it, and etcd from its program.
    pub(crate) fn start(
        postgres: Result<&[String], String>,
        etcd: Result<&[String], String>,
    ) -> Self {
        let redis = Redis::start();
        let delayed_redis = BTreeMap::new();
        let postgres = postgres.and_then(|command| match command {
            [programs] => Postgres::start(programs.as_ref()),
            _ => Err("no folder of programs".to_owned()),
        });
        let postgres = postgres.map(|server| proxied(server, Postgres::address));
        let etcd = etcd.and_then(Etcd::start).map(|server| proxied(server, Etcd::address));
        Self { redis, delayed_redis, postgres, etcd, primaries: BTreeMap::new() }
    }

    /// The servers that did not start, and why.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let (postgres, etcd) = (self.postgres.as_ref().err(), self.etcd.as_ref().err());
        [("postgres", postgres), ("etcd", etcd)]
            .into_iter()
            .filter_map(|(server, why)| Some((server, why?)))
    }

    /// The address that a program connects to. For a quorum, three addresses separated by commas,
    /// of newly started servers: primaries belong to a single list of addresses.
    pub(crate) fn address(&mut self, peer: &Peer, each_way_ms: u64) -> Result<String, String> {
        let delayed = each_way_ms > 0;
        let of = |server: SocketAddr, proxy: &Delay| if delayed { proxy.address() } else { server };
        match peer.server() {
            Server::Redis if delayed => {
                let near = self.redis.address();
                let start = || Delay::start(near, Duration::from_millis(each_way_ms));
                let proxy = self.delayed_redis.entry(each_way_ms).or_insert_with(start);
                Ok(format!("redis://{}/", proxy.address()))
            }
            Server::Redis => Ok(format!("redis://{}/", self.redis.address())),
            Server::Primaries => {
                let start = |_| proxied(Redis::start(), Redis::address);
                let primaries: Vec<_> = (0..3).map(start).collect();
                let url = |(redis, proxy): &(Redis, Delay)| {
                    format!("redis://{}/", of(redis.address(), proxy))
                };
                let urls: Vec<_> = primaries.iter().map(url).collect();
                self.primaries.insert(peer.id, primaries);
                Ok(urls.join(","))
            }
            Server::Postgres => {
                let (postgres, proxy) = self.postgres.as_ref().map_err(Clone::clone)?;
                Ok(postgres.url(of(postgres.address(), proxy)))
            }
            Server::Etcd => {
                let (etcd, proxy) = self.etcd.as_ref().map_err(Clone::clone)?;
                Ok(format!("http://{}", of(etcd.address(), proxy)))
            }
        }
    }

    /// The Redis servers of a lock.
    pub(crate) fn of(&mut self, peer: &Peer) -> Vec<&mut Redis> {
        match self.primaries.get_mut(peer.id) {
            Some(primaries) => primaries.iter_mut().map(|(redis, _)| redis).collect(),
            None => vec![&mut self.redis],
        }
    }

    /// The processor time used by the servers of a lock so far, µs.
    pub(crate) fn cpu_us(&mut self, peer: &Peer) -> f64 {
        match (peer.server(), &self.postgres, &self.etcd) {
            (Server::Postgres, Ok((postgres, _)), _) => sessions::cpu_us(postgres),
            (Server::Etcd, _, Ok((etcd, _))) => etcd.cpu_us(),
            _ => self.of(peer).into_iter().map(Redis::cpu_us).sum(),
        }
    }

    /// The time used by the scripts of a lock so far, µs.
    pub(crate) fn script_us(&mut self, peer: &Peer) -> f64 {
        self.of(peer).into_iter().map(|redis| redis.scripts().1).sum()
    }
}
