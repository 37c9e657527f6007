//! The addresses of Redis Cluster nodes, with user, password and TLS.

use std::fmt;

use redis::ConnectionInfo;

use crate::error::ClientError;
use crate::server_url;
use crate::servers_url::{ServersUrl, invalid};

/// The port of a Cluster node whose URL or host has none.
const PORT: u16 = 6379;

/// Addresses of some Redis Cluster nodes, through which all other nodes are found.
///
/// Equivalent to a `redis+cluster://` or `rediss+cluster://` URL.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) nodes: Vec<String>,
}

impl Cluster {
    /// Creates the list from a URL of each node, without a database. The URLs must agree on user,
    /// password and TLS, because these apply to all nodes of the Cluster. Name several nodes: while
    /// any of them is reachable, all others are found.
    pub fn new<S: AsRef<str>>(nodes: impl IntoIterator<Item = S>) -> Self {
        Self { nodes: nodes.into_iter().map(|url| url.as_ref().to_owned()).collect() }
    }

    /// Parses `redis+cluster://[user[:password]@]host[:port][,host[:port]]…`. `None` if the URL has
    /// another scheme; an error if a host is empty.
    pub(crate) fn read(url: &str) -> Option<Result<Self, ClientError>> {
        let servers = ServersUrl::read(url, "cluster", PORT)?;
        let nodes = servers.map(|servers| Self { nodes: servers.each(servers.path) });
        Some(nodes.ok_or_else(|| invalid("not a Cluster URL")))
    }
}

/// Parses a `redis+cluster://` or `rediss+cluster://` URL. `None` if the URL has another scheme; an
/// error if a host is empty.
pub fn read_cluster(url: &str) -> Option<Result<Cluster, ClientError>> {
    Cluster::read(url)
}

/// Returns the connection settings of each node named in `cluster`, in the same order.
///
/// # Errors
/// A URL cannot be parsed, or names several servers.
pub fn nodes_of(cluster: &Cluster) -> Result<Vec<ConnectionInfo>, ClientError> {
    cluster.nodes.iter().map(|url| server_url::read(url)).collect()
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // URLs may hold passwords.
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::error::ClientErrorKind;

    fn read(url: &str) -> Vec<String> {
        Cluster::read(url).expect("of a Cluster").expect("valid").nodes
    }

    #[test]
    fn a_url_of_a_cluster_says_where_its_nodes_are_and_how_each_is_spoken_to() {
        let nodes = read("rediss+cluster://app:s@cret@a:1,[::1],b?protocol=resp3");
        let expected = ["a:1", "[::1]:6379", "b:6379"]
            .map(|host| format!("rediss://app:s@cret@{host}/?protocol=resp3"));
        assert_eq!(nodes, expected);
        assert_eq!(read("redis+cluster://a/"), ["redis://a:6379/"]);
    }

    #[test]
    fn what_is_no_url_of_a_cluster_is_refused_and_its_password_not_repeated() {
        assert!(Cluster::read("redis://a/").is_none());
        for rest in ["", "/", "a,", ",a", "u:hidden@"] {
            let error = Cluster::read(&format!("redis+cluster://{rest}"))
                .expect("of a Cluster")
                .expect_err(rest);
            assert_eq!(error.kind, ClientErrorKind::InvalidOption, "{rest}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }
}
