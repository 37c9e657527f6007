//! Bare connections, as fast as the client library goes.
#![forbid(unsafe_code)]

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo as _, cmd};

/// Without Nagle's delay, as our own connections.
pub fn client(url: &str) -> Client {
    let info = url.into_connection_info().expect("a URL");
    Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true))).expect("a URL")
}

/// A connection for commands.
pub async fn connect(url: &str) -> MultiplexedConnection {
    client(url).get_multiplexed_async_connection().await.expect("the server is up")
}

/// Loads a script; returns its digest.
pub async fn load(redis: &mut MultiplexedConnection, script: &str) -> String {
    cmd("SCRIPT").arg("LOAD").arg(script).query_async(redis).await.expect("loaded")
}
