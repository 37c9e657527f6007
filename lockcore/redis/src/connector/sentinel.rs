//! Requests the primary's address from the sentinels.
//!
//! # Implementation notes
//!
//! redis-rs has a client for this. It trusts the first sentinel that replies, even though an
//! isolated sentinel still names the old primary; it opens a connection to the primary for each
//! lookup; and it checks the role with a command for which users otherwise need no right. Here all
//! sentinels are queried concurrently, and the newest configuration wins, also against all later
//! replies: see [`known`]. The role comes with HELLO on the connection that is opened anyway.

mod known;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisError, Value};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinError;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use self::known::Known;
use super::{invalid, read_url, tuned};
use crate::connection::Connection;
use crate::error::{ClientError, ClientErrorKind};
use crate::failure;
use crate::pace::{ConnectAttempt, Pace, Timeouts};
use crate::sentinel_primary::Primary;
use crate::sentinels::Sentinels as Settings;
use crate::tls::{self, Tls, is_tls};

/// How long a lookup waits for the remaining sentinels after a majority has replied, or after a
/// reply with a newer configuration than the known one. A slower sentinel may know an even newer
/// configuration.
const STRAGGLER_WAIT: Duration = Duration::from_millis(200);
/// Timeout of each request to a sentinel, and of a whole lookup once a primary is known. Also the
/// pause between two lookups while a connection to the primary is being opened.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// The sentinels of a primary, the connections to them, and the newest configuration that they have
/// reported.
pub(super) struct SentinelClients {
    sentinels: Vec<Sentinel>,
    /// The primary's name in Sentinel.
    name: String,
    tls: Tls,
    /// The primary's connection settings. The address is a placeholder, because the sentinels
    /// supply it.
    primary: ConnectionInfo,
    /// The primary that commands are sent to; `None` before the first connection. The subscription
    /// watches it, and reconnects when it changes.
    current: watch::Sender<Option<Primary>>,
    /// The newest configuration that the sentinels have reported, by which later replies are
    /// judged.
    known: std::sync::Mutex<Known>,
}

/// A sentinel's connection settings, and the connection to it.
struct Sentinel {
    info: ConnectionInfo,
    way: Mutex<SentinelWay>,
}

struct SentinelWay {
    /// The open connection; `None` if there is none. A lookup that does not wait for the slowest
    /// sentinels leaves requests pending on it.
    open: Option<Connection>,
    /// When the first query was sent that may be pending.
    asked: Option<Instant>,
    opening: Option<Opening>,
    pace: Pace,
}

/// A connection attempt to a sentinel. It outlives the lookup that started it, because a sentinel
/// with many reconnecting clients may need longer than a lookup waits.
struct Opening {
    attempt: Arc<ConnectAttempt>,
    task: AbortOnDropHandle<(Pace, Result<Connection, ClientError>)>,
}

impl SentinelClients {
    pub(super) fn new(
        settings: &Settings,
        tls: &Tls,
        timeouts: Timeouts,
    ) -> Result<Self, ClientError> {
        let Settings { name, sentinels, primary } = settings;
        if name.is_empty() || sentinels.is_empty() {
            let detail = "give the primary's name and at least one sentinel";
            return Err(ClientError::refused(ClientErrorKind::InvalidOption, detail));
        }
        let open = |url: &String| {
            let info = read_url(url)?;
            if info.redis_settings().db() != 0 {
                let detail = "a sentinel has no databases: set the database of the primary";
                return Err(ClientError::refused(ClientErrorKind::InvalidOption, detail));
            }
            let info = tuned(with_certificates(tls, info)?);
            Client::open(info.clone()).map_err(|error| invalid(&error))?;
            Ok(Sentinel { info, way: Mutex::new(SentinelWay::new(timeouts)) })
        };
        let sentinels = sentinels.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let primary = read_url(primary)?;
        let primary = if sentinels.iter().any(|sentinel| is_tls(sentinel.address())) {
            with_certificates(tls, primary)?
        } else {
            // Certificates without any TLS connection are refused.
            tls.apply(primary)?
        };
        let primary = tuned(primary);
        Ok(Self {
            sentinels,
            name: name.clone(),
            tls: tls.clone(),
            primary,
            current: watch::Sender::new(None),
            known: std::sync::Mutex::default(),
        })
    }

    /// Returns the primary's connection settings, with a placeholder address.
    pub(super) fn template(&self) -> &ConnectionInfo {
        &self.primary
    }

    /// Returns the connection settings of the primary at the address that the sentinels returned.
    pub(super) fn reach(&self, primary: &Primary) -> ConnectionInfo {
        let Primary { host, port, .. } = primary;
        let address = match self.primary.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host.clone(), *port),
        };
        self.primary.clone().set_addr(address)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that commands are sent to this primary from now on. The subscription then follows.
    ///
    /// # Errors
    /// Another lookup has returned a newer configuration since the primary was found.
    pub(super) fn set_current(&self, primary: Primary) -> Result<(), ClientError> {
        self.check(&primary)?;
        self.current.send_replace(Some(primary));
        Ok(())
    }

    /// Fails if a configuration newer than the primary's is known, because the primary is then
    /// outdated.
    fn check(&self, primary: &Primary) -> Result<(), ClientError> {
        if self.known().is_newer_than(primary) {
            let detail = format!(
                "{primary} belongs to an older configuration: the sentinels have named another \
                 primary since"
            );
            return Err(ClientError::refused(ClientErrorKind::Unavailable, detail));
        }
        Ok(())
    }

    /// Returns the primary that commands are sent to; `None` before the first connection.
    ///
    /// # Errors
    /// The sentinels have named another primary meanwhile.
    pub(super) fn current(&self) -> Result<Option<Primary>, ClientError> {
        let current = self.command_server();
        current.iter().try_for_each(|current| self.check(current))?;
        Ok(current)
    }

    /// Returns the primary that commands are sent to, even if the sentinels have named another one
    /// meanwhile; `None` before the first connection.
    pub(super) fn command_server(&self) -> Option<Primary> {
        self.current.borrow().clone()
    }

    /// Returns the address that commands were last sent to; empty before the first connection.
    pub(super) fn last_primary(&self) -> String {
        self.current.borrow().as_ref().map_or(String::new(), Primary::to_string)
    }

    /// Waits until commands are sent to another server than this primary.
    pub(super) async fn switched_server(&self, primary: &Primary) {
        let is_elsewhere = |current: &Option<Primary>| {
            current.as_ref().is_some_and(|current| !current.is_at(primary))
        };
        // Never closed: this type owns the sender.
        let _ = self.current.subscribe().wait_for(is_elsewhere).await;
    }

    /// Waits until the sentinels name a primary other than `primary`. Returns the error for a
    /// connection attempt to `primary`, which the caller then gives up: if the server is gone, the
    /// attempt could take long.
    pub(super) async fn another_than(&self, primary: &Primary) -> ClientError {
        loop {
            tokio::time::sleep(LOOKUP_TIMEOUT).await;
            if let Ok(found) = self.query_all(LOOKUP_TIMEOUT).await
                && !found.is_at(primary)
            {
                let detail = format!("the sentinels name another primary than {primary}: {found}");
                return ClientError::refused(ClientErrorKind::Unavailable, detail);
            }
        }
    }

    /// Waits until the sentinels name another primary than `primary`. Completes at once if they
    /// have done so already.
    pub(super) async fn failed_over(&self, primary: &Primary) {
        if self.check(primary).is_ok() {
            self.another_than(primary).await;
        }
    }

    /// Returns the primary that the sentinels name, if it differs from the current primary. `None`
    /// otherwise, also if there is no current primary or the sentinels do not reply.
    pub(super) async fn moved(&self) -> Option<Primary> {
        let current = self.current.borrow().clone()?;
        let found = self.query_all(LOOKUP_TIMEOUT).await.ok()?;
        (!found.is_at(&current)).then_some(found)
    }

    /// Returns the primary that the sentinels name. Waits for replies at most for the timeout of
    /// `attempt`, or a second once commands have been sent to a primary. Fails if no sentinel
    /// replies, or the replies are not trusted.
    pub(super) async fn locate(&self, attempt: &ConnectAttempt) -> Result<Primary, ClientError> {
        let is_known = self.current.borrow().is_some();
        self.query_all(if is_known { LOOKUP_TIMEOUT } else { attempt.limit }).await
    }

    /// Queries all sentinels concurrently, and returns the primary in the newest configuration.
    /// `patience` is the maximum time to wait for replies. Fails if [`Known::judge`] does not trust
    /// the replies, for example because too few sentinels have replied.
    async fn query_all(&self, patience: Duration) -> Result<Primary, ClientError> {
        let query = |sentinel| async move {
            (sentinel, Sentinel::query_primary(sentinel, &self.name, &self.tls).await)
        };
        let mut queries: FuturesUnordered<_> = self.sentinels.iter().map(query).collect();
        let mut deadline = Instant::now() + patience;
        let mut answers = Vec::new();
        let mut refusals = Vec::new();
        while let Ok(Some((sentinel, answer))) = timeout_at(deadline, queries.next()).await {
            match answer {
                Ok(primary) => {
                    let is_news = self.known().is_older_than(&primary);
                    answers.push(primary);
                    if is_news || answers.len() >= known::majority(self.sentinels.len()) {
                        deadline = deadline.min(Instant::now() + STRAGGLER_WAIT);
                    }
                }
                Err(refusal) => refusals.push((sentinel, refusal)),
            }
        }
        drop(queries);
        let judged = self.known().judge(Instant::now(), &answers, self.sentinels.len());
        judged.map_err(|why| match answers.is_empty() {
            true => self.nowhere(&refusals),
            false => ClientError::refused(ClientErrorKind::Unavailable, why),
        })
    }

    /// Creates the error for a lookup in which no sentinel named the primary. `refusals` has the
    /// errors of the sentinels, and is empty if none has failed yet.
    fn nowhere(&self, refusals: &[(&Sentinel, ClientError)]) -> ClientError {
        // Prefer an error that a person can fix: an unavailable sentinel may be one of several.
        let lasting = refusals.iter().find(|(_, why)| why.kind != ClientErrorKind::Unavailable);
        let kind = lasting.map_or(ClientErrorKind::Unavailable, |(_, why)| why.kind);
        let each: Vec<_> = refusals
            .iter()
            .map(|(who, why)| format!("{}: {}", who.address(), why.detail))
            .collect();
        let each = if each.is_empty() { self.silent() } else { each.join("; ") };
        let detail =
            format!("no sentinel returned the address of the primary {} ({each})", self.name);
        ClientError::refused(kind, detail)
    }

    /// Describes, for each sentinel, why it has not replied yet. For the error of a lookup without
    /// any reply.
    fn silent(&self) -> String {
        let each: Vec<_> = self.sentinels.iter().map(Sentinel::why_silent).collect();
        let advice = self.sentinels.iter().find_map(|each| tls::advice_if_silent(each.address()));
        let advice = advice.map_or(String::new(), |advice| format!(": {advice}"));
        each.join("; ") + &advice
    }
}

impl Sentinel {
    fn address(&self) -> &ConnectionAddr {
        self.info.addr()
    }

    /// Requests the primary's address and configuration from this sentinel, and first connects if
    /// there is no open connection. `name` is the primary's name.
    async fn query_primary(&self, name: &str, tls: &Tls) -> Result<Primary, ClientError> {
        let mut way = self.way.lock().await;
        way.discard_silent();
        let connection = match &way.open {
            Some(connection) => connection.clone(),
            None => self.opened(&mut way, name, tls).await?,
        };
        way.open = Some(connection.clone());
        way.asked.get_or_insert_with(Instant::now);
        // If this future is dropped here, a later lookup finds out whether the sentinel replies.
        let answers = query(&connection, name).await;
        way.asked = None;
        if answers.as_ref().is_err_and(failure::breaks_connection) {
            way.open = None;
        }
        let answers = answers.map_err(|error| refusal(&error, self.address(), name))?;
        Primary::read(&answers).ok_or_else(|| {
            let detail = "not a sentinel: list the sentinels, not the servers";
            ClientError::refused(ClientErrorKind::InvalidOption, detail)
        })
    }

    /// Returns a new connection: waits for the attempt in progress, or else starts one and waits
    /// for it.
    async fn opened(
        &self,
        way: &mut SentinelWay,
        name: &str,
        tls: &Tls,
    ) -> Result<Connection, ClientError> {
        let opening = match &mut way.opening {
            Some(opening) => opening,
            none => none.insert(self.begin(&way.pace, name, tls).await?),
        };
        let ended = (&mut opening.task).await;
        way.opening = None;
        // The task ends early only with its runtime, which also ends this future.
        let gone =
            |error: JoinError| ClientError::refused(ClientErrorKind::Closed, error.to_string());
        let (pace, opened) = ended.map_err(gone)?;
        way.pace = pace;
        opened
    }

    /// Starts a connection attempt in a new task, with the timeout that `pace` allows. `name` is
    /// the primary's name, for errors.
    async fn begin(&self, pace: &Pace, name: &str, tls: &Tls) -> Result<Opening, ClientError> {
        let (info, certificates) = tls.now(self.info.clone()).await?;
        let attempt = Arc::new(pace.attempt());
        let (mut pace, own) = (pace.clone(), Arc::clone(&attempt));
        let (address, name) = (self.address().clone(), name.to_owned());
        let task = async move {
            match Connection::open(info, Some(&certificates), LOOKUP_TIMEOUT, &own).await {
                Ok(opened) => {
                    opened.shorten_timeout(LOOKUP_TIMEOUT);
                    (pace.anew(), Ok(opened))
                }
                Err(error) if error.is_timeout() => {
                    let why = ClientError::refused(ClientErrorKind::Unavailable, own.why_late());
                    pace.after(&own).await;
                    (pace, Err(why))
                }
                // No pause: lookups are rare.
                Err(error) => (pace, Err(refusal(&error, &address, &name))),
            }
        };
        Ok(Opening { attempt, task: AbortOnDropHandle::new(tokio::spawn(task)) })
    }

    fn why_silent(&self) -> String {
        let way = self.way.try_lock();
        let opening = way.as_ref().ok().and_then(|way| way.opening.as_ref());
        let why = opening.map(|opening| opening.attempt.why_late());
        format!("{}: {}", self.address(), why.as_deref().unwrap_or("no reply in time"))
    }
}

impl SentinelWay {
    fn new(timeouts: Timeouts) -> Self {
        Self { open: None, asked: None, opening: None, pace: Pace::among_others(timeouts) }
    }

    /// Discards the connection if the sentinel has not replied on it in time. A redis-rs connection
    /// does not report whether replies have arrived since, so it counts as silent.
    fn discard_silent(&mut self) {
        let Some(connection) = &self.open else { return };
        if connection.unanswered() == Some(0) {
            self.asked = None;
        }
        if self.asked.is_some_and(|asked| asked.elapsed() > LOOKUP_TIMEOUT) {
            (self.open, self.asked) = (None, None);
        }
    }
}

/// Translates an error from the sentinel at `address` into a client error, and adds the remedy if
/// TLS may be the cause. `name` is the primary's name.
fn refusal(error: &RedisError, address: &ConnectionAddr, name: &str) -> ClientError {
    let refused = of_sentinel(error, name);
    match tls::advice(error, address) {
        Some(advice) => {
            let detail = format!("{}: {advice}", refused.detail);
            ClientError { detail: detail.into(), ..refused }
        }
        None => refused,
    }
}

/// Requests the configuration of the primary, for the epoch, and then the address. The address is
/// requested with GET-MASTER-ADDR-BY-NAME, because at the end of a failover only this command
/// returns the new primary. If a failover ends between the two replies, the address is newer than
/// the epoch.
async fn query(connection: &Connection, name: &str) -> Result<Vec<Value>, RedisError> {
    let mut configuration = redis::cmd("SENTINEL");
    configuration.arg("MASTER").arg(name);
    let mut address = redis::cmd("SENTINEL");
    address.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    // `join` polls them in this order, and so they are sent in this order.
    let (configuration, address) =
        join(connection.send(&configuration), connection.send(&address)).await;
    Ok(vec![configuration?, address?])
}

/// Translates a sentinel's error into a client error, which says so if the server is not a
/// sentinel, or monitors no primary named `name`.
fn of_sentinel(error: &RedisError, name: &str) -> ClientError {
    let said = error.detail().unwrap_or_default().to_ascii_lowercase();
    let refused = |detail: String| ClientError::refused(ClientErrorKind::InvalidOption, detail);
    if said.contains("no such master") || said.contains("no such primary") {
        return refused(format!("the sentinel monitors no primary named {name}"));
    }
    if said.contains("unknown command") {
        return refused("not a sentinel: list the sentinels, not the servers".to_owned());
    }
    failure::of_connecting(error)
}

/// Returns `info` with the certificates of `tls` if the address uses TLS, otherwise unchanged,
/// because sentinels may use TLS while the primary does not.
fn with_certificates(tls: &Tls, info: ConnectionInfo) -> Result<ConnectionInfo, ClientError> {
    if is_tls(info.addr()) { tls.apply(info) } else { Ok(info) }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn sentinels() -> SentinelClients {
        let second = Duration::from_secs(1);
        let timeouts = Timeouts { connect: second, request: second };
        let settings = Settings::new("locks", ["redis://h:26379"]).primary("redis://u:p@ignored/3");
        SentinelClients::new(&settings, &Tls::default(), timeouts).expect("valid")
    }

    #[tokio::test]
    async fn a_failover_that_is_known_already_ends_a_pause_at_once() {
        let sentinels = sentinels();
        let [old, new] = [0, 1].map(|epoch| {
            let primary = Primary { host: format!("h{epoch}"), port: 6380, epoch };
            sentinels
                .known()
                .judge(Instant::now(), std::slice::from_ref(&primary), 1)
                .expect("newer");
            primary
        });
        assert_eq!(sentinels.failed_over(&old).now_or_never(), Some(()));
        assert_eq!(sentinels.failed_over(&new).now_or_never(), None);
    }

    #[test]
    fn the_primary_is_reached_as_its_url_says_but_where_the_sentinels_say() {
        let sentinels = sentinels();
        let primary = Primary { host: "10.0.0.7".to_owned(), port: 6380, epoch: 0 };
        let info = sentinels.reach(&primary);
        assert_eq!(info.addr(), &ConnectionAddr::Tcp("10.0.0.7".to_owned(), 6380));
        let settings = info.redis_settings();
        assert_eq!((settings.username(), settings.db()), (Some("u"), 3));
    }
}
