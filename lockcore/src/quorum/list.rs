//! [`Quorum`], the list of primaries and the settings of a quorum.

use std::fmt;
use std::time::Duration;

use client::{ServersUrl, invalid_url};

use crate::types::error::LockError;

/// The default port of a primary in a URL.
const PORT: u16 = 6379;
/// The URL option for the longest lease, in milliseconds.
const MAX_LEASE_MS: &str = "max_lease_ms=";

/// A list of independent Redis servers, the primaries, for
/// [`Locks::connect`](crate::Locks::connect). A lock is held while a majority of the servers hold
/// it: see [`guide::quorum`](crate::guide::quorum).
///
/// Equivalent to `redis+quorum://` and `rediss+quorum://` URLs:
///
/// ```no_run
/// # async fn example() -> Result<(), lockcore::LockError> {
/// use std::time::Duration;
///
/// use lockcore::{Locks, Quorum};
///
/// let primaries = ["redis://10.0.0.1/", "redis://10.0.0.2/", "redis://10.0.0.3/"];
/// let quorum = Quorum::new(primaries).max_lease(Duration::from_secs(30));
/// let locks = Locks::connect(quorum).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Quorum {
    pub(crate) primaries: Vec<String>,
    pub(crate) max_lease: Duration,
    pub(crate) spare: usize,
    pub(crate) trusts_restarts: bool,
}

impl Quorum {
    /// Creates a quorum of 3, 5, 7 or 9 primaries, each with a server URL. All processes must have
    /// the same addresses, databases and settings in the same order: each primary stores them, and
    /// a process that differs is refused.
    pub fn new<S: AsRef<str>>(primaries: impl IntoIterator<Item = S>) -> Self {
        Self {
            primaries: primaries.into_iter().map(|url| url.as_ref().to_owned()).collect(),
            max_lease: Duration::from_secs(60),
            spare: 0,
            trusts_restarts: false,
        }
    }

    /// Sets the longest lease that a lock may have: 100 ms to 24 h, 60 s by default. A longer lease
    /// is an [`InvalidOption`](crate::LockErrorKind::InvalidOption). A primary that has restarted,
    /// was emptied or replaced may have lost leases. It counts towards a majority again this time
    /// plus, for clock drift, 1 % and 1 s after a process has first used it since.
    pub fn max_lease(mut self, max_lease: Duration) -> Self {
        self.max_lease = max_lease;
        self
    }

    /// Sets the number of primaries beyond a majority that a guard needs: 0 to (*n* - 1) / 2 of *n*
    /// primaries, 0 by default. Even if this many primaries lose a lock unnoticed, for example by a
    /// clock jump, there is no second holder. In return, a lock can be acquired only while a
    /// majority plus this many are reachable.
    pub fn spare(mut self, primaries: usize) -> Self {
        self.spare = primaries;
        self
    }

    /// If `true`, assumes that a restart loses no acknowledged data, so that a restarted primary
    /// counts towards a majority at once. Only for primaries with `appendfsync always`, and only if
    /// a lost primary is replaced by an empty server: no process can tell a restart from a server
    /// with a copy of the data. Off by default.
    pub fn trust_restarts(mut self, trust: bool) -> Self {
        self.trusts_restarts = trust;
        self
    }

    /// Creates a quorum from a URL: `redis+quorum://` or `rediss+quorum://` and then
    /// `[user[:password]@]host[:port],host[:port],host[:port]…[/db][?max_lease_ms=N]`, with the
    /// longest lease in milliseconds.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::LockErrorKind::InvalidOption) if the URL has another form.
    pub fn from_url(url: impl AsRef<str>) -> Result<Self, LockError> {
        Self::read(url.as_ref()).unwrap_or_else(|| Err(not_valid()))
    }

    /// Creates a quorum from a `redis+quorum://` or `rediss+quorum://` URL. Returns `None` if the
    /// URL has another scheme, so that other kinds of URL can be tried, and an error if the rest of
    /// the URL is invalid.
    pub(crate) fn read(url: &str) -> Option<Result<Self, LockError>> {
        let servers = ServersUrl::read(url, "quorum", PORT)?;
        Some(servers.and_then(Self::of).ok_or_else(not_valid))
    }

    fn of(mut url: ServersUrl<'_>) -> Option<Self> {
        let mut max_lease = None;
        let at = url.options.iter().position(|option| option.starts_with(MAX_LEASE_MS));
        if let Some(option) = at.map(|at| url.options.remove(at)) {
            let ms = option[MAX_LEASE_MS.len()..].parse().ok()?;
            max_lease = Some(Duration::from_millis(ms));
        }
        let quorum = Self::new(url.each(url.path));
        let max_lease = max_lease.unwrap_or(quorum.max_lease);
        Some(quorum.max_lease(max_lease))
    }
}

fn not_valid() -> LockError {
    invalid_url("not a quorum URL").into()
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the URLs, because they may contain passwords.
        f.debug_struct("Quorum")
            .field("primaries", &self.primaries.len())
            .field("max_lease", &self.max_lease)
            .field("spare", &self.spare)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proto::LockErrorKind;

    use super::*;

    fn read(url: &str) -> Vec<String> {
        Quorum::read(url).expect("of a quorum").expect("valid").primaries
    }

    #[test]
    fn a_url_of_a_quorum_says_where_its_primaries_are_and_how_each_is_spoken_to() {
        let primaries = read("rediss+quorum://app:s@cr/et@a:1,[::1],b/3?protocol=resp3");
        let expected = ["a:1", "[::1]:6379", "b:6379"]
            .map(|host| format!("rediss://app:s@cr/et@{host}/3?protocol=resp3"));
        assert_eq!(primaries, expected);
        assert_eq!(read("redis+quorum://a,b,c")[2], "redis://c:6379/");
        let url = "redis+quorum://a,b,c/1?max_lease_ms=5000&protocol=resp3";
        let quorum = Quorum::from_url(url).expect("valid");
        assert_eq!(quorum.primaries[0], "redis://a:6379/1?protocol=resp3");
        assert_eq!(quorum.max_lease, Duration::from_secs(5));
    }

    #[test]
    fn what_is_no_url_of_a_quorum_is_refused_and_its_password_not_repeated() {
        assert!(Quorum::read("redis://a/").is_none());
        for rest in ["", "/", "a,", ",a", "u:hidden@", "u:hidden@a,,b/3", "a,b,c?max_lease_ms=x"] {
            let error = Quorum::read(&format!("redis+quorum://{rest}"))
                .expect("of a quorum")
                .expect_err(rest);
            assert_eq!(error.kind(), LockErrorKind::InvalidOption, "{rest}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }
}
