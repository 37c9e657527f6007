//! The holder's name, requested when an attempt is queued: the cost does not grow with the queue.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lock_tests::{Raw, RedisServer, eventually};
use lockcore::{Locks, LocksBuilder};
use tokio::task::JoinSet;
use tracing::field::{Field, Visit};
use tracing::span::{Id, Record};
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

use crate::common::{LONG, SOON, held, release, soon};

/// The number of spans with a recorded holder.
#[derive(Clone, Default)]
struct Named(Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Named {
    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        values.record(&mut self.clone());
    }
}

impl Visit for Named {
    fn record_debug(&mut self, field: &Field, _: &dyn Debug) {
        self.0.fetch_add(usize::from(field.name() == "holder"), Ordering::SeqCst);
    }
}

/// The number of bytes sent by the server.
async fn sent(redis: &mut Raw) -> u64 {
    let info = redis.info("stats").await;
    let sent = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    sent.expect("it is told").trim().parse().expect("a number")
}

async fn costs_the_same_at_any_length(builder: impl Fn() -> LocksBuilder) {
    let named = Named::default();
    // With a single subscriber, tracing consults the thread that first reaches a span, which may
    // have none.
    let _another = Dispatch::new(tracing_subscriber::registry());
    let _here =
        tracing::subscriber::set_default(tracing_subscriber::registry().with(named.clone()));
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let connect = async || {
        let url = server.url();
        soon("a connection", builder().connect(&url)).await.expect("accepted")
    };
    let (holder, locks) = (connect().await, connect().await);
    let guard = held(&holder, "k", LONG).await;
    let mut waiting = JoinSet::new();
    let mut costs = Vec::new();
    for (at, length) in [2, 400].into_iter().enumerate() {
        while waiting.len() < length {
            waiting.spawn(locks.key("k").lock().into_future());
        }
        eventually("all of them wait", SOON, async || {
            holder.inspect_part("k", 0, 1).await.expect("answered").waiting == length as u64
        })
        .await;
        let before = sent(&mut redis).await;
        waiting.spawn(locks.key("k").record_holders(true).lock().into_future());
        eventually("it is told", SOON, async || named.0.load(Ordering::SeqCst) > at).await;
        costs.push(sent(&mut redis).await - before);
    }
    assert!(costs[1] < costs[0] + 4_000, "{costs:?}: 400 members have 25 000 bytes");
    waiting.abort_all();
    release(guard).await;
}

#[tokio::test]
async fn naming_the_holder_costs_the_same_at_any_length_of_the_queue() {
    costs_the_same_at_any_length(Locks::builder).await;
}

#[tokio::test]
async fn naming_the_holder_beside_jvms_costs_the_same_at_any_length_of_the_queue() {
    costs_the_same_at_any_length(|| Locks::builder().redisson_peers(true)).await;
}
