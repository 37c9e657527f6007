//! Converts errors of scripts and of the client to store errors.

use client::{AclError, ClientError, ClientErrorKind, MissingRight};
use proto::layout::{Layout, Rights};
use proto::{LockErrorKind, StoreError};
use redis::RedisError;

use crate::types::error::LockError;

/// Error code of a script on a quorum primary that has lost its data. The node that sent the
/// command has not noticed the loss yet.
const FORGOTTEN: &str = "FORGOTTEN";

/// Returns the lock error kind for a client error kind.
fn kind(of: ClientErrorKind) -> LockErrorKind {
    match of {
        ClientErrorKind::InvalidOption => LockErrorKind::InvalidOption,
        ClientErrorKind::Unavailable => LockErrorKind::Unavailable,
        ClientErrorKind::ReadOnly => LockErrorKind::ReadOnly,
        ClientErrorKind::Denied => LockErrorKind::Denied,
        ClientErrorKind::OutOfMemory => LockErrorKind::OutOfMemory,
        ClientErrorKind::WrongType => LockErrorKind::WrongType,
        ClientErrorKind::Unsupported => LockErrorKind::Unsupported,
        ClientErrorKind::Closed => LockErrorKind::Closed,
        ClientErrorKind::Protocol => LockErrorKind::Protocol,
    }
}

/// Returns the store error for a client error.
pub(crate) fn of_client(error: ClientError) -> StoreError {
    let ClientError { kind: of, detail, may_have_run } = error;
    let lacks_keys = client::failure::is_stopped(&detail);
    StoreError { may_have_run, lacks_keys, ..StoreError::refused(kind(of), detail) }
}

impl From<ClientError> for LockError {
    fn from(error: ClientError) -> Self {
        Self::of_store(of_client(error))
    }
}

/// Returns the store error for a failed command that is not a script.
pub(crate) fn of_command(error: &RedisError) -> StoreError {
    of_client(client::failure::of_command(error))
}

/// Returns the store error for a failed script of this layout. The text includes advice if a key
/// belongs to another program, or the user lacks a right.
pub(crate) fn of_script(error: &RedisError, layout: &dyn Layout) -> StoreError {
    if let Some(detail) = foreign_key(error, layout) {
        return StoreError::refused(LockErrorKind::WrongType, detail);
    }
    let mut said = client::failure::of_command(error);
    if said.kind == ClientErrorKind::Protocol && names_forgotten(error) {
        said.kind = ClientErrorKind::Unavailable;
    }
    if said.kind == ClientErrorKind::Denied
        && let Some(advice) = AclError::read(&said.detail).and_then(|error| advice(&error, layout))
    {
        said.detail = format!("{}: {advice}", said.detail).into();
    }
    of_client(said)
}

/// Returns the store error for an error that is part of a script's reply, as text.
pub(crate) fn of_text(said: &str, layout: &dyn Layout) -> StoreError {
    of_script(&read_text(said), layout)
}

/// Returns the error that a server states as this text.
fn read_text(said: &str) -> RedisError {
    let said = said.strip_prefix('-').unwrap_or(said);
    let (code, detail) = said.split_once(' ').unwrap_or((said, ""));
    redis::make_extension_error(code.into(), Some(detail.into()))
}

/// Returns true if the refusal of a command in a script, as text, depends on the state of the
/// server or on the data: full memory, too few replicas, a Cluster that is down, or a key of
/// another program. The server may run the same command later, or on another key.
pub(crate) fn is_of_state(said: &str) -> bool {
    // These errors have no code.
    let of_state = ["not an integer", "would overflow"];
    let kind = client::failure::of_command(&read_text(said)).kind;
    kind != ClientErrorKind::Protocol || of_state.iter().any(|words| said.contains(words))
}

/// Returns an error text with the key and its type if a script failed because another program has
/// written the key; otherwise `None`.
fn foreign_key(error: &RedisError, layout: &dyn Layout) -> Option<String> {
    let (which, type_of) =
        error.detail()?.split_once(' ').filter(|_| error.code() == Some("WRONGTYPE"))?;
    layout.foreign_key(which, type_of)
}

/// Returns true if the error means that a quorum primary has lost its data.
pub(crate) fn is_forgotten(error: &RedisError) -> bool {
    error.code() == Some(FORGOTTEN)
}

/// Returns true if the error means that a quorum primary has lost its data. Also recognises the
/// error of a server before Redis 7, which wraps script errors in an ERR.
fn names_forgotten(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    is_forgotten(error)
        || detail.split(|c: char| !c.is_ascii_alphanumeric()).any(|it| it == FORGOTTEN)
}

/// Returns the ACL rules to add if the user lacks a right to keys or channels. The rules are
/// general, because the error does not name the key or channel. `None` if the user lacks the right
/// to a command.
fn advice(error: &AclError, layout: &dyn Layout) -> Option<String> {
    let Rights { keys, channels } = layout.rights();
    let rules = match &error.missing {
        MissingRight::Command(_) => return None,
        MissingRight::Key => keys,
        MissingRight::Channel => channels,
    };
    Some(format!("allow {rules}"))
}

#[cfg(test)]
mod tests {
    use proto::layout::QUEUE;

    use super::*;

    fn said(code: &str, detail: &str) -> StoreError {
        of_script(&redis::make_extension_error(code.into(), Some(detail.into())), QUEUE)
    }

    #[test]
    fn a_key_of_another_program_is_named_with_its_type() {
        let error = said("WRONGTYPE", "lock:queue hash");
        assert_eq!(
            (error.kind, &*error.detail),
            (
                LockErrorKind::WrongType,
                "the key lock:{…}:queue holds a hash that does not belong to a lock"
            )
        );
    }

    #[test]
    fn an_emptied_primary_is_unavailable_whatever_the_version_of_its_server() {
        let error = said("FORGOTTEN", "the epoch of a quorum is over");
        assert_eq!(error.kind, LockErrorKind::Unavailable);
        let wrapped = "Error running script (call to f_0): @user_script:1: FORGOTTEN the epoch";
        assert_eq!(said("ERR", wrapped).kind, LockErrorKind::Unavailable);
    }

    #[test]
    fn a_script_that_was_stopped_lacked_keys_whatever_the_version_of_its_server() {
        for detail in [
            "Script attempted to access a non local key in a cluster node script: f_0",
            "Unable to execute command 'exists' in script because undeclared keys were accessed \
             during rehashing of the slot script: f_0",
        ] {
            let error = said("ERR", detail);
            assert!(error.lacks_keys && error.may_have_run, "{error:?}");
        }
        assert!(!said("OOM", "command not allowed").lacks_keys);
    }

    #[test]
    fn a_key_or_a_channel_that_is_missing_is_named_with_the_rule_to_add() {
        for (said, rule) in [
            ("No permissions to access a key", "allow ~lock:{NAME}*"),
            ("ACL failure in script: No permissions to access a channel", "allow the grants"),
            ("User u has no permissions to run the 'evalsha' command", "allow +evalsha"),
        ] {
            let error = super::of_script(
                &redis::make_extension_error("NOPERM".into(), Some(said.into())),
                QUEUE,
            );
            assert_eq!(error.kind, LockErrorKind::Denied);
            assert_eq!(error.detail.matches("allow").count(), 1, "{}", error.detail);
            assert!(error.detail.contains(rule), "{}", error.detail);
        }
    }
}
