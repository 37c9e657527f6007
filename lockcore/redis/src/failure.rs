//! Translates redis-rs errors into client errors.

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

use crate::acl_error::{AclError, MissingRight};
use crate::error::{ClientError, ClientErrorKind};

/// Translates the error of a command, and determines whether the command may have run.
pub fn of_command(error: &RedisError) -> ClientError {
    if let Some(said) = of_slot(error) {
        let kind = kind(error).unwrap_or(ClientErrorKind::Unavailable);
        return ClientError::refused(kind, said);
    }
    let said = text(error);
    if error.code() == Some(ENDED) {
        return ClientError::ambiguous(said);
    }
    if is_stopped(&said) {
        return ClientError::ambiguous(said);
    }
    match kind(error) {
        Some(ClientErrorKind::Denied) => {
            let may_have_run = AclError::read(&said).is_some_and(|error| error.inside_a_script);
            ClientError {
                may_have_run,
                ..ClientError::refused(ClientErrorKind::Denied, advised(said))
            }
        }
        Some(kind) => ClientError::refused(kind, said),
        None if error.is_io_error() || matches!(error.kind(), ErrorKind::Parse) => {
            ClientError::ambiguous(said)
        }
        None => ClientError::refused(ClientErrorKind::Protocol, said),
    }
}

/// Returns the error text, beginning with the code, if a Cluster node redirects the command to
/// another node, or cannot serve the slot for now. Such a command did not run. `None` for other
/// errors.
fn of_slot(error: &RedisError) -> Option<String> {
    let (code, detail) = (error.code()?, error.detail().unwrap_or_default());
    let code = match code {
        "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" => code,
        // With `cluster-allow-reads-when-down` the script begins, and its first write is refused.
        _ if detail.contains("while the cluster is down") => "CLUSTERDOWN",
        _ => return None,
    };
    Some(format!("{code} {detail}"))
}

/// Returns true if `said` is a Cluster node's error for a script that it has stopped at an absent
/// key, because the slot is migrating. The script may have written other keys before.
pub fn is_stopped(said: &str) -> bool {
    // The second text is from Redis 7.4 and Valkey 8.0 on.
    said.contains("non local key") || said.contains("during rehashing of the slot")
}

/// Translates the error of a connection attempt, and adds the remedy if it is known. No command has
/// run.
pub(crate) fn of_connecting(error: &RedisError) -> ClientError {
    let kind = kind(error).unwrap_or(ClientErrorKind::Unavailable);
    ClientError::refused(kind, advised(text(error)))
}

/// Creates the error of a request that was not sent because of `why`. The connection has to be
/// replaced.
pub fn unsent(why: &str) -> RedisError {
    redis::make_extension_error(UNSENT.to_owned(), Some(why.to_owned()))
}

/// Error code of [`unsent`] errors, by which [`breaks_connection`] recognises them. redis-rs stores
/// it where a server error has a code such as `OOM`.
const UNSENT: &str = "UNSENT";

/// Creates the error of a connection that the server has closed. `words` is the server's last
/// error, which says why.
pub(crate) fn ended(words: &ServerError) -> RedisError {
    let said = format!("{} {}", words.code(), words.details().unwrap_or_default());
    let said = format!("the server closed the connection: {}", said.trim_end());
    redis::make_extension_error(ENDED.to_owned(), Some(said))
}

/// Creates the error of a connection on which a reply arrived without a request. Later replies
/// could go to the wrong requests, so the connection ends.
pub(crate) fn unasked() -> RedisError {
    let said = "the server sent a reply without a request".to_owned();
    redis::make_extension_error(ENDED.to_owned(), Some(said))
}

/// Error code of [`ended`] and [`unasked`] errors, by which [`of_command`] recognises that the
/// connection ended while commands may have run. redis-rs stores it where a server error has a code
/// such as `OOM`.
const ENDED: &str = "ENDED";

/// Returns true if `said` is the error that a server sends to a new client before it closes the
/// connection, because `maxclients` connections are open. A Cluster node writes "max number of
/// clients + cluster connections reached".
fn has_no_room(said: &str) -> bool {
    said.contains("max number of clients") && said.contains(" reached")
}

/// Translates the error of a SUBSCRIBE or PSUBSCRIBE. If the Redis user lacks the right to the
/// channel, the error suggests the ACL rule `rule`.
pub(crate) fn of_subscribing(error: &RedisError, rule: &str) -> ClientError {
    let said = text(error);
    match AclError::read(&said) {
        Some(AclError { missing: MissingRight::Channel, .. }) => {
            ClientError::refused(ClientErrorKind::Denied, format!("{said}: allow {rule}"))
        }
        _ => {
            let mut refused = of_connecting(error);
            let advice = if error.is_connection_dropped() { A_PROXY } else { "" };
            refused.detail = format!("SUBSCRIBE: {}{advice}", refused.detail).into();
            refused
        }
    }
}

const A_PROXY: &str = ": a proxy may close the connection on an unknown command, but grants arrive \
    by SUBSCRIBE: connect to the server itself";

/// Returns the error text `said`, followed by the remedy if it is known.
fn advised(said: String) -> String {
    let next = match AclError::read(&said) {
        Some(error) => match error.advice() {
            Some(advice) => advice,
            None => return said,
        },
        None if has_no_room(&said) => "raise maxclients, or open fewer connections".to_owned(),
        None if said.contains(NO_SELECT) => {
            "write redis+cluster://host:port, without a database".to_owned()
        }
        None => return said,
    };
    format!("{said}: {next}")
}

/// Text in a Cluster node's error for SELECT, because a Cluster has a single database.
const NO_SELECT: &str = "SELECT is not allowed in cluster mode";

/// Returns true if the connection has to be replaced after this error.
pub fn breaks_connection(error: &RedisError) -> bool {
    // After a response timeout the peer may be gone without closing the connection, and redis-rs
    // would keep the connection for ever. A replica may have been the primary a moment ago.
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(error.kind(), ErrorKind::Parse)
        || matches!(error.code(), Some(UNSENT | ENDED | "DENIED"))
        || error.detail().is_some_and(has_no_room)
        || is_of_replica(error)
}

/// Returns true if the server runs no such command at present, because it loads its data or runs a
/// long script.
pub(crate) fn is_for_now(error: &RedisError) -> bool {
    matches!(error.code(), Some("LOADING" | "BUSY"))
}

/// Returns true if the server refused a command because it is a replica: a write, or any command if
/// it serves no stale data.
pub fn is_of_replica(error: &RedisError) -> bool {
    // Before Redis 7, an error inside a script comes wrapped in an ERR.
    let is_named = error.detail().is_some_and(|detail| detail.contains("-READONLY "));
    match error.code() {
        Some("READONLY" | "MASTERDOWN") => true,
        _ => is_named && kind(error) == Some(ClientErrorKind::ReadOnly),
    }
}

/// Returns the kind of a known server error. `None` for an unknown error, and for an error of the
/// socket or the protocol.
fn kind(error: &RedisError) -> Option<ClientErrorKind> {
    match error.kind() {
        ErrorKind::AuthenticationFailed => return Some(ClientErrorKind::Denied),
        ErrorKind::InvalidClientConfig => return Some(ClientErrorKind::InvalidOption),
        ErrorKind::Io | ErrorKind::Parse => return None,
        _ => {}
    }
    let detail = error.detail().unwrap_or_default();
    if error.code() == Some(ENDED) {
        let is_denied = detail.contains("DENIED ");
        return Some(if is_denied {
            ClientErrorKind::Denied
        } else {
            ClientErrorKind::Unavailable
        });
    }
    let is_denied = matches!(error.kind(), ErrorKind::Server(ServerErrorKind::NoPerm))
        || AclError::read(detail).is_some();
    if is_denied {
        return Some(ClientErrorKind::Denied);
    }
    if detail.contains("DB index") {
        return Some(ClientErrorKind::InvalidOption);
    }
    if is_unknown_command(detail) || detail.contains(NO_SELECT) {
        return Some(ClientErrorKind::Unsupported);
    }
    if has_no_room(detail) {
        return Some(ClientErrorKind::Unavailable);
    }
    error.code().and_then(by_code).or_else(|| {
        // Before Redis 7, an error inside a script comes wrapped in an ERR.
        detail.split(|c: char| !c.is_ascii_alphanumeric()).find_map(by_code)
    })
}

/// Returns true if the error text says that the server lacks a command, sent directly or by a
/// script. A hosted service may have disabled the command, and a proxy may not forward it.
pub fn is_unknown_command(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    // "unknown command 'X'", "Unknown Redis command called from script", "unknown subcommand", and
    // Envoy's "unsupported command 'x'".
    ["unknown ", "unsupported "].iter().filter_map(|no| said.split_once(no)).any(|(_, what)| {
        what.split(' ').take(2).any(|word| word.trim_end_matches([',', '.']).ends_with("command"))
    })
}

fn by_code(code: &str) -> Option<ClientErrorKind> {
    Some(match code {
        // Protected mode: a server without a password, and a client from another host.
        "NOPERM" | "NOAUTH" | "WRONGPASS" | "DENIED" => ClientErrorKind::Denied,
        "READONLY" | "NOREPLICAS" | "MISCONF" => ClientErrorKind::ReadOnly,
        "LOADING" | "MASTERDOWN" | "BUSY" | "CLUSTERDOWN" | "TRYAGAIN" | UNSENT => {
            ClientErrorKind::Unavailable
        }
        "OOM" => ClientErrorKind::OutOfMemory,
        "WRONGTYPE" => ClientErrorKind::WrongType,
        "MOVED" | "ASK" | "CROSSSLOT" => ClientErrorKind::Unsupported,
        _ => return None,
    })
}

/// Text in a server's error for an unknown command, before the command's arguments. Those of AUTH
/// and HELLO are user and password.
const ARGUMENTS: &str = ", with args beginning with";

/// Returns the error as a single line of text. It contains no credentials: redis-rs puts none into
/// errors, and the arguments that a server repeats are cut off.
fn text(error: &RedisError) -> String {
    let text = match (error.code(), error.detail()) {
        (Some(UNSENT | ENDED), Some(said)) => said.to_owned(),
        _ => error.to_string(),
    };
    let text = text.split_once(ARGUMENTS).map_or(&*text, |(said, _)| said);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: &str, detail: &str) -> ClientError {
        of_command(&redis::make_extension_error(code.into(), Some(detail.into())))
    }

    #[test]
    fn a_command_that_is_not_there_is_told_from_other_errors() {
        for said in [
            "unknown command 'SUBSCRIBE', with args beginning with: 'lockcore:grants'",
            "Unknown Redis command called from script script: f_1",
            "Error running script (call to f_1): @user_script: 1: Unknown Redis command called \
             from Lua script",
            "Unknown server command called from script",
            "unknown subcommand 'NUMSUB'. Try PUBSUB HELP.",
            "unsupported command 'subscribe'",
        ] {
            assert!(is_unknown_command(said), "{said}");
        }
        for said in ["", "unknown", "an unknown error of a command", "no such command: unknown"] {
            assert!(!is_unknown_command(said), "{said}");
        }
    }

    #[test]
    fn the_arguments_of_an_unknown_command_are_not_repeated() {
        for arguments in ["'app' 'hidden' ", "`app`, `hidden`, ", "'3' 'AUTH' 'app' 'hidden' "] {
            let line =
                format!("-ERR unknown command 'AUTH', with args beginning with: {arguments}\r\n");
            let answer = redis::parse_redis_value(line.as_bytes()).expect("an error of a server");
            let error = answer.extract_error().expect_err("an error of a server");
            for refused in [of_connecting(&error), of_command(&error), of_subscribing(&error, "")] {
                assert_eq!(refused.kind, ClientErrorKind::Unsupported);
                let said = refused.detail;
                assert!(said.contains("unknown command 'AUTH'"), "{said}");
                assert!(!said.contains("app") && !said.contains("hidden"), "{said}");
            }
        }
    }

    #[test]
    fn what_the_server_says_has_a_kind_of_its_own() {
        let cases = [
            ("OOM", ClientErrorKind::OutOfMemory),
            ("WRONGTYPE", ClientErrorKind::WrongType),
            ("NOREPLICAS", ClientErrorKind::ReadOnly),
            ("MISCONF", ClientErrorKind::ReadOnly),
            ("WRONGPASS", ClientErrorKind::Denied),
            ("BUSY", ClientErrorKind::Unavailable),
        ];
        for (code, kind) in cases {
            let error = said(code, "so it is");
            assert_eq!((error.kind, error.may_have_run), (kind, false), "{code}");
            assert!(error.detail.contains(code), "{}", error.detail);
        }
    }

    #[test]
    fn a_server_that_takes_no_client_is_told_in_its_words_and_ends_the_connection() {
        let protected = "Redis is running in protected mode because protected mode is enabled";
        let cluster = "max number of clients + cluster connections reached";
        for (code, words, kind) in [
            ("ERR", "max number of clients reached", ClientErrorKind::Unavailable),
            ("ERR", cluster, ClientErrorKind::Unavailable),
            ("DENIED", protected, ClientErrorKind::Denied),
        ] {
            let line = format!("-{code} {words}\r\n");
            let Ok(redis::Value::ServerError(unasked)) = redis::parse_redis_value(line.as_bytes())
            else {
                panic!("an error: {line}")
            };
            let answer = redis::make_extension_error(code.into(), Some(words.into()));
            for error in [ended(&unasked), answer] {
                let refused = of_connecting(&error);
                assert_eq!(refused.kind, kind, "{}", refused.detail);
                assert!(refused.detail.contains(words), "{}", refused.detail);
                assert!(breaks_connection(&error), "{}", refused.detail);
            }
            assert!(of_command(&ended(&unasked)).may_have_run, "another may be on its way");
        }
    }

    #[test]
    fn a_connection_that_ends_after_a_refused_command_is_not_denied() {
        let line = b"-NOPERM this user has no permissions to run the 'set' command\r\n";
        let Ok(redis::Value::ServerError(words)) = redis::parse_redis_value(line) else {
            panic!("an error")
        };
        assert_eq!(of_connecting(&ended(&words)).kind, ClientErrorKind::Unavailable);
    }

    #[test]
    fn a_database_of_a_cluster_is_not_supported_and_the_url_to_write_is_named() {
        let refused = of_connecting(&RedisError::from((
            ServerErrorKind::ResponseError.into(),
            "the server refused to switch the database",
            NO_SELECT.to_owned(),
        )));
        assert_eq!(refused.kind, ClientErrorKind::Unsupported);
        assert!(refused.detail.contains("redis+cluster://"), "{}", refused.detail);
    }

    #[test]
    fn an_error_of_a_slot_begins_with_its_code_and_nothing_ran() {
        for (code, kind) in [
            ("MOVED", ClientErrorKind::Unsupported),
            ("ASK", ClientErrorKind::Unsupported),
            ("TRYAGAIN", ClientErrorKind::Unavailable),
            ("CLUSTERDOWN", ClientErrorKind::Unavailable),
        ] {
            let error = said(code, "7 host:1");
            assert_eq!(error, ClientError::refused(kind, format!("{code} 7 host:1")));
        }
    }

    // The error has no code where the Cluster still serves reads.
    #[test]
    fn a_script_whose_first_write_a_cluster_that_is_down_refuses_did_not_run() {
        let down = "Script attempted to execute a write command while the cluster is down and \
                    readonly";
        let wrapped = format!("Error running script (call to f_0): @user_script:1: {down}");
        for detail in [format!("{down} script: f_0, on @user_script:12."), wrapped] {
            let expected = format!("CLUSTERDOWN {detail}");
            let expected = ClientError::refused(ClientErrorKind::Unavailable, expected);
            assert_eq!(said("ERR", &detail), expected);
        }
    }

    #[test]
    fn a_script_that_was_stopped_at_a_key_of_a_moving_slot_may_have_run() {
        for detail in [
            "Script attempted to access a non local key in a cluster node",
            "Unable to execute command 'del' in script because undeclared keys were accessed \
             during rehashing of the slot script: f_0, on @user_script:636.",
        ] {
            let error = said("ERR", detail);
            assert_eq!((error.kind, error.may_have_run), (ClientErrorKind::Unavailable, true));
        }
        assert!(!is_stopped("TRYAGAIN Multiple keys request during rehashing of slot"));
    }

    #[test]
    fn an_error_wrapped_by_an_older_server_is_recognised() {
        let detail = "Error running script (call to f_0): @user_script:1: @user_script: 1: -OOM command not allowed";
        assert_eq!(said("ERR", detail).kind, ClientErrorKind::OutOfMemory);
        let detail = "Error running script (call to f_0): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.";
        assert_eq!(said("ERR", detail).kind, ClientErrorKind::ReadOnly);
        let detail = "Error running script: WRONGTYPE Operation against a key holding the wrong kind of value";
        assert_eq!(said("ERR", detail).kind, ClientErrorKind::WrongType);
    }

    #[test]
    fn a_right_that_is_missing_inside_a_script_is_recognised_whatever_the_version() {
        for detail in [
            "Error running script (call to f_0): @user_script:1: The user executing the script \
             can't run this command or subcommand",
            "The user executing the script can't run this command or subcommand script: f_0",
            "ACL failure in script: User u has no permissions to run the 'set' command script: f_0",
            "ACL failure in script: No permissions to access a key script: f_0",
        ] {
            let error = said("ERR", detail);
            assert_eq!(
                (error.kind, error.may_have_run),
                (ClientErrorKind::Denied, true),
                "{detail}"
            );
        }
    }

    #[test]
    fn a_right_that_is_missing_before_a_script_runs_is_named() {
        let error = said("NOPERM", "this user has no permissions to run the 'evalsha' command");
        assert_eq!((error.kind, error.may_have_run), (ClientErrorKind::Denied, false));
        assert!(error.detail.ends_with("allow +evalsha"), "{}", error.detail);
    }

    #[test]
    fn the_refusal_of_a_replica_breaks_the_connection_whatever_it_refuses() {
        for (code, words) in [
            ("READONLY", "You can't write against a read only replica."),
            ("MASTERDOWN", "Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
            (
                "ERR",
                "Error running script (call to f_0): @user_script:1: -READONLY You can't write",
            ),
        ] {
            let error = redis::make_extension_error(code.into(), Some(words.into()));
            assert!(is_of_replica(&error) && breaks_connection(&error), "{code} {words}");
        }
        for code in ["NOREPLICAS", "OOM", "LOADING", "BUSY"] {
            let error = redis::make_extension_error(code.into(), Some("so it is".into()));
            assert!(!is_of_replica(&error) && !breaks_connection(&error), "{code}");
        }
    }

    #[test]
    fn a_database_that_is_not_there_is_a_mistake_of_the_url() {
        let error = RedisError::from((
            ServerErrorKind::ResponseError.into(),
            "Redis server refused to switch database",
            "DB index is out of range".to_owned(),
        ));
        assert_eq!(of_connecting(&error).kind, ClientErrorKind::InvalidOption);
    }

    #[test]
    fn a_broken_connection_leaves_the_outcome_open() {
        let error = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        assert!(of_command(&error).may_have_run);
        assert!(!of_connecting(&error).may_have_run);
        assert!(breaks_connection(&error));
    }
}
