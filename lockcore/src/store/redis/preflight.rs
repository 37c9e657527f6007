//! The checks of a server at connect: version, mode, role and memory policy.

use std::collections::HashMap;

use client::{CommandLink, Hello};
use proto::{LockErrorKind, StoreError, Topology};
use redis::Value;
use tracing::{debug, warn};

use super::run::Run as _;
use crate::error::LockError;

/// The oldest server that has all commands we use.
const OLDEST: (u32, u32) = (6, 2);

/// The answer of a server to INFO.
pub(super) struct Info(HashMap<String, String>);

/// Refuses a server that cannot carry locks.
pub(crate) async fn check_server(
    link: &CommandLink,
    hello: Option<Hello>,
    topology: Topology,
) -> Result<(), LockError> {
    let is_member = topology == Topology::Cluster;
    if let Some(Hello { version, mode, role, .. }) = hello {
        let is_cluster = mode == "cluster";
        return check(&version, (is_cluster, is_member), mode == "sentinel", role == "replica");
    }
    // Too old for HELLO, or a proxy that does not know it.
    match info(link).await {
        Ok(info) => {
            let sentinel = info.of("redis_mode") == "sentinel";
            let cluster = info.of("cluster_enabled") == "1";
            let replica = info.of("role") == "slave";
            check(info.of("redis_version"), (cluster, is_member), sentinel, replica)
        }
        Err(error) if is_unavailable(&error) => {
            debug!("neither HELLO nor INFO is answered: the server's version is not checked");
            Ok(())
        }
        Err(error) => Err(LockError::of_store(error)),
    }
}

fn check(
    version: &str,
    (is_cluster, is_member): (bool, bool),
    sentinel: bool,
    replica: bool,
) -> Result<(), LockError> {
    let unsupported =
        |detail: String| Err(LockError::with_detail(LockErrorKind::Unsupported, detail));
    if read_version(version).is_some_and(|version| version < OLDEST) {
        let (major, minor) = OLDEST;
        return unsupported(format!("the server is Redis {version}: use {major}.{minor} or newer"));
    }
    if is_cluster && !is_member {
        let detail = "the server runs in cluster mode: write redis+cluster://host:port";
        return unsupported(detail.to_owned());
    }
    if sentinel {
        let detail = "the server is a Sentinel: write redis+sentinel://host:port/primary-name";
        return unsupported(detail.to_owned());
    }
    if is_member && !is_cluster {
        let detail = "the server does not run in cluster mode: write redis://host:port";
        return unsupported(detail.to_owned());
    }
    if replica {
        return Err(LockError::with_detail(LockErrorKind::ReadOnly, "the server is a replica"));
    }
    Ok(())
}

/// Warns of a server that may lose locks. `is_watched`: sentinels may put another in its place.
pub(crate) async fn check_settings(link: &CommandLink, is_watched: bool) -> Result<(), LockError> {
    let info = match info(link).await {
        Ok(info) => info,
        Err(error) if is_unavailable(&error) => {
            debug!("INFO is not allowed: the memory policy is not checked");
            return Ok(());
        }
        Err(error) => return Err(LockError::of_store(error)),
    };
    let policy = info.of("maxmemory_policy");
    if info.of("maxmemory") != "0" && !policy.is_empty() && policy != "noeviction" {
        warn!(
            policy,
            "Redis may evict locks when its memory is full: set maxmemory-policy to noeviction"
        );
    }
    // Told only where min-replicas-to-write and min-replicas-max-lag are set.
    if is_watched && info.of("min_slaves_good_slaves").is_empty() {
        warn!(
            "an old primary that comes back grants locks until the sentinels demote it: set \
             min-replicas-to-write to 1 or more and min-replicas-max-lag to 2 on all servers"
        );
    }
    Ok(())
}

/// Whether the command is forbidden or unknown.
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

fn read_version(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_refused_with_its_version() {
        let alone = (false, false);
        let error = check("6.0.16", alone, false, false).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unsupported);
        assert!(error.to_string().contains("6.0.16"));
        assert!(check("6.2.0", alone, false, false).is_ok());
        assert!(check("10.0.0", alone, false, false).is_ok());
        assert!(check("", alone, false, false).is_ok());
    }

    #[test]
    fn what_cannot_carry_locks_is_refused() {
        let kind = |cluster, sentinel, replica| {
            check("7.0.0", cluster, sentinel, replica).unwrap_err().kind()
        };
        assert_eq!(kind((true, false), false, false), LockErrorKind::Unsupported);
        assert_eq!(kind((false, true), false, false), LockErrorKind::Unsupported);
        assert_eq!(kind((false, false), true, false), LockErrorKind::Unsupported);
        assert_eq!(kind((false, false), false, true), LockErrorKind::ReadOnly);
        assert_eq!(kind((true, true), false, true), LockErrorKind::ReadOnly);
        assert!(check("7.0.0", (true, true), false, false).is_ok());
    }

    #[test]
    fn the_lines_of_info_are_read() {
        let text = "# Memory\r\nmaxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n";
        let info = Info::read(&Value::BulkString(text.into()));
        assert_eq!(info.of("maxmemory_policy"), "allkeys-lru");
        assert_eq!(info.of("absent"), "");
    }
}
