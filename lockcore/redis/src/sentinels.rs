//! The sentinels of a primary, with user, password and TLS of the sentinels and of the primary.

use std::fmt;

use crate::error::ClientError;
use crate::servers_url::{ServersUrl, invalid};

/// The port of a sentinel in a URL without a port.
const PORT: u16 = 26379;

/// The sentinels that monitor a primary, with user, password and TLS of the sentinels and of the
/// primary.
///
/// Equivalent to a `redis+sentinel://` URL, which however cannot hold a password for the sentinels
/// themselves.
#[derive(Clone)]
pub struct Sentinels {
    /// The name under which the sentinels monitor the primary.
    pub(crate) name: String,
    /// The URL of each sentinel.
    pub(crate) sentinels: Vec<String>,
    /// A URL with user, password, database and TLS for the primary. Its host is a placeholder.
    pub(crate) primary: String,
}

impl Sentinels {
    /// Creates the list from the primary's name in Sentinel, and a URL of each sentinel, with user
    /// and password if the sentinels have any, and `rediss://` if they use TLS. Name all sentinels:
    /// to connect, a majority must reply; from then on, one reachable sentinel is enough.
    pub fn new<S: AsRef<str>>(
        primary_name: impl AsRef<str>,
        sentinels: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            name: primary_name.as_ref().to_owned(),
            sentinels: sentinels.into_iter().map(|url| url.as_ref().to_owned()).collect(),
            primary: "redis://primary".to_owned(),
        }
    }

    /// Sets user, password and database for the primary, and TLS if the URL is `rediss://`. Host
    /// and port of this URL have no effect. By default there are no credentials, database 0, and no
    /// TLS.
    #[must_use]
    pub fn primary(mut self, url: impl AsRef<str>) -> Self {
        url.as_ref().clone_into(&mut self.primary);
        self
    }

    /// Parses `redis+sentinel://[user[:password]@]host[:port][,host[:port]]…/name[/db]`. `None` if
    /// the URL has another scheme; an error if a host or the name is empty or invalid.
    pub(crate) fn read(url: &str) -> Option<Result<Self, ClientError>> {
        let servers = ServersUrl::read(url, "sentinel", PORT)?;
        Some(servers.and_then(Self::of).ok_or_else(|| invalid("not a Sentinel URL")))
    }

    fn of(url: ServersUrl<'_>) -> Option<Self> {
        let (name, db) = url.path.split_once('/').unwrap_or((url.path, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        let sentinels = url.hosts.iter().map(|host| format!("{}://{host}", url.scheme)).collect();
        let primary = url.of_host("primary", db);
        Some(Self { name: name.to_owned(), sentinels, primary })
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // URLs may hold passwords.
        f.debug_struct("Sentinels").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::error::ClientErrorKind;

    fn read(url: &str) -> Sentinels {
        Sentinels::read(url).expect("of sentinels").expect("valid")
    }

    #[test]
    fn a_url_of_sentinels_says_where_they_are_and_how_the_primary_is_spoken_to() {
        let read = read("rediss+sentinel://app:s@cret@a:1,[::1],b/locks/3?protocol=resp3");
        assert_eq!(read.name, "locks");
        assert_eq!(read.sentinels, ["rediss://a:1", "rediss://[::1]:26379", "rediss://b:26379"]);
        assert_eq!(read.primary, "rediss://app:s@cret@primary/3?protocol=resp3");
    }

    #[test]
    fn a_url_without_credentials_or_database_has_neither() {
        let read = read("redis+sentinel://a,b:2/locks");
        assert_eq!(read.sentinels, ["redis://a:26379", "redis://b:2"]);
        assert_eq!(read.primary, "redis://primary/");
    }

    #[test]
    fn what_is_no_url_of_sentinels_is_refused_and_its_password_not_repeated() {
        assert!(Sentinels::read("redis://a/0").is_none());
        for rest in ["", "a", "a/", "a,/locks", "u:hidden@a/", "a/lo%20cks", ",/x"] {
            let error = Sentinels::read(&format!("redis+sentinel://{rest}"))
                .expect("of sentinels")
                .expect_err(rest);
            assert_eq!(error.kind, ClientErrorKind::InvalidOption, "{rest}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }
}
