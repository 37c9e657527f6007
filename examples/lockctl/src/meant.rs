//! The lock that may be meant, where the name that was given is free: a name copied from a log has
//! the namespace in front, and one copied from the service has none.

use std::io::{self, IsTerminal as _};

use lockcore::Locks;

use crate::arguments::Server;
use crate::busy::{self, Look};
use crate::exit;

/// Says which lock may be meant.
pub(crate) async fn warn(server: &Server, locks: &Locks, key: &str) {
    if let Some(question) = question(server, locks, key).await {
        exit::warn(&format!("{key}: {question}"));
    }
}

/// Asks whether another lock is meant. Nothing is done to it.
pub(crate) async fn question(server: &Server, locks: &Locks, key: &str) -> Option<String> {
    let meant = match &server.namespace {
        Some(namespace) => without_namespace(locks, key, namespace).await,
        // It looks at all names, which a script in a loop would have done each time.
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
        false => format!("that of --namespace {found}"),
    })
}
