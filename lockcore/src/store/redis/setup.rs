//! The setup of each new command connection, as far as its user may.

use std::sync::OnceLock;

use futures_util::future::join_all;
use proto::wire::Script;
use proto::{LockErrorKind, StoreError};
use redis::{Cmd, Value};

use super::call::load;
use super::connection::Connection;
use super::connector::LIBRARY;
use super::failure;
use super::hello::Hello;

/// The same for each connection of a link.
pub(crate) struct ConnectionSetup {
    /// The name in CLIENT LIST.
    name: String,
    scripts: Vec<&'static Script>,
    /// Unset until the user's rights are known: then nothing beyond the least is tried.
    extras: OnceLock<Extras>,
}

/// Rights that are worth having. A command that is not allowed is not tried: the server would log
/// each attempt.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extras {
    /// INFO, for the memory policy.
    pub(crate) info: bool,
    /// SCRIPT LOAD, so that no script goes by its source.
    pub(crate) load: bool,
    /// CLIENT INFO, for the id of a connection.
    pub(crate) identity: bool,
    /// CLIENT KILL, to end the connection that was replaced.
    pub(crate) kill: bool,
    /// CLIENT SETINFO, with the name of this library.
    pub(crate) introduce: bool,
}

/// A connection as the server knows it. The id alone would be another's after a restart.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    id: String,
    address: String,
}

impl ConnectionSetup {
    pub(crate) fn new(name: String, scripts: Vec<&'static Script>) -> Self {
        Self { name, scripts, extras: OnceLock::new() }
    }

    /// The rights of the user beyond the least, once for all connections.
    pub(crate) fn allow(&self, extras: Extras) {
        let _ = self.extras.set(extras);
    }

    /// Makes sure that nothing of the `old` connection runs after this, names the new one and loads
    /// the scripts into its server. Returns the id of the connection, where the user may know it.
    pub(crate) async fn apply(
        &self,
        connection: &Connection,
        hello: Option<&Hello>,
        old: Option<&Identity>,
    ) -> Result<Option<Identity>, StoreError> {
        let send = |command: Cmd| {
            let connection = connection.clone();
            async move { connection.send(&command).await }
        };
        let extras = self.extras.get().copied().unwrap_or_default();
        if let (Some(Identity { id, address }), true) = (old, extras.kill) {
            // Refused where the rights have changed; tombstones then do without it.
            let _ = send(client(&["KILL", "ID", id, "ADDR", address])).await;
        }
        let name = hello.map(|hello| hello.name(&self.name));
        let library = [("LIB-NAME", LIBRARY.0), ("LIB-VER", LIBRARY.1)]
            .into_iter()
            .filter(|_| extras.introduce)
            .map(|(field, value)| client(&["SETINFO", field, value]));
        let scripts = self.scripts.iter().filter(|_| extras.load);
        // All on their way at once. Whether the server keeps who we are changes nothing.
        let (_, loaded) = tokio::join!(
            join_all(name.into_iter().chain(library).map(send)),
            join_all(scripts.map(|script| send(load(script)))),
        );
        for loaded in loaded {
            if let Err(error) = loaded.map_err(|error| failure::of_connecting(&error)) {
                // Without that right, each script goes by its source the first time.
                if error.kind != LockErrorKind::Denied {
                    return Err(error);
                }
            }
        }
        if !extras.identity {
            return Ok(None);
        }
        Ok(send(client(&["INFO"])).await.ok().and_then(|info| read_identity(&info)))
    }
}

impl ConnectionSetup {
    /// The run of the server, which is another one after each restart, where the user may know it.
    pub(crate) async fn server_run(
        &self,
        connection: &Connection,
    ) -> Result<Option<String>, StoreError> {
        if !self.extras.get().is_some_and(|extras| extras.info) {
            return Ok(None);
        }
        let mut info = redis::cmd("INFO");
        info.arg("server");
        match connection.send(&info).await {
            Ok(answer) => {
                Ok(redis::from_redis_value::<String>(answer).ok().as_deref().and_then(read_run))
            }
            // Taken for a run that is not known, it would make the same server another one.
            Err(error) if failure::breaks_connection(&error) => Err(failure::of_connecting(&error)),
            Err(_) => Ok(None),
        }
    }
}

/// The server's time, µs since the epoch. All tokens that the servers before it have issued are
/// below that, unless its clock is behind theirs.
pub(crate) async fn time(connection: &Connection) -> Result<u64, StoreError> {
    let answer = connection.send(&redis::cmd("TIME")).await;
    let answer = answer.map_err(|error| failure::of_connecting(&error))?;
    let (seconds, micros): (u64, u64) = redis::from_redis_value(answer)
        .map_err(|_| StoreError::refused(LockErrorKind::Protocol, "TIME tells no time"))?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

fn client(arguments: &[&str]) -> Cmd {
    let mut client = redis::cmd("CLIENT");
    client.arg(arguments);
    client
}

fn read_run(info: &str) -> Option<String> {
    Some(info.lines().find_map(|line| line.strip_prefix("run_id:"))?.trim_end().to_owned())
}

fn read_identity(info: &Value) -> Option<Identity> {
    let text: String = redis::from_redis_value_ref(info).ok()?;
    let of = |name: &str| {
        Some(text.split_whitespace().find_map(|word| word.strip_prefix(name))?.to_owned())
    };
    Some(Identity { id: of("id=")?, address: of("addr=")? })
}
