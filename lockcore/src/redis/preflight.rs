//! What is found out at connect: version, mode, role, memory policy and rights.

use std::collections::HashMap;

use redis::Value;
use tracing::{debug, warn};

use super::failure::INSIDE_A_SCRIPT;
use super::keys::{Key, Tombstone, grants_channel};
use super::link::CommandLink;
use super::scripts::Scripts;
use crate::error::{LockError, LockErrorKind};
use crate::key::LockName;
use crate::member::{Member, NodeId};

/// The oldest server that has all commands we use.
const OLDEST: (u32, u32) = (6, 2);

/// Refuses a server that cannot carry locks, and warns of one that may lose them.
pub(crate) async fn check(
    link: &CommandLink,
    scripts: &'static Scripts,
    prefix: &str,
    node: &NodeId,
    probe: &LockName,
    peers: bool,
) -> Result<(), LockError> {
    match link.run(redis::cmd("INFO")).await {
        Ok(answer) => check_server(&answer)?,
        Err(error) if error.kind == LockErrorKind::Denied => {
            debug!("INFO is not allowed: version and memory policy are not checked");
        }
        Err(error) => return Err(error.into()),
    }
    check_rights(link, scripts, prefix, node, probe, peers).await
}

fn check_server(answer: &Value) -> Result<(), LockError> {
    let text: String = redis::from_redis_value_ref(answer).unwrap_or_default();
    let info: HashMap<_, _> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let of = |name: &str| info.get(name).copied().unwrap_or_default();
    let version = of("redis_version");
    if read_version(version).is_some_and(|version| version < OLDEST) {
        let (major, minor) = OLDEST;
        let detail = format!("it is Redis {version}: use {major}.{minor} or newer");
        return Err(LockError::with_detail(LockErrorKind::Unsupported, detail));
    }
    if of("cluster_enabled") == "1" {
        let detail =
            "it runs in cluster mode: use a single primary, with replicas or Sentinel if you like";
        return Err(LockError::with_detail(LockErrorKind::Unsupported, detail));
    }
    if of("role") == "slave" {
        return Err(LockError::with_detail(LockErrorKind::ReadOnly, "it is a replica"));
    }
    let policy = of("maxmemory_policy");
    if of("maxmemory") != "0" && !policy.is_empty() && policy != "noeviction" {
        warn!(
            policy,
            "Redis may evict locks when its memory is full: set maxmemory-policy to noeviction"
        );
    }
    Ok(())
}

fn read_version(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

async fn check_rights(
    link: &CommandLink,
    scripts: &'static Scripts,
    prefix: &str,
    node: &NodeId,
    probe: &LockName,
    peers: bool,
) -> Result<(), LockError> {
    let script = &scripts.preflight;
    let mut command = script.command(5 + 2 * usize::from(peers));
    command
        .arg(probe.as_str())
        .arg(Key::queue(probe))
        .arg(Key::deadlines(probe))
        .arg(Key::token(probe));
    command.arg(Tombstone { lock: probe, member: &Member::from("preflight") });
    if peers {
        command.arg(Key::alive(probe)).arg(Key::suspect(probe));
    }
    command.arg(node.as_str()).arg(prefix);
    let answer = match link.run_script(script, command).await {
        Err(error)
            if error.kind == LockErrorKind::Denied && error.detail.contains("of the keys") =>
        {
            // The rights of this user may end at names that are not ours to guess.
            debug!(error = %error.detail, "rights are not checked");
            return Ok(());
        }
        answer => answer?,
    };
    let refused: Vec<String> = redis::from_redis_value(answer).unwrap_or_default();
    // Full memory, say, is no reason not to start: what is held can still be given back.
    let is_denied = |error: &str| error.contains("NOPERM") || error.contains(INSIDE_A_SCRIPT);
    let denied = refused.chunks_exact(2).filter(|refusal| is_denied(&refusal[1]));
    let denied: Vec<_> = denied.map(|refusal| refusal[0].as_str()).collect();
    if denied.is_empty() {
        return Ok(());
    }
    let rights: Vec<_> =
        denied.iter().map(|command| format!("+{}", command.to_lowercase())).collect();
    let detail = format!(
        "scripts may not run {}: allow {}, the keys ~<name> ~redisson_lock_*, and the channel &{}",
        denied.join(", "),
        rights.join(" "),
        grants_channel(prefix, &NodeId::from("*")),
    );
    Err(LockError::with_detail(LockErrorKind::Denied, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(lines: &str) -> Result<(), LockError> {
        check_server(&Value::BulkString(lines.replace('\n', "\r\n").into_bytes()))
    }

    #[test]
    fn an_old_server_is_refused_with_its_version() {
        let error = info("redis_version:6.0.16\n").unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unsupported);
        assert!(error.to_string().contains("6.0.16"));
        assert!(info("redis_version:6.2.0\n").is_ok());
        assert!(info("redis_version:10.0.0\n").is_ok());
    }

    #[test]
    fn a_cluster_and_a_replica_are_refused() {
        let cluster = info("redis_version:7.0.0\ncluster_enabled:1\n").unwrap_err();
        assert_eq!(cluster.kind(), LockErrorKind::Unsupported);
        let replica = info("redis_version:7.0.0\nrole:slave\n").unwrap_err();
        assert_eq!(replica.kind(), LockErrorKind::ReadOnly);
    }
}
