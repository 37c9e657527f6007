//! Our locks, and bare connections, as fast as the client library allows.
#![forbid(unsafe_code)]

mod bare;

pub use bare::{Bare, BareHold};

use lock_peer_kit::Peer;
use lockcore::{LockGuard, Locks};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo as _, cmd};

/// Our locks, however they were configured.
pub struct Ours(pub Locks);

impl Peer for Ours {
    type Hold = LockGuard;

    async fn take(&self, key: String) -> LockGuard {
        self.0.lock(key).await.expect("taken")
    }

    async fn give(&self, hold: LockGuard) {
        hold.release().await.expect("held");
    }
}

/// A client without Nagle's delay, like our own connections.
pub fn client(url: &str) -> Client {
    let info = url.into_connection_info().expect("a URL");
    Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true))).expect("a URL")
}

/// Opens a connection for commands.
pub async fn connect(url: &str) -> MultiplexedConnection {
    client(url).get_multiplexed_async_connection().await.expect("the server is up")
}

/// Loads a script; returns its digest.
pub async fn load(redis: &mut MultiplexedConnection, script: &str) -> String {
    cmd("SCRIPT").arg("LOAD").arg(script).query_async(redis).await.expect("loaded")
}
