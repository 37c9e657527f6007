//! Checks the Redis user's rights at connect. If a right required by the scripts is missing,
//! connecting fails with the ACL rules to add.

use client::{AclError, CommandLink, Compare, Extras, MissingRight, failure};
use proto::wire::Wire;
use proto::wire::keys::{COUNTER, grants_channel};
use proto::{LockErrorKind, LockName, StoreError, Topology};
use redis::Value;
use tracing::debug;

use super::call::Scripted;
use super::failure::is_of_state;
use super::run::Run as _;
use crate::foreign;
use crate::store::confirmation::Confirmation;
use crate::types::error::LockError;

/// A check, made at connect, that the Redis user has the rights to all keys and channels that the
/// locks need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AclCheck<'a> {
    pub(crate) wire: &'a Wire,
    /// The namespace of the lock names. Without a namespace, rights to the keys of locks are not
    /// checked, because the names are unknown.
    pub(crate) namespace: Option<&'a str>,
    /// A lock name in the namespace that is not used otherwise. The rights are tried on its keys.
    pub(crate) probe: &'a LockName,
    /// How writes are confirmed by replicas or the disk; `None` if they are not confirmed. If
    /// WAITAOF confirms them, the user needs the right to send it.
    pub(crate) confirmation: Option<Confirmation>,
}

/// The optional rights that the Redis user has. A lock without extra options needs none of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rights {
    /// The optional commands that the user may send. The connections of the client use only these.
    pub(crate) extras: Extras,
    /// True if the user may write the key that shows operators in which process a node runs.
    pub(crate) node: bool,
    /// True if the user may send WAITAOF, which waits for the disk.
    pub(crate) waitaof: bool,
}

/// A right that the server has refused, with the reason, and with the key or channel (`object`) for
/// which it was refused.
struct RefusedRight {
    right: String,
    why: Why,
    object: String,
}

impl RefusedRight {
    /// Returns the command and the server's words if the server does not run the command in a
    /// script.
    fn words(&self) -> Option<(&str, &str)> {
        match &self.why {
            Why::Refused(words) => Some((&self.right, words)),
            _ => None,
        }
    }
}

/// The reason why the server refused a command when the user's rights were checked.
enum Why {
    Denied(MissingRight),
    Unknown,
    /// The server has the command, but does not run it in this script: the server's words.
    Refused(String),
}

impl AclCheck<'_> {
    /// Tries what the user needs to acquire locks, and returns the optional rights. Fails with the
    /// missing ACL rules if the user may not acquire locks, or with the missing commands if the
    /// server does not support them.
    pub(crate) async fn check(self, link: &CommandLink) -> Result<Rights, LockError> {
        let (refused, rights) = match self.run_preflight(link, true).await {
            // The server checks a script's declared keys before running it.
            Err(error) if lacks_keys(&error) => self.run_preflight(link, false).await,
            answer => answer,
        }
        .map_err(LockError::of_store)?;
        let unknown = refused.iter().filter(|refusal| matches!(refusal.why, Why::Unknown));
        let unknown: Vec<&str> = unknown.map(|refusal| &*refusal.right).collect();
        if !unknown.is_empty() {
            let detail = format!(
                "the server does not support {}: use a server with these commands",
                unknown.join(", ")
            );
            return Err(LockError::with_detail(LockErrorKind::Unsupported, detail));
        }
        if let Some((right, words)) = refused.iter().find_map(RefusedRight::words) {
            let detail = format!("the server refuses {right} in a script: {words}");
            return Err(LockError::with_detail(LockErrorKind::Unsupported, detail));
        }
        let mut missing = self.missing(&refused);
        missing.extend(self.missing_to_confirm(rights));
        if !missing.is_empty() {
            let detail = format!("allow {}", missing.join(" "));
            return Err(LockError::with_detail(LockErrorKind::Denied, detail));
        }
        Ok(rights)
    }

    async fn run_preflight(
        self,
        link: &CommandLink,
        declared: bool,
    ) -> Result<(Vec<RefusedRight>, Rights), StoreError> {
        let call: Scripted = self.wire.preflight(self.probe, declared);
        let answer = link.run_script(call, self.wire.layout).await?;
        read(answer).ok_or_else(|| {
            let detail = "unexpected reply to the check of the user's rights";
            StoreError::refused(LockErrorKind::Protocol, detail)
        })
    }

    /// Returns the ACL rules that would allow the refused rights, as for `ACL SETUSER`, each once.
    fn missing(self, refused: &[RefusedRight]) -> Vec<String> {
        let mut missing = Vec::new();
        for refusal in refused {
            for rule in self.rules(refusal) {
                if !missing.contains(&rule) {
                    missing.push(rule);
                }
            }
        }
        missing
    }

    /// Returns the ACL rule for WAITAOF if writes are confirmed by this command and the user may
    /// not send it. The right to WAIT is not checked here, because connecting sends the command
    /// anyway.
    fn missing_to_confirm(self, rights: Rights) -> Option<String> {
        let (_, command) = self.confirmation.as_ref()?.needs()?;
        (!rights.waitaof).then(|| format!("+{}", command.to_lowercase()))
    }

    fn rules(self, refusal: &RefusedRight) -> Vec<String> {
        let Why::Denied(missing) = &refusal.why else { return Vec::new() };
        match missing {
            MissingRight::Command(_) => vec![format!("+{}", refusal.right)],
            MissingRight::Channel => {
                let of_grants = || format!("&{}", grants_channel(&self.wire.prefix, "*"));
                vec![self.wire.layout.channel_rule(&refusal.object).unwrap_or_else(of_grants)]
            }
            MissingRight::Key if refusal.object.starts_with(COUNTER) => {
                let of_slots = if self.wire.topology == Topology::Cluster { ":*" } else { "" };
                vec![format!("~{COUNTER}{of_slots}")]
            }
            MissingRight::Key => {
                let Some(namespace) = self.namespace else {
                    foreign::log(|| {
                        debug!(
                            key = refusal.object,
                            "without a namespace, the user's rights to lock names are not checked"
                        );
                    });
                    return Vec::new();
                };
                vec![self.wire.layout.key_rule(&refusal.object, self.probe, namespace)]
            }
        }
    }
}

fn lacks_keys(error: &StoreError) -> bool {
    AclError::read(&error.detail).is_some_and(|error| error.missing == MissingRight::Key)
}

fn read(answer: Value) -> Option<(Vec<RefusedRight>, Rights)> {
    let (refused, extras): (Vec<String>, Option<Vec<String>>) =
        redis::from_redis_value(answer).ok()?;
    let refusals = refused.chunks_exact(3).filter_map(|refusal| {
        let [right, error, object] = refusal else { return None };
        let why = match AclError::read(error) {
            Some(error) => Why::Denied(error.missing),
            None if failure::is_unknown_command(error) => Why::Unknown,
            // Full memory, for example, must not prevent a start: holds can still be released.
            None if is_of_state(error) => return None,
            None => Why::Refused(error.clone()),
        };
        Some(RefusedRight { right: right.clone(), why, object: object.clone() })
    });
    let refused = refusals.collect();
    let Some(extras) = extras else {
        // The reply has no list of rights before Redis 7.0, where a missing right only shows when
        // used. CLIENT SETINFO was added later, and MULTI must not be refused alone.
        let tried =
            Extras { info: true, load: true, identity: true, kill: true, ..Extras::default() };
        return Some((refused, Rights { extras: tried, node: true, waitaof: true }));
    };
    let may = |name: &str| extras.iter().any(|extra| extra == name);
    let extras = Extras {
        info: may("info"),
        load: may("script|load"),
        identity: may("client|info"),
        kill: may("client|kill"),
        introduce: may("client|setinfo"),
        transact: may("multi") && may("exec"),
        compare: [("delifeq", Compare::Delifeq), ("delex", Compare::Delex)]
            .into_iter()
            .find_map(|(name, compare)| may(name).then_some(compare)),
    };
    Some((refused, Rights { extras, node: may("node"), waitaof: may("waitaof") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(error: &str) -> Option<Why> {
        let refused = ["zadd", error, "lock:{p}:queue"].map(|text| Value::BulkString(text.into()));
        let answer = Value::Array(vec![Value::Array(refused.into()), Value::Array(Vec::new())]);
        let (refused, _) = read(answer).expect("a reply");
        refused.into_iter().next().map(|refused| refused.why)
    }

    #[test]
    fn a_server_that_forbids_undeclared_keys_is_told_in_its_words() {
        let said = "ERR script tried accessing undeclared key";
        let why = refused(said).expect("it runs no lock script");
        assert!(matches!(why, Why::Refused(words) if words == said));
    }

    #[test]
    fn a_refusal_that_may_end_or_is_about_a_key_prevents_no_start() {
        for said in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "-OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Errors writing to the AOF file: No space left on device",
            "NOREPLICAS Not enough good replicas to write.",
            "READONLY You can't write against a read only replica.",
            "MASTERDOWN Link with MASTER is down",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "ERR value is not an integer or out of range",
            "ERR increment or decrement would overflow",
            "ERR Script attempted to access a non local key in a cluster node",
            "ERR Unable to execute command 'zadd' in script because undeclared keys were accessed \
             during rehashing of the slot",
            "ERR Script attempted to execute a command while the cluster is down",
        ] {
            assert!(refused(said).is_none(), "{said}");
        }
    }
}
