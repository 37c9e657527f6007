//! Suggestions when the given name is free: a name copied from a log includes the namespace, and a
//! name copied from the service lacks it.

use std::io::{self, IsTerminal as _};

use lockcore::Locks;

use crate::arguments::Server;
use crate::busy::{self, Look};
use crate::exit;

/// Prints a question on stderr if the name `key` is free and the user may have meant another lock:
/// see [`question`].
pub(crate) async fn warn(server: &Server, locks: &Locks, key: &str) {
    if let Some(question) = question(server, locks, key).await {
        exit::warn(&format!("{key}: {question}"));
    }
}

/// Returns a question whether another lock was meant, for a name that is free. The other lock has
/// the same name without or with the namespace, and is held or awaited. Returns `None` if there is
/// no such lock. Changes nothing.
pub(crate) async fn question(server: &Server, locks: &Locks, key: &str) -> Option<String> {
    let meant = match &server.namespace {
        Some(namespace) => without_namespace(locks, key, namespace).await,
        // This visits all names, which is too expensive for a script that runs it in a loop.
        None if io::stderr().is_terminal() => in_a_namespace(locks, key).await,
        None => None,
    };
    meant.map(|meant| format!("did you mean {meant}?"))
}

async fn without_namespace(locks: &Locks, key: &str, namespace: &str) -> Option<String> {
    let short = key.strip_prefix(namespace)?.strip_prefix(':')?;
    let found = locks.inspect_part(short, 0, 1).await.ok()?;
    let is_free = found.holding == 0 && found.waiting == 0;
    (!is_free).then(|| format!("{short}, without the namespace"))
}

async fn in_a_namespace(locks: &Locks, key: &str) -> Option<String> {
    let look = Look::at(locks).await;
    let of = |name: &str| Some(name.strip_suffix(key)?.strip_suffix(':')?.to_owned());
    let found = look.locks.iter().find_map(|lock| of(busy::name(lock)))?;
    Some(match found.contains(':') {
        true => format!("{found}:{key}"),
        false => format!("the lock in --namespace {found}"),
    })
}
