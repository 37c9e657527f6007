//! Checks a server when a node connects: its version, mode, role and memory policy.

use std::collections::HashMap;

use client::{CommandLink, Hello};
use proto::{LockErrorKind, StoreError, Topology};
use redis::Value;
use tracing::{debug, warn};

use super::run::Run as _;
use crate::foreign;
use crate::store::confirmation::Confirmation;
use crate::types::error::LockError;

/// Oldest server version, major and minor, that has all commands used by this crate.
const OLDEST: (u32, u32) = (6, 2);

/// The fields in a server's reply to INFO, by name.
pub(super) struct Info(HashMap<String, String>);

/// Returns an error if the server cannot be used for locks: it is too old, runs in the wrong mode,
/// or is a replica.
pub(crate) async fn check_server(
    link: &CommandLink,
    hello: Option<Hello>,
    needs: Needs,
) -> Result<(), LockError> {
    if let Some(hello) = hello {
        let mode = match &*hello.mode {
            "sentinel" => Mode::Sentinel,
            "cluster" => Mode::Cluster,
            _ => Mode::Alone,
        };
        let (version, is_replica) = (&*hello.version, hello.is_replica());
        return check(Server { version, mode, is_replica }, needs);
    }
    // The server is too old for HELLO, or behind a proxy without HELLO.
    match info(link).await {
        Ok(info) => {
            let mode = match (info.of("redis_mode"), info.of("cluster_enabled")) {
                ("sentinel", _) => Mode::Sentinel,
                (_, "1") => Mode::Cluster,
                _ => Mode::Alone,
            };
            let (version, is_replica) = (info.of("redis_version"), info.of("role") == "slave");
            check(Server { version, mode, is_replica }, needs)
        }
        Err(error) if is_unavailable(&error) => {
            foreign::log(|| {
                debug!("neither HELLO nor INFO is available: the server version is not checked");
            });
            Ok(())
        }
        Err(error) => Err(LockError::of_store(error)),
    }
}

/// The version, mode and role that a server reports.
#[derive(Debug, Clone, Copy)]
struct Server<'a> {
    version: &'a str,
    mode: Mode,
    is_replica: bool,
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    Alone,
    Cluster,
    Sentinel,
}

/// The requirements of a `Locks` that a server must meet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    pub(crate) topology: Topology,
    pub(crate) confirmation: Option<Confirmation>,
}

fn check(server: Server<'_>, needs: Needs) -> Result<(), LockError> {
    let Server { version, mode, is_replica } = server;
    let Needs { topology, confirmation } = needs;
    let unsupported =
        |detail: String| Err(LockError::with_detail(LockErrorKind::Unsupported, detail));
    if read_version(version).is_some_and(|version| version < OLDEST) {
        let (major, minor) = OLDEST;
        return unsupported(format!("the server is Redis {version}: use {major}.{minor} or newer"));
    }
    if let Some((oldest, command)) = confirmation.as_ref().and_then(Confirmation::needs)
        && read_version(version).is_some_and(|version| version < oldest)
    {
        let (major, minor) = oldest;
        return unsupported(format!(
            "the server is Redis {version}, without {command}: use {major}.{minor} or newer"
        ));
    }
    let wrong = match (mode, topology) {
        (Mode::Cluster, Topology::Cluster) | (Mode::Alone, Topology::Single | Topology::Quorum) => {
            None
        }
        (Mode::Cluster, Topology::Single | Topology::Quorum) => {
            Some("the server runs in cluster mode: write redis+cluster://host:port")
        }
        (Mode::Sentinel, _) => {
            Some("the server is a Sentinel: write redis+sentinel://host:port/primary-name")
        }
        (Mode::Alone, Topology::Cluster) => {
            Some("the server does not run in cluster mode: write redis://host:port")
        }
    };
    if let Some(detail) = wrong {
        return unsupported(detail.to_owned());
    }
    if is_replica {
        return Err(LockError::with_detail(LockErrorKind::ReadOnly, "the server is a replica"));
    }
    Ok(())
}

/// Logs a warning for each setting with which the server may lose locks. `is_watched` is true if
/// sentinels may replace the server.
pub(crate) async fn check_settings(link: &CommandLink, is_watched: bool) -> Result<(), LockError> {
    let info = match info(link).await {
        Ok(info) => info,
        Err(error) if is_unavailable(&error) => {
            foreign::log(|| debug!("INFO is not allowed: the memory policy is not checked"));
            return Ok(());
        }
        Err(error) => return Err(LockError::of_store(error)),
    };
    let policy = info.of("maxmemory_policy");
    if info.of("maxmemory") != "0" && !policy.is_empty() && policy != "noeviction" {
        foreign::log(|| {
            warn!(
                policy,
                "Redis may evict locks when its memory is full: set maxmemory-policy to noeviction"
            );
        });
    }
    // INFO has this field only if min-replicas-to-write and min-replicas-max-lag are set.
    if is_watched && info.of("min_slaves_good_slaves").is_empty() {
        foreign::log(|| {
            warn!(
                "a returning old primary grants locks until the sentinels demote it: set \
                 min-replicas-to-write to 1 or more and min-replicas-max-lag to 2 on all servers"
            );
        });
    }
    Ok(())
}

/// Returns true if the command has failed because it is forbidden or unknown.
fn is_unavailable(error: &StoreError) -> bool {
    matches!(error.kind, LockErrorKind::Denied | LockErrorKind::Unsupported)
}

async fn info(link: &CommandLink) -> Result<Info, StoreError> {
    Ok(Info::read(&link.run(redis::cmd("INFO")).await?))
}

impl Info {
    pub(super) fn read(answer: &Value) -> Self {
        let text: String = redis::from_redis_value_ref(answer).unwrap_or_default();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(super) fn of(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }
}

pub(super) fn read_version(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use crate::store::confirmation::ConfirmedBy;

    use super::*;

    fn checked(version: &str, mode: Mode, topology: Topology) -> Result<(), LockError> {
        check(Server { version, mode, is_replica: false }, Needs { topology, confirmation: None })
    }

    #[test]
    fn an_old_server_is_refused_with_its_version() {
        let error = checked("6.0.16", Mode::Alone, Topology::Single).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unsupported);
        assert!(error.to_string().contains("6.0.16"));
        for version in ["6.2.0", "10.0.0", ""] {
            assert!(checked(version, Mode::Alone, Topology::Single).is_ok());
        }
    }

    #[test]
    fn a_server_without_waitaof_is_refused_only_where_a_grant_waits_for_the_disk() {
        let timeout = std::time::Duration::from_secs(1);
        let by = |by| Some(Confirmation { by, timeout });
        for (confirmation, version, is_right) in [
            (None, "7.0.15", true),
            (by(ConfirmedBy::Replicas(1)), "7.0.15", true),
            (by(ConfirmedBy::Fsync { replicas: 0 }), "7.0.15", false),
            (by(ConfirmedBy::Fsync { replicas: 0 }), "7.2.0", true),
            (by(ConfirmedBy::Fsync { replicas: 0 }), "10.0.0", true),
        ] {
            let server = Server { version, mode: Mode::Alone, is_replica: false };
            let checked = check(server, Needs { topology: Topology::Single, confirmation });
            assert_eq!(checked.is_ok(), is_right, "{confirmation:?} on {version}");
            if let Err(error) = checked {
                assert_eq!(error.kind(), LockErrorKind::Unsupported);
                assert!(error.to_string().contains("7.2 or newer"), "{error}");
            }
        }
    }

    #[test]
    fn what_cannot_carry_locks_is_refused() {
        for (mode, topology, is_right) in [
            (Mode::Alone, Topology::Single, true),
            (Mode::Alone, Topology::Quorum, true),
            (Mode::Alone, Topology::Cluster, false),
            (Mode::Cluster, Topology::Single, false),
            (Mode::Cluster, Topology::Quorum, false),
            (Mode::Cluster, Topology::Cluster, true),
            (Mode::Sentinel, Topology::Single, false),
            (Mode::Sentinel, Topology::Cluster, false),
        ] {
            let kind = checked("7.0.0", mode, topology).err().map(|error| error.kind());
            let expected = (!is_right).then_some(LockErrorKind::Unsupported);
            assert_eq!(kind, expected, "{mode:?}, {topology:?}");
            let replica = Server { version: "7.0.0", mode, is_replica: true };
            let expected = expected.unwrap_or(LockErrorKind::ReadOnly);
            let needs = Needs { topology, confirmation: None };
            assert_eq!(check(replica, needs).unwrap_err().kind(), expected);
        }
    }

    #[test]
    fn the_lines_of_info_are_read() {
        let text = "# Memory\r\nmaxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n";
        let info = Info::read(&Value::BulkString(text.into()));
        assert_eq!(info.of("maxmemory_policy"), "allkeys-lru");
        assert_eq!(info.of("absent"), "");
    }
}
