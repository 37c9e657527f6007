//! `Clustered`: a Redis Cluster of three primaries, optionally with a replica each.

mod bus;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use proto::LockName;
use redis::cmd;

use crate::{Port, Raw, RedisOptions, RedisServer, eventually, eventually_some};
use bus::Bus;

const PRIMARIES: usize = 3;
/// The number of slots of each primary at the start, except that the last primary has the rest.
const EACH: u16 = 5_461;
const SLOTS: u16 = 16_384;
/// The bound of a start or a failover: on an idle machine a start takes 2 s.
const LIMIT: Duration = Duration::from_secs(120);

/// Three primaries, and optionally a replica of each, all on loopback.
#[derive(Debug)]
pub struct Clustered {
    /// The primaries first, then the replica of each in the same order.
    servers: Vec<RedisServer>,
    ids: Vec<String>,
    /// The ports announced to clients. With TLS they differ from the ports of `servers`.
    announced: Vec<u16>,
    /// The relays between the servers, where a server can be cut off from the others.
    bus: Option<Bus>,
    /// The claims on the cluster bus ports and on the TLS ports.
    _claims: Vec<Port>,
}

impl Clustered {
    /// Starts three primaries without replicas, in which no failover happens by itself, however
    /// busy the machine is.
    ///
    /// # Panics
    ///
    /// As [`Clustered::start`].
    pub async fn steady() -> Self {
        Self::start(RedisOptions::default(), false, Duration::from_secs(60)).await
    }

    /// Starts three primaries with `options` for each, and a replica for each if `has_replicas`;
    /// returns when all serve. A primary that is silent for `node_timeout` is considered dead.
    ///
    /// # Panics
    ///
    /// If a server does not come up, or the servers do not find each other in time.
    pub async fn start(options: RedisOptions, has_replicas: bool, node_timeout: Duration) -> Self {
        Self::start_as(options, Form { has_replicas, ..Form::default() }, node_timeout).await
    }

    /// Starts three primaries with a replica each; any server can be [isolated](Self::isolate).
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub async fn start_with_relays(options: RedisOptions, node_timeout: Duration) -> Self {
        let form = Form { has_replicas: true, has_relays: true, ..Form::default() };
        Self::start_as(options, form, node_timeout).await
    }

    /// Starts three primaries that use TLS with clients and each other, with the certificates of
    /// `options`, and announce `hostname` to clients. Each also has a plain port for the tests
    /// themselves.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub async fn start_with_tls(options: RedisOptions, hostname: &str) -> Self {
        let form = Form { hostname: Some(hostname), ..Form::default() };
        Self::start_as(options, form, LIMIT).await
    }

    async fn start_as(options: RedisOptions, form: Form<'_>, node_timeout: Duration) -> Self {
        let Form { hostname, has_replicas, has_relays } = form;
        let count = if has_replicas { 2 * PRIMARIES } else { PRIMARIES };
        let ports: Vec<_> = (0..count).map(|_| Port::free_with_bus()).collect();
        // With the port, because another Cluster in the same test needs other ids.
        let id = |(number, (port, _)): (usize, &(Port, Port))| {
            format!("{:0<40}", format!("{number}{}", port.number()))
        };
        let ids: Vec<String> = ports.iter().enumerate().map(id).collect();
        let announced: Vec<_> = ports.iter().map(|(port, _)| port.number()).collect();
        let name = hostname.map_or(String::new(), |hostname| format!(",{hostname}"));
        let bus = match has_relays {
            true => Some(Bus::start(ports.iter().map(|(_, bus)| bus.address()), &ids).await),
            false => None,
        };
        let addresses = ports.iter().enumerate().map(|(number, (port, own))| {
            let bus = bus.as_ref().map_or(own.number(), |bus| bus.port(number));
            format!("127.0.0.1:{}@{bus}{name}", port.number())
        });
        let addresses: Vec<_> = addresses.collect();
        let known_to = |itself: usize| {
            let mut known = String::new();
            for (number, (id, address)) in ids.iter().zip(&addresses).enumerate() {
                let myself = if number == itself { "myself," } else { "" };
                let epoch = number % PRIMARIES + 1;
                let role = match number.checked_sub(PRIMARIES) {
                    None => {
                        let first = EACH * u16::try_from(number).expect("a few");
                        let last = if epoch == PRIMARIES { SLOTS } else { first + EACH } - 1;
                        format!("master - 0 0 {epoch} connected {first}-{last}")
                    }
                    Some(of) => format!("slave {} 0 0 {epoch} connected", ids[of]),
                };
                writeln!(known, "{id} {address} {myself}{role}").expect("a text can be written");
            }
            known + &format!("vars currentEpoch {PRIMARIES} lastVoteEpoch 0\n")
        };
        let (mut servers, mut claims) = (Vec::new(), Vec::new());
        for (number, (port, own_bus)) in ports.into_iter().enumerate() {
            let mut options = options
                .clone()
                .cluster(known_to(number))
                .arg("cluster-node-timeout", &node_timeout.as_millis().to_string())
                .arg("cluster-require-full-coverage", "no")
                .arg("repl-diskless-sync-delay", "0");
            claims.push(own_bus);
            if let Some(bus) = &bus {
                options = options
                    .arg("cluster-announce-ip", "127.0.0.1")
                    .arg("cluster-announce-bus-port", &bus.port(number).to_string());
            }
            let mut port = port;
            if let Some(hostname) = hostname {
                options = options
                    .arg("tls-port", &port.number().to_string())
                    .arg("tls-cluster", "yes")
                    .arg("cluster-announce-hostname", hostname);
                claims.push(std::mem::replace(&mut port, Port::free()));
            }
            servers.push(options.start_on_port(port));
        }
        let clustered = Self { servers, ids, announced, bus, _claims: claims };
        clustered.formed().await;
        clustered
    }

    async fn formed(&self) {
        for (number, server) in self.servers.iter().enumerate() {
            let mut redis = Raw::connect(&server.url()).await;
            eventually("the Cluster serves", LIMIT, async || {
                let info: String = redis.ask(cmd("CLUSTER").arg("INFO")).await;
                info.contains("cluster_state:ok")
            })
            .await;
            if number >= PRIMARIES {
                eventually("the replica follows", LIMIT, async || {
                    let info: String = redis.ask(cmd("INFO").arg("replication")).await;
                    info.contains("master_link_status:up")
                })
                .await;
            }
        }
    }

    /// Returns the URL of all servers.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with("redis", "", "127.0.0.1")
    }

    /// Returns the URL of all servers with another scheme than `redis`, with credentials such as
    /// `user:password@`, and with another host name of this machine.
    #[must_use]
    pub fn url_with(&self, scheme: &str, credentials: &str, host: &str) -> String {
        let hosts: Vec<_> = self.announced.iter().map(|port| format!("{host}:{port}")).collect();
        format!("{scheme}+cluster://{credentials}{}", hosts.join(","))
    }

    /// Returns a server, by index; the first three are the initial primaries, the others their
    /// replicas.
    pub fn server(&mut self, number: usize) -> &mut RedisServer {
        &mut self.servers[number]
    }

    /// Returns a connection to a server.
    pub async fn raw(&self, number: usize) -> Raw {
        Raw::connect(&self.servers[number].url()).await
    }

    /// Returns the index of the server that serves the slot at the start.
    #[must_use]
    pub fn owner(&self, slot: u16) -> usize {
        usize::from(slot / EACH).min(PRIMARIES - 1)
    }

    /// Returns the index of the primary that serves a lock of this full name at the start.
    #[must_use]
    pub fn primary_of(&self, name: &str) -> usize {
        self.owner(LockName::from(name).slot())
    }

    /// Returns a name served by this primary at the start; a different name for each number.
    ///
    /// # Panics
    ///
    /// Never: names have no end.
    #[must_use]
    pub fn key_of(&self, primary: usize, number: usize) -> String {
        let names = (0..).map(|name| format!("key {name}"));
        let mut of = names.filter(|name| self.primary_of(name) == primary);
        of.nth(number).expect("names have no end")
    }

    /// Promotes the replica of this primary, or its former primary.
    ///
    /// # Panics
    ///
    /// If the promotion takes too long.
    pub async fn fail_over(&self, old: usize) {
        let new = partner(old);
        let mut replica = self.raw(new).await;
        let mut asked: Option<Instant> = None;
        eventually("the replica takes over", LIMIT, async || {
            // A replica gives up an election that takes more than 5 s, as on a busy machine.
            if asked.is_none_or(|asked| asked.elapsed() > Duration::from_secs(6)) {
                let answer = replica.try_ask::<()>(cmd("CLUSTER").arg("FAILOVER")).await;
                asked = answer.is_ok().then(Instant::now);
            }
            role(&self.servers[new]).await.0
        })
        .await;
    }

    /// Cuts a server off from all other servers but not from clients; `None` reconnects it.
    ///
    /// # Panics
    ///
    /// If the servers were started without relays.
    pub fn isolate(&self, number: Option<usize>) {
        self.bus.as_ref().expect("servers that were started with relays").isolate(number);
    }

    /// Waits until another server serves the slots of `old`; returns its index.
    ///
    /// # Panics
    ///
    /// If no server does in time.
    pub async fn promoted(&self, old: usize) -> usize {
        let new = partner(old);
        eventually("the replica is promoted", LIMIT, async || role(&self.servers[new]).await.0)
            .await;
        new
    }

    /// Waits until this server is a replica with all data of its primary.
    ///
    /// # Panics
    ///
    /// If it is not in time.
    pub async fn follows(&self, number: usize) {
        eventually("it follows", LIMIT, async || {
            role(&self.servers[number]).await == (false, true)
        })
        .await;
    }

    /// Returns the index of a shard's current primary, given the index of either server.
    pub async fn present_primary(&self, number: usize) -> usize {
        match role(&self.servers[number]).await {
            (true, _) => number,
            (false, _) => partner(number),
        }
    }

    /// Marks a slot as moving from `from` to `to`: from then on keys can move.
    pub async fn open_slot(&self, slot: u16, from: usize, to: usize) {
        for (at, what, other) in [(to, "IMPORTING", from), (from, "MIGRATING", to)] {
            let mut set = cmd("CLUSTER");
            set.arg("SETSLOT").arg(slot).arg(what).arg(&self.ids[other]);
            let () = self.raw(at).await.ask(&set).await;
        }
    }

    /// Moves all keys of an open slot.
    pub async fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let mut source = self.raw(from).await;
        eventually("the slot is empty", LIMIT, async || {
            let mut get = cmd("CLUSTER");
            get.arg("GETKEYSINSLOT").arg(slot).arg(100);
            let keys: Vec<String> = source.ask(&get).await;
            for key in &keys {
                self.move_key(key, from, to).await;
            }
            keys.is_empty()
        })
        .await;
    }

    /// Moves one key of an open slot.
    pub async fn move_key(&self, key: &str, from: usize, to: usize) {
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.announced[to]).arg(key).arg(0).arg(10_000);
        if let Some(password) = self.servers[to].password() {
            migrate.arg("AUTH").arg(password);
        }
        // The key may have expired meanwhile.
        let _: redis::Value = self.raw(from).await.ask(&migrate).await;
    }

    /// Assigns the slot to its target, and returns when the source has learned it as well.
    pub async fn close_slot(&self, slot: u16, from: usize, to: usize) {
        for at in [to, from] {
            let mut set = cmd("CLUSTER");
            set.arg("SETSLOT").arg(slot).arg("NODE").arg(&self.ids[to]);
            let () = self.raw(at).await.ask(&set).await;
        }
    }

    /// Moves a slot with all of its keys.
    pub async fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.open_slot(slot, from, to).await;
        self.move_keys(slot, from, to).await;
        self.close_slot(slot, from, to).await;
    }

    /// Moves the first `count` slots of a primary to another primary with `redis-cli`.
    ///
    /// # Panics
    ///
    /// If `redis-cli` is not installed, or fails.
    pub async fn reshard(&self, count: u16, from: usize, to: usize) {
        let mut reshard = tokio::process::Command::new("redis-cli");
        reshard.args(["--cluster", "reshard", &format!("127.0.0.1:{}", self.announced[from])]);
        reshard.args(["--cluster-from", &self.ids[from], "--cluster-to", &self.ids[to]]);
        reshard.args(["--cluster-slots", &count.to_string(), "--cluster-yes"]);
        let resharded = reshard.output().await.expect("redis-cli is installed");
        let said = String::from_utf8_lossy(&resharded.stdout);
        assert!(resharded.status.success(), "{said}");
    }

    /// Waits until a server knows only `number` as the primary of the slot.
    ///
    /// # Panics
    ///
    /// If no server does in time.
    pub async fn until_served_by(&self, slot: u16, number: usize) {
        let wanted = self.ids[number].clone();
        eventually_some("the slot is served", LIMIT, async || {
            let mut redis = self.raw(number).await;
            let nodes: String = redis.ask(cmd("CLUSTER").arg("NODES")).await;
            let of = nodes.lines().find(|line| line.starts_with(&wanted))?;
            let ranges = of.split_whitespace().skip(8).filter_map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
            });
            ranges.into_iter().any(|range| range.contains(&slot)).then_some(())
        })
        .await;
    }
}

/// How the Clusters of the tests differ, beside the options of each server.
#[derive(Default)]
struct Form<'a> {
    /// The host name for TLS.
    hostname: Option<&'a str>,
    has_replicas: bool,
    has_relays: bool,
}

/// Returns the other server of a shard.
fn partner(number: usize) -> usize {
    (number + PRIMARIES) % (2 * PRIMARIES)
}

/// Returns whether the server is a primary, and whether it is a connected replica.
async fn role(server: &RedisServer) -> (bool, bool) {
    let mut redis = Raw::connect(&server.url()).await;
    let info: String = redis.ask(cmd("INFO").arg("replication")).await;
    (info.contains("role:master"), info.contains("master_link_status:up"))
}
