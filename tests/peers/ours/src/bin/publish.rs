//! The minimum of a hand-off: a script that publishes a message, and the task of another process
//! woken by it. No lock: two processes take turns, and one of them waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use lock_peer_kit::{Peer, run};
use lock_peer_ours::{client, connect, load};
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::cmd;
use tokio::sync::Mutex;

const PUBLISH: &str = "return redis.call('PUBLISH', KEYS[1], ARGV[1])";
const PATIENCE: Duration = Duration::from_millis(200);
const PAYLOAD: &str = "g ~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:bench 1795242275666200 10000";

struct Publish {
    redis: MultiplexedConnection,
    publish: String,
    subscription: Arc<Mutex<(PubSubSink, PubSubStream)>>,
}

impl Peer for Publish {
    type Hold = String;

    async fn take(&self, key: String) -> String {
        let mut redis = self.redis.clone();
        let begun = format!("{key}:begun");
        let first: bool =
            cmd("SETNX").arg(&begun).arg(1).query_async(&mut redis).await.expect("answered");
        if !first {
            let mut subscription = Arc::clone(&self.subscription).lock_owned().await;
            subscription.0.subscribe(&key).await.expect("subscribed");
            subscription.1.next().await.expect("the server stays");
            let channel = key.clone();
            tokio::spawn(async move { subscription.0.unsubscribe(channel).await });
        }
        key
    }

    async fn give(&self, key: String) {
        let mut publish = cmd("EVALSHA");
        publish.arg(&self.publish).arg(1).arg(&key).arg(PAYLOAD);
        // Usually the first attempt succeeds. On a busy machine the other process may not have
        // subscribed yet; at the end it is gone.
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let mut redis = self.redis.clone();
            let heard: i64 = publish.query_async(&mut redis).await.expect("answered");
            if heard > 0 {
                break;
            }
        }
    }
}

fn main() {
    run("EVALSHA and PUBLISH", async |url| {
        let mut redis = connect(&url).await;
        let publish = load(&mut redis, PUBLISH).await;
        let subscription = client(&url).get_async_pubsub().await.expect("connected").split();
        Publish { redis, publish, subscription: Arc::new(Mutex::new(subscription)) }
    });
}
