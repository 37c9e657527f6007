//! The setup of each new command connection, as far as the Redis user's rights allow.
//!
//! # Implementation notes
//!
//! - A server is recognised by the run id in INFO. A user without that right loads a unique script:
//!   a server that still has the script by digest has not restarted, and is not a promoted replica,
//!   since scripts are neither replicated nor persisted from 7.0 on.
//! - The same run may have other data: behind a name, a server may have been a replica and the
//!   primary again since the last connection. INFO shows that, the script does not: a promotion
//!   changes the replication history's id, and keeps the id before. A first replica or a backup
//!   (SYNC) changes the id as well, but not the data, and sets the id before to zeros. So does a
//!   promoted server without replicas after `repl-backlog-ttl`, an hour by default: a server that
//!   was a replica is not noticed by a client that was disconnected for so long.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use redis::{Cmd, RedisError, Value};

use crate::call::load;
use crate::connection::Connection;
use crate::connector::LIBRARY;
use crate::error::{ClientError, ClientErrorKind};
use crate::failure;
use crate::hello::Hello;

/// What to set up on each new command connection of a [`CommandLink`](crate::CommandLink): the name
/// and the scripts, and which optional commands may be sent for this.
pub(crate) struct ConnectionSetup {
    /// The name of the connections in CLIENT LIST.
    name: String,
    /// The sources of the scripts to load into each server.
    scripts: Vec<&'static str>,
    /// The optional commands that the Redis user may send. Unset until the user's rights are known;
    /// until then, none is sent.
    extras: OnceLock<Extras>,
    /// True if the server has refused MULTI or EXEC since the connection was set up: the right was
    /// taken away, or the server is another.
    refuses_transact: AtomicBool,
    /// The same for the command that deletes a key only if it has a given value.
    refuses_compare: AtomicBool,
}

/// The optional commands that the Redis user may send. No other optional command is tried, because
/// the server would log each refusal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras {
    /// True if INFO may be sent. It returns the server's run id, by which the server is recognised
    /// after a reconnect.
    pub info: bool,
    /// True if SCRIPT LOAD may be sent. Otherwise each script is sent by source when a server lacks
    /// it.
    pub load: bool,
    /// True if CLIENT INFO may be sent. It returns the connection's id, which is needed for CLIENT
    /// KILL.
    pub identity: bool,
    /// True if CLIENT KILL may be sent. It closes a replaced connection on the server, so that a
    /// request still on its way there cannot run later.
    pub kill: bool,
    /// True if CLIENT SETINFO may be sent. It sets the name and version of this library on a
    /// connection.
    pub introduce: bool,
    /// True if transactions (MULTI and EXEC) may be sent.
    pub transact: bool,
    /// The server's command that deletes a key only if it has a given value. `None` if the server
    /// or the Redis user lacks the command.
    pub compare: Option<Compare>,
}

/// A server's command that deletes a key only if it has a given value. It returns the number of
/// deleted keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// The command `DELIFEQ key value`, in Valkey 9 and newer.
    Delifeq,
    /// The command `DELEX key IFEQ value`, in Redis 8.4 and newer.
    Delex,
}

/// Identifies a connection on a server, and the run of the server: the time from one start to the
/// next. The connection's id alone is ambiguous, because after a restart or a failover another
/// connection may have the same id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The connection's id; `None` if the Redis user may not read it.
    id: Option<String>,
    /// The server's run id, which changes with each restart; `None` if the Redis user may not read
    /// it.
    run: Option<String>,
    /// The server's replication history; `None` if the Redis user may not read it.
    history: Option<History>,
    /// The source of a random script that this client has loaded. A server that still has the
    /// script has not restarted since. `None` if the run id is known, or the server replicates
    /// scripts or refuses this one.
    mark: Option<String>,
}

/// A server's replication history, as in INFO.
#[derive(Debug, Clone, PartialEq, Eq)]
struct History {
    /// The history's id.
    id: String,
    /// True if the history begins with a promotion of the server, which was a replica before.
    begins_with_promotion: bool,
}

impl History {
    /// Parses the section of INFO about replication.
    fn read(info: &str) -> Option<Self> {
        let id = read_field(info, "master_replid:")?;
        let before = read_field(info, "master_replid2:")?;
        Some(Self { id, begins_with_promotion: before.contains(|digit| digit != '0') })
    }
}

impl Identity {
    /// Returns true if both connections are known to lead to the same run of the same server. False
    /// if neither run id nor script is known.
    pub(crate) fn is_on_run_of(&self, other: &Self) -> bool {
        let is_same = |ours: &Option<String>, theirs| ours.is_some() && ours == theirs;
        is_same(&self.run, &other.run) || is_same(&self.mark, &other.mark)
    }

    /// Returns true if, in addition, the server has not been a replica since `other`, the earlier
    /// identity, with the data of another server.
    pub(crate) fn is_on_server_of(&self, other: &Self) -> bool {
        let is_promoted = self.history.as_ref().is_none_or(|history| history.begins_with_promotion);
        self.is_on_run_of(other) && (self.history == other.history || !is_promoted)
    }

    /// Returns true if the Redis user could read the server's run id.
    pub(crate) fn has_run_id(&self) -> bool {
        self.run.is_some()
    }

    /// Returns true if the server's run can be recognised.
    pub(crate) fn is_known(&self) -> bool {
        self.is_on_run_of(self)
    }

    /// Returns the connection's id if the connection belongs to this run of the server. `None` if
    /// it belongs to another run, where the same id may mean another connection, or if a run is
    /// unknown.
    fn id_on(&self, run: Option<&str>) -> Option<&str> {
        self.id.as_deref().filter(|_| run.is_some() && self.run.as_deref() == run)
    }
}

impl ConnectionSetup {
    pub(crate) fn new(name: String, scripts: Vec<&'static str>) -> Self {
        Self {
            name,
            scripts,
            extras: OnceLock::new(),
            refuses_transact: AtomicBool::new(false),
            refuses_compare: AtomicBool::new(false),
        }
    }

    /// Sets which optional commands the Redis user may send. Only the first call has an effect.
    pub(crate) fn allow(&self, extras: Extras) {
        let _ = self.extras.set(extras);
    }

    /// Returns true if the Redis user may send MULTI and EXEC. False until the user's rights are
    /// known.
    pub(crate) fn may_transact(&self) -> bool {
        self.extras.get().is_some_and(|extras| extras.transact)
            && !self.refuses_transact.load(Ordering::Relaxed)
    }

    /// Returns the server's command that deletes a key only if it has a given value. `None` if the
    /// server or the Redis user lacks the command, and until the user's rights are known.
    pub(crate) fn may_compare(&self) -> Option<Compare> {
        let compare = self.extras.get()?.compare;
        compare.filter(|_| !self.refuses_compare.load(Ordering::Relaxed))
    }

    /// Records that the server has refused MULTI or EXEC. They are not tried again on this
    /// connection.
    pub(crate) fn note_refused_transact(&self) {
        self.refuses_transact.store(true, Ordering::Relaxed);
    }

    /// Does the same for the command of [`may_compare`](Self::may_compare).
    pub(crate) fn note_refused_compare(&self) {
        self.refuses_compare.store(true, Ordering::Relaxed);
    }

    /// Sets up a new connection, which replaces the connection identified by `old`. Closes the old
    /// connection on the server, so that each of its requests has run by then or never will; names
    /// the new connection; loads the scripts. Returns what identifies the new connection.
    ///
    /// The old connection is not closed without the necessary rights, or if the new connection
    /// leads to another run of the server, where earlier requests cannot run. Nothing is loaded on
    /// the same run, because the server still has the scripts, and loading would keep the server
    /// busy when a hundred processes reconnect at the same time.
    ///
    /// # Errors
    /// The connection broke, the server runs no commands at present, or it could not load a script.
    pub(crate) async fn apply(
        &self,
        connection: &Connection,
        hello: Option<&Hello>,
        old: &Identity,
    ) -> Result<Identity, ClientError> {
        let send = |command: Cmd| {
            let connection = connection.clone();
            async move { connection.send(&command).await }
        };
        self.refuses_transact.store(false, Ordering::Relaxed);
        self.refuses_compare.store(false, Ordering::Relaxed);
        let extras = self.extras.get().copied().unwrap_or_default();
        let mut identity = self.identify(connection, hello, old).await?;
        if let (Some(id), true) = (old.id_on(identity.run.as_deref()), extras.kill) {
            // The server refuses this if the rights have changed since.
            let _ = send(client(&["KILL", "ID", id])).await;
        }
        let name = hello.map(|hello| hello.name(&self.name));
        let library = [("LIB-NAME", LIBRARY.0), ("LIB-VER", LIBRARY.1)]
            .into_iter()
            .filter(|_| extras.introduce)
            .map(|(field, value)| client(&["SETINFO", field, value]));
        let loads = extras.load && !identity.is_on_run_of(old);
        let scripts = self.scripts.iter().filter(|_| loads);
        // All sent together. It does not matter whether the server accepts the names.
        let (_, loaded) = tokio::join!(
            join_all(name.into_iter().chain(library).map(send)),
            join_all(scripts.map(|script| send(load(script)))),
        );
        for loaded in loaded {
            if let Err(error) = loaded.map_err(|error| failure::of_connecting(&error)) {
                // Without this right, each script is sent by source the first time.
                if error.kind != ClientErrorKind::Denied {
                    return Err(error);
                }
            }
        }
        if extras.identity {
            let info = send(client(&["INFO"])).await.ok();
            identity.id = info.as_ref().and_then(read_id);
        }
        Ok(identity)
    }

    /// Returns what identifies the server at the other end of a connection. `old` identifies the
    /// server that it is to be compared with.
    ///
    /// # Errors
    /// The connection broke, or the server runs no commands at present.
    pub(crate) async fn identify(
        &self,
        connection: &Connection,
        hello: Option<&Hello>,
        old: &Identity,
    ) -> Result<Identity, ClientError> {
        // Sent together, because before 7.0 a single INFO returns a single section.
        let (server, replication) = tokio::try_join!(
            self.info(connection, "server"),
            self.info(connection, "replication"),
        )?;
        let run = server.and_then(|info| read_field(&info, "run_id:"));
        let history = replication.and_then(|info| History::read(&info));
        let may_mark = run.is_none() && hello.is_some_and(Hello::keeps_scripts);
        let mark = if may_mark { mark(connection, old).await? } else { None };
        Ok(Identity { id: None, run, history, mark })
    }

    /// Requests this section of INFO; `None` if the Redis user may not read it.
    ///
    /// # Errors
    /// The connection broke, or the server runs no commands at present.
    async fn info(
        &self,
        connection: &Connection,
        section: &str,
    ) -> Result<Option<String>, ClientError> {
        if !self.extras.get().is_some_and(|extras| extras.info) {
            return Ok(None);
        }
        match connection.send(redis::cmd("INFO").arg(section)).await {
            Ok(answer) => Ok(redis::from_redis_value(answer).ok()),
            Err(error) => unless_refused(&error).map(|()| None),
        }
    }
}

/// Returns the source of a random script by which this client recognises the server: the old script
/// if the server still has it, otherwise a new script, which is loaded. `None` if the server
/// refuses to run it. The errors are those of [`is_run`].
async fn mark(connection: &Connection, old: &Identity) -> Result<Option<String>, ClientError> {
    if let Some(mark) = &old.mark
        && has_mark(connection, mark).await?
    {
        return Ok(Some(mark.clone()));
    }
    let mark = format!("return '{:032x}'", rand::random::<u128>());
    let is_there = is_run(connection, redis::cmd("EVAL").arg(&mark).arg(0)).await?;
    Ok(is_there.then_some(mark))
}

async fn has_mark(connection: &Connection, mark: &str) -> Result<bool, ClientError> {
    let digest = sha1_smol::Sha1::from(mark).digest().to_string();
    is_run(connection, redis::cmd("EVALSHA").arg(digest).arg(0)).await
}

/// Returns true if both connections lead to the same run of the same server, by a new script that
/// is loaded over the first and found over the second. `hello` is the reply on the second.
///
/// # Errors
/// Those of [`is_run`].
pub(crate) async fn is_same_run(
    first: &Connection,
    second: &Connection,
    hello: Option<&Hello>,
) -> Result<bool, ClientError> {
    if !hello.is_some_and(Hello::keeps_scripts) {
        return Ok(false);
    }
    match mark(first, &Identity::default()).await? {
        Some(mark) => has_mark(second, &mark).await,
        None => Ok(false),
    }
}

/// Returns true if the server runs this script, and false if it does not have or refuses the
/// script.
///
/// # Errors
/// The connection broke, or the server runs no commands at present.
async fn is_run(connection: &Connection, script: &Cmd) -> Result<bool, ClientError> {
    match connection.send(script).await {
        Ok(_) => Ok(true),
        Err(error) => unless_refused(&error).map(|()| false),
    }
}

/// Returns the error, unless the server refused the command for good. Where the run of a server
/// stayed unknown because the server was loading, it would count as another server from then on.
fn unless_refused(error: &RedisError) -> Result<(), ClientError> {
    match failure::breaks_connection(error) || failure::is_for_now(error) {
        true => Err(failure::of_connecting(error)),
        false => Ok(()),
    }
}

/// Loads the script by which this client recognises the server once more, because servers forget
/// such scripts after many others. Does nothing if the server is recognised by the run id. The
/// errors are those of [`is_run`].
pub(crate) async fn load_mark(
    connection: &Connection,
    identity: &Identity,
) -> Result<(), ClientError> {
    let Some(mark) = &identity.mark else { return Ok(()) };
    is_run(connection, redis::cmd("EVAL").arg(mark).arg(0)).await.map(drop)
}

/// Requests the server's time, in µs since the epoch.
///
/// # Errors
/// There is no reply, or it is not a time.
pub async fn time(connection: &Connection) -> Result<u64, ClientError> {
    let answer = connection.send(&redis::cmd("TIME")).await;
    let answer = answer.map_err(|error| failure::of_connecting(&error))?;
    let (seconds, micros): (u64, u64) = redis::from_redis_value(answer)
        .map_err(|_| ClientError::refused(ClientErrorKind::Protocol, "unexpected reply to TIME"))?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

fn client(arguments: &[&str]) -> Cmd {
    let mut client = redis::cmd("CLIENT");
    client.arg(arguments);
    client
}

fn read_field(info: &str, field: &str) -> Option<String> {
    Some(info.lines().find_map(|line| line.strip_prefix(field))?.trim_end().to_owned())
}

fn read_id(info: &Value) -> Option<String> {
    let text: String = redis::from_redis_value_ref(info).ok()?;
    Some(text.split_whitespace().find_map(|word| word.strip_prefix("id="))?.to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Returns the outcome of a mark on a server that replies this to each request.
    async fn marked(reply: &'static str) -> Result<Option<String>, ClientError> {
        let (ours, mut server) = duplex(1 << 10);
        let serving = tokio::spawn(async move {
            while server.read(&mut [0; 1 << 10]).await.is_ok_and(|read| read > 0) {
                server.write_all(reply.as_bytes()).await.expect("the client is there");
            }
        });
        let outcome = mark(&Connection::over(ours), &Identity::default()).await;
        serving.await.expect("no panic");
        outcome
    }

    // Once, the server counted as another server until the connection broke.
    #[tokio::test]
    async fn a_server_is_not_taken_for_an_unknown_one_because_it_loads_or_runs_a_script() {
        for reply in ["-LOADING Redis is loading\r\n", "-BUSY Redis is busy\r\n"] {
            let error = marked(reply).await.expect_err("it is for now");
            assert_eq!(error.kind, ClientErrorKind::Unavailable, "{reply}");
        }
        assert_eq!(marked("-NOPERM no permissions\r\n").await.expect("for good"), None);
        assert!(marked("$1\r\nx\r\n").await.expect("it ran").is_some());
    }

    #[test]
    fn an_id_is_that_of_the_predecessor_on_the_run_that_gave_it_alone() {
        let of = |id: Option<&str>, run: Option<&str>| Identity {
            id: id.map(str::to_owned),
            run: run.map(str::to_owned),
            history: None,
            mark: None,
        };
        let known = of(Some("7"), Some("a"));
        assert_eq!(known.id_on(Some("a")), Some("7"));
        assert_eq!(known.id_on(Some("b")), None);
        assert_eq!(known.id_on(None), None);
        assert_eq!(of(Some("7"), None).id_on(None), None);
        assert_eq!(of(Some("7"), None).id_on(Some("a")), None);
        assert_eq!(of(None, Some("a")).id_on(Some("a")), None);
    }

    #[test]
    fn a_server_is_recognised_by_its_run_or_by_a_script_and_by_nothing_else() {
        let of = |run: Option<&str>, mark: Option<&str>| Identity {
            id: Some("7".to_owned()),
            run: run.map(str::to_owned),
            history: None,
            mark: mark.map(str::to_owned),
        };
        let known = of(Some("a"), Some("b"));
        assert!(of(Some("a"), None).is_on_server_of(&known));
        assert!(of(None, Some("b")).is_on_server_of(&known));
        assert!(!of(Some("b"), Some("a")).is_on_server_of(&known));
        assert!(!of(None, None).is_on_server_of(&of(None, None)));
    }

    #[test]
    fn a_server_that_was_a_replica_in_between_is_the_same_run_and_another_server() {
        let none = "0".repeat(40);
        let of = |id: &str, before: &str| {
            let info = format!("role:master\r\nmaster_replid:{id}\r\nmaster_replid2:{before}\r\n");
            let history = History::read(&info);
            assert!(history.is_some(), "{info}");
            Identity { run: Some("a".to_owned()), history, ..Identity::default() }
        };
        for known in [of("b", &none), of("b", "a")] {
            assert!(of("b", &none).is_on_server_of(&known));
            assert!(!of("c", "b").is_on_server_of(&known));
            assert!(of("c", "b").is_on_run_of(&known));
            assert!(of("c", &none).is_on_server_of(&known), "a backup changes the id only");
            assert!(!Identity { history: None, ..known.clone() }.is_on_server_of(&known));
        }
        assert!(of("b", "a").is_on_server_of(&of("b", "a")));
    }
}
