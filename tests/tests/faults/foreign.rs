//! Foreign code that panics in a task of the Redis client: a tracing subscriber, or the waker of a
//! caller.

use std::fmt;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use lock_tests::{Log, eventually};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

use crate::common::{
    LONG, SOON, Setup, channel, connected, granted, held, listens, queued, release, setup, soon,
};

/// A subscriber that panics once, at the first event whose message contains a text.
struct PanicsOnce {
    text: &'static str,
    has_panicked: Arc<AtomicBool>,
}

impl PanicsOnce {
    /// Listens on this thread, until the guard is dropped. Also returns whether it has panicked.
    fn listen(text: &'static str) -> (Arc<AtomicBool>, DefaultGuard) {
        // Without a second subscriber, tracing may cache that nobody is interested in an event.
        drop(Log::listen());
        let has_panicked = Arc::default();
        let subscriber = Self { text, has_panicked: Arc::clone(&has_panicked) };
        (has_panicked, tracing::subscriber::set_default(subscriber))
    }
}

impl Subscriber for PanicsOnce {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        if message.0.contains(self.text) && !self.has_panicked.swap(true, Ordering::Relaxed) {
            resume_unwind(Box::new("logged"));
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// Cuts all connections with ten acquires in flight. Returns once all are granted and released, and
/// the process is connected again.
async fn survives_a_cut(setup: &mut Setup, locks: &lockcore::Locks) {
    setup.proxy.hold_replies().await;
    let mut waiting = Vec::new();
    for number in 0..10 {
        waiting.push(tokio::spawn(locks.key(format!("key {number}")).lock()));
    }
    eventually("all are in flight", SOON, async || {
        locks.status().servers[0].unanswered.is_some_and(|unanswered| unanswered >= 10)
    })
    .await;
    setup.proxy.cut_all().await;
    setup.proxy.release_replies();
    for waiting in waiting {
        release(granted(waiting).await).await;
    }
    connected(locks).await;
    listens(&mut setup.redis, locks.node().as_str(), 1).await;
}

#[tokio::test]
async fn a_subscriber_that_panics_costs_neither_a_request_nor_a_connection() {
    for text in [
        "the connection to Redis broke",
        "connected to Redis again",
        "the subscription to Redis broke",
        "subscribed to Redis again",
        "a message on this node's channel is malformed",
    ] {
        let mut setup = setup().await;
        let locks = setup.through().await;
        let (has_panicked, _here) = PanicsOnce::listen(text);
        setup.redis.publish(&channel(locks.node().as_str()), "no message").await;
        survives_a_cut(&mut setup, &locks).await;
        eventually(text, SOON, async || has_panicked.load(Ordering::Relaxed)).await;
        // Each connection is replaced once more.
        survives_a_cut(&mut setup, &locks).await;
        let other = setup.direct().await;
        let guard = held(&other, "k", LONG).await;
        let waiting = queued(&locks, "k", LONG, &mut setup.redis).await;
        release(guard).await;
        release(granted(waiting).await).await;
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        resume_unwind(Box::new("woken"));
    }
}

#[tokio::test]
async fn a_caller_whose_waker_panics_costs_no_other_request_its_reply() {
    let setup = setup().await;
    let locks = setup.direct().await;
    let mut inspected = pin!(locks.inspect("k"));
    let waker = Waker::from(Arc::new(Panics));
    assert!(inspected.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let guard = held(&locks, "k", LONG).await;
    soon("a reply", inspected).await.expect("an inspection");
    release(guard).await;
}
