//! The primaries and slots of a Redis Cluster, as reported by a node.
//!
//! # Implementation notes
//!
//! - CLUSTER SLOTS reports the slots, on every version. CLUSTER SHARDS is requested only to find
//!   primaries without slots: a server of 7.2 or later that started with an older version's cluster
//!   file (no `shard-id` in it) is missing from that reply.
//! - A node may be outdated or isolated. So the reply is only a hint where to send commands: each
//!   server itself refuses a command for a slot that it does not serve.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;

use redis::{Cmd, FromRedisValue, Value};

use crate::connection::Connection;
use crate::error::{ClientError, ClientErrorKind};
use crate::failure;

/// The number of Cluster slots.
const SLOTS: u16 = 16_384;
/// Maximum number of primaries in a reply. A reply to CLUSTER SLOTS with more is an error, and a
/// reply to CLUSTER SHARDS with more is ignored. A Cluster is designed for up to a thousand nodes.
const MAX_PRIMARIES: usize = 1_024;
/// Maximum number of slot ranges in a reply to CLUSTER SLOTS; a reply with more is an error.
/// Reached if each slot is a separate range.
const MAX_RANGES: usize = SLOTS as usize;

/// A Redis Cluster, as reported by a node.
#[derive(Debug)]
pub struct Report {
    /// The primaries that serve slots, and the online primaries without slots.
    pub primaries: Vec<Primary>,
    /// The replies to CLUSTER SLOTS and, if the server has returned it, to CLUSTER SHARDS.
    replies: Vec<Value>,
}

impl Report {
    /// Returns true if the server with this node id is in the Cluster, as primary or replica.
    pub fn has(&self, id: &str) -> bool {
        self.replies.iter().any(|reply| names(reply, id))
    }
}

/// The host and port of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// The host name or IP address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A primary of a Redis Cluster, as reported by a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Primary {
    /// The server's node id in the Cluster.
    pub id: String,
    /// The address to connect to.
    pub place: Address,
    /// The address of this primary in MOVED and ASK redirects. With TLS it may be an IP address
    /// where `place` is a host name.
    pub redirects: Address,
    /// The slots served by this primary.
    pub slots: Vec<RangeInclusive<u16>>,
}

impl Primary {
    /// Creates a primary without slots, from the address and host name in a reply. With TLS, the
    /// address to connect to has the host name if there is one, because certificates are for names.
    /// If the reply lacks the host, the host in `asked` is used.
    fn new(id: String, (endpoint, port): (&str, u16), hostname: &str, asked: Asked<'_>) -> Self {
        // With TLS, the host name, because certificates are for names.
        let host = if asked.is_tls && !hostname.is_empty() { hostname } else { endpoint };
        // An unknown host means the host of the request.
        let known = |host| if ["", "?"].contains(&host) { asked.host } else { host };
        let at = |host| Address { host: known(host).to_owned(), port };
        Self { id, place: at(host), redirects: at(endpoint), slots: Vec::new() }
    }
}

/// The host of the connection on which a Cluster node was asked, and whether the connection uses
/// TLS. Completes the addresses in the reply, which may lack the host.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The host that the request was sent to.
    pub host: &'a str,
    /// True if the connection uses TLS. Then the reply's TLS ports and host names are used.
    pub is_tls: bool,
}

/// A connection on which a Cluster node is asked for the topology: a [`Connection`] opened for this
/// request, or the node's [`CommandLink`](crate::CommandLink), which reconnects by itself.
pub trait Source {
    /// Sends a command, and returns the reply.
    fn run(&self, command: &Cmd) -> impl Future<Output = Result<Value, ClientError>> + Send;
}

impl Source for Connection {
    async fn run(&self, command: &Cmd) -> Result<Value, ClientError> {
        self.send(command).await.map_err(|error| failure::of_command(&error))
    }
}

/// Requests the primaries of the Cluster, and their slots, from a server.
///
/// # Errors
/// The server is in no Cluster, the Cluster serves no slots, or the server does not reply.
pub async fn report(source: &impl Source, asked: Asked<'_>) -> Result<Report, ClientError> {
    let slots = slots(source).await?;
    let mut primaries = serving(&slots, asked).ok_or_else(|| {
        ClientError::refused(ClientErrorKind::Protocol, "unexpected reply to CLUSTER SLOTS")
    })?;
    if primaries.is_empty() {
        let detail = "the Cluster serves no slots yet";
        return Err(ClientError::refused(ClientErrorKind::Unavailable, detail));
    }
    let shards = shards(source).await?;
    for primary in shards.iter().filter_map(|shards| idle(shards, asked)).flatten() {
        if primaries.iter().all(|serving| serving.id != primary.id) {
            primaries.push(primary);
        }
    }
    Ok(Report { primaries, replies: [slots].into_iter().chain(shards).collect() })
}

async fn slots(source: &impl Source) -> Result<Value, ClientError> {
    source.run(redis::cmd("CLUSTER").arg("SLOTS")).await.map_err(advised)
}

/// Returns the reply to CLUSTER SHARDS. `None` if the server is older than 7.0 and lacks the
/// command, or the Redis user lacks the right. Then a primary is found only once it has slots.
async fn shards(source: &impl Source) -> Result<Option<Value>, ClientError> {
    let is_optional = |kind| matches!(kind, ClientErrorKind::Unsupported | ClientErrorKind::Denied);
    match source.run(redis::cmd("CLUSTER").arg("SHARDS")).await {
        Err(error) if is_optional(error.kind) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Checks that the server is in the Cluster that has the server with this node id, as primary or
/// replica. Each server in the Cluster passes, because it refuses the commands for slots that it
/// does not serve.
///
/// # Errors
/// The server is in another Cluster, or does not return the topology.
pub(crate) async fn check_member(connection: &Connection, id: &str) -> Result<(), ClientError> {
    // CLUSTER SLOTS lacks the primaries without slots, and the replicas that are not in step yet.
    if names(&slots(connection).await?, id)
        || shards(connection).await?.is_some_and(|it| names(&it, id))
    {
        return Ok(());
    }
    let detail = format!("the server is in another Redis Cluster, without the server {id}");
    Err(ClientError::refused(ClientErrorKind::Unavailable, detail))
}

/// Returns true if the reply contains this node id anywhere. Node ids are random and long enough to
/// be unique among all Clusters, so the form of the reply does not matter.
fn names(reply: &Value, id: &str) -> bool {
    match reply {
        Value::BulkString(text) => text == id.as_bytes(),
        Value::Array(values) => values.iter().any(|value| names(value, id)),
        Value::Map(fields) => fields.iter().any(|(_, value)| names(value, id)),
        _ => false,
    }
}

fn advised(error: ClientError) -> ClientError {
    let refused = |kind, detail: String| ClientError::refused(kind, detail);
    if error.detail.contains("cluster support disabled") {
        let detail = "the server does not run in cluster mode: write redis://host:port";
        return refused(ClientErrorKind::Unsupported, detail.to_owned());
    }
    if error.kind == ClientErrorKind::Denied {
        let detail = format!("{}: allow +cluster|shards +cluster|slots", error.detail);
        return refused(ClientErrorKind::Denied, detail);
    }
    error
}

fn read<T: FromRedisValue>(value: &Value) -> Option<T> {
    redis::from_redis_value_ref(value).ok()
}

/// Parses a part of a reply that consists of field names and values: a list in RESP2, a map in
/// RESP3.
fn fields(value: &Value) -> Option<HashMap<String, Value>> {
    read(value)
}

fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

/// Returns the text of the field `name`, empty if it is absent or nil. `None` if it is not a text.
fn text(fields: &HashMap<String, Value>, name: &str) -> Option<String> {
    match fields.get(name) {
        None | Some(Value::Nil) => Some(String::new()),
        Some(value) => read(value),
    }
}

fn range(first: u16, last: u16) -> Option<RangeInclusive<u16>> {
    (first <= last && last < SLOTS).then_some(first..=last)
}

/// Returns the online primaries without slots in the reply `answer` to CLUSTER SHARDS; `None` if
/// the reply has another form.
fn idle(answer: &Value, asked: Asked<'_>) -> Option<Vec<Primary>> {
    let shards = list(answer).filter(|shards| shards.len() <= MAX_PRIMARIES)?;
    let mut primaries = Vec::new();
    for shard in shards {
        let shard = fields(shard)?;
        if !list(shard.get("slots")?)?.is_empty() {
            continue;
        }
        for node in list(shard.get("nodes")?)? {
            let node = fields(node)?;
            let is = |name, value| text(&node, name).as_deref() == Some(value);
            if is("role", "master") && is("health", "online") {
                primaries.push(primary_of(&node, asked)?);
            }
        }
    }
    Some(primaries)
}

fn primary_of(node: &HashMap<String, Value>, asked: Asked<'_>) -> Option<Primary> {
    let port: u16 = read(node.get(if asked.is_tls { "tls-port" } else { "port" })?)?;
    let (endpoint, hostname) = (text(node, "endpoint")?, text(node, "hostname")?);
    Some(Primary::new(read(node.get("id")?)?, (&endpoint, port), &hostname, asked))
}

/// Returns the primaries in the reply `answer` to CLUSTER SLOTS, with their slots; `None` if the
/// reply has another form.
fn serving(answer: &Value, asked: Asked<'_>) -> Option<Vec<Primary>> {
    let ranges = list(answer).filter(|ranges| ranges.len() <= MAX_RANGES)?;
    let mut primaries: Vec<Primary> = Vec::new();
    for each in ranges {
        let [first, last, primary, ..] = list(each)? else { return None };
        let range = range(read(first)?, read(last)?)?;
        let [host, port, id, more @ ..] = list(primary)? else { return None };
        let hostname = more.first().and_then(fields).and_then(|more| text(&more, "hostname"));
        let endpoint = match host {
            Value::Nil => String::new(),
            host => read(host)?,
        };
        let (id, port): (String, _) = (read(id)?, read(port)?);
        if let Some(primary) = primaries.iter_mut().find(|primary| primary.id == id) {
            primary.slots.push(range);
            continue;
        }
        let hostname = hostname.unwrap_or_default();
        let primary = Primary::new(id, (&endpoint, port), &hostname, asked);
        primaries.push(Primary { slots: vec![range], ..primary });
        if primaries.len() > MAX_PRIMARIES {
            return None;
        }
    }
    Some(primaries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked<'_> = Asked { host: "asked", is_tls: false };

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn array(values: impl IntoIterator<Item = Value>) -> Value {
        Value::Array(values.into_iter().collect())
    }

    fn node(id: &str, endpoint: &str, (role, health): (&str, &str)) -> Value {
        array([
            bulk("id"),
            bulk(id),
            bulk("port"),
            Value::Int(7),
            bulk("tls-port"),
            Value::Int(8),
            bulk("endpoint"),
            bulk(endpoint),
            bulk("hostname"),
            bulk("name"),
            bulk("role"),
            bulk(role),
            bulk("health"),
            bulk(health),
        ])
    }

    fn shard(ranges: &[i64], nodes: impl IntoIterator<Item = Value>) -> Value {
        let slots = array(ranges.iter().copied().map(Value::Int));
        array([bulk("slots"), slots, bulk("nodes"), array(nodes)])
    }

    fn entry(first: i64, last: i64, host: Value, id: &str) -> Value {
        let primary = array([host, Value::Int(7), bulk(id), array([bulk("hostname"), bulk("n")])]);
        let replica = array([bulk("r"), Value::Int(7), bulk("replica")]);
        array([Value::Int(first), Value::Int(last), primary, replica])
    }

    fn found(primary: &Primary) -> (&str, String, usize) {
        let slots = primary.slots.iter().map(|range| range.clone().count()).sum();
        (&primary.id, primary.place.to_string(), slots)
    }

    #[test]
    fn a_primary_without_slots_is_told_by_its_shard_once_it_is_online() {
        let answer = array([
            shard(&[0, 5], [node("serves", "a", ("master", "online"))]),
            shard(&[], [node("dead", "b", ("master", "fail"))]),
            shard(
                &[],
                [node("r", "c", ("replica", "online")), node("joins", "?", ("master", "online"))],
            ),
        ]);
        let primaries = idle(&answer, ASKED).unwrap();
        assert_eq!(
            primaries.iter().map(found).collect::<Vec<_>>(),
            [("joins", "asked:7".into(), 0)]
        );
        let tls = idle(&answer, Asked { is_tls: true, ..ASKED }).unwrap();
        assert_eq!(tls[0].place.to_string(), "name:8");
        assert_eq!(tls[0].redirects.to_string(), "asked:8");
    }

    #[test]
    fn the_ranges_of_a_primary_are_joined() {
        let answer = array([
            entry(0, 1, bulk("a"), "one"),
            entry(2, 2, Value::Nil, "two"),
            entry(3, 16_383, bulk("a"), "one"),
        ]);
        let primaries = serving(&answer, ASKED).unwrap();
        let found: Vec<_> = primaries.iter().map(found).collect();
        assert_eq!(found, [("one", "a:7".into(), 16_383), ("two", "asked:7".into(), 1)]);
        let tls = serving(&answer, Asked { is_tls: true, ..ASKED }).unwrap();
        assert_eq!((tls[0].place.host.as_str(), tls[0].redirects.host.as_str()), ("n", "a"));
    }

    #[test]
    fn a_server_is_in_a_cluster_whatever_its_role_is() {
        let slots = array([entry(0, 16_383, bulk("a"), "one")]);
        let shards = Value::Array(vec![Value::Map(vec![(
            bulk("nodes"),
            array([node("demoted", "b", ("replica", "loading"))]),
        )])]);
        let report = Report { primaries: Vec::new(), replies: vec![slots, shards] };
        for id in ["one", "replica", "demoted"] {
            assert!(report.has(id), "{id}");
        }
        assert!(!report.has("two") && !report.has("on"));
    }

    #[test]
    fn what_no_cluster_answers_is_not_read() {
        let primary = || node("a", "a", ("master", "online"));
        for answer in [
            Value::Okay,
            array([Value::Okay]),
            array([entry(0, 16_384, bulk("a"), "one")]),
            array([entry(5, 4, bulk("a"), "one")]),
            array([entry(-1, 4, bulk("a"), "one")]),
            array((0..=MAX_PRIMARIES).map(|_| shard(&[], [primary()]))),
        ] {
            assert_eq!(idle(&answer, ASKED), None, "{answer:?}");
            assert_eq!(serving(&answer, ASKED), None, "{answer:?}");
        }
    }
}
