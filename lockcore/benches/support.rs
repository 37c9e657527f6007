//! Helpers that the benches share: a Redis server, connections without lockcore, medians.
#![allow(dead_code, reason = "each bench is a binary of its own and uses a part of it")]

use std::env;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo as _, cmd};
use tokio::runtime::{Builder, Runtime};

/// A `redis-server` process without persistence, killed on drop.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts a server, and returns once it answers commands.
    ///
    /// # Panics
    ///
    /// If there is no `redis-server` on `PATH` (or at `$REDIS_SERVER`), or it does not come up.
    pub(crate) fn start() -> Self {
        let binary = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a loopback port is free")
            .port();
        let child = Command::new(&binary)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("the benches need a real redis-server: {binary}: {error}")
            });
        let server = Self { child, port };
        let deadline = Instant::now() + Duration::from_secs(10);
        let client = Client::open(server.url()).expect("a URL");
        while client.get_connection().is_err() {
            assert!(Instant::now() < deadline, "{binary} does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn client(&self) -> Client {
        let info = self.url().into_connection_info().expect("a URL");
        Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
            .expect("a URL")
    }

    /// Opens a connection without lockcore, as fast as the client library allows.
    pub(crate) async fn bare(&self) -> MultiplexedConnection {
        self.client().get_multiplexed_async_connection().await.expect("the server is up")
    }

    pub(crate) async fn bare_subscription(&self, channel: &str) -> PubSub {
        let mut subscription = self.client().get_async_pubsub().await.expect("the server is up");
        subscription.subscribe(channel).await.expect("subscribed");
        subscription
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Loads a script on the server, and returns its digest.
pub(crate) async fn load(redis: &mut MultiplexedConnection, script: &str) -> String {
    cmd("SCRIPT").arg("LOAD").arg(script).query_async(redis).await.expect("loaded")
}

/// Returns the runtimes that are compared, by name.
pub(crate) fn runtimes() -> [(&'static str, Runtime); 2] {
    let build = |mut builder: Builder| builder.enable_all().build().expect("a runtime");
    let mut threads = Builder::new_multi_thread();
    threads.worker_threads(2);
    [("multi_thread(2)", build(threads)), ("current_thread", build(Builder::new_current_thread()))]
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the mean over the middle eight tenths of all values. A median would be too coarse,
/// because the values are whole microseconds.
pub(crate) fn middle_mean(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let cut = values.len() / 10;
    let middle = &values[cut..values.len() - cut];
    middle.iter().sum::<f64>() / middle.len() as f64
}
