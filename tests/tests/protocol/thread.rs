//! `Thread`: a thread of a JVM that shares a lock, without a JVM. The test writes its keys.

use futures_util::StreamExt as _;
use lock_tests::protocol::redisson::poke_channel;
use proto::Party;
use redis::aio::PubSub;
use redisson::Hold;
use tokio::time::timeout;

use crate::bench::{Bench, SOON};
use crate::node::lock;

/// How much a JVM adds to the score of the last entry, and subtracts from all entries behind it.
pub(crate) const STEP_MS: u64 = 300_000;

/// A thread, and two threads of a JVM that is gone.
pub(crate) const THREADS: [&str; 3] = [
    "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41",
    "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41",
    "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:42",
];

/// A thread subscribed to its channel.
pub(crate) struct Thread {
    member: String,
    channel: String,
    /// The subscription on a server.
    ear: Option<PubSub>,
}

impl Bench {
    /// Subscribes a thread to its channel.
    pub(crate) async fn listen(&mut self, member: &str) -> Thread {
        let channel = poke_channel(self.lock.as_str(), member);
        if !self.side.is_function() {
            let client = redis::Client::open(self.server().url()).expect("a URL");
            let mut ear = client.get_async_pubsub().await.expect("a connection");
            ear.subscribe(&channel).await.expect("subscribed");
            return Thread { member: member.to_owned(), channel, ear: Some(ear) };
        }
        let function = &mut *lock(self.function());
        function.connected.insert(member.to_owned());
        function.pokes.retain(|poked| poked != member);
        Thread { member: member.to_owned(), channel, ear: None }
    }

    /// Ends the subscription of a thread. The server knows it on return.
    pub(crate) async fn deafen(&mut self, thread: Thread) {
        match thread.ear {
            Some(mut ear) => ear.unsubscribe(&thread.channel).await.expect("unsubscribed"),
            None => {
                lock(self.function()).connected.remove(&thread.member);
            }
        }
    }

    /// How many messages have notified the thread to try again since the last call.
    pub(crate) async fn pokes(&mut self, thread: &mut Thread) -> usize {
        let Some(ear) = &mut thread.ear else {
            let pokes = &mut lock(self.function()).pokes;
            let before = pokes.len();
            pokes.retain(|poked| *poked != thread.member);
            return before - pokes.len();
        };
        self.redis().publish(&thread.channel, "end").await;
        let mut messages = ear.on_message();
        let mut pokes = 0;
        loop {
            let message = timeout(SOON, messages.next()).await.expect("in time");
            match message.expect("connected").get_payload_bytes() {
                b"end" => return pokes,
                b"0" => pokes += 1,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Queues a thread: its score is the last score plus its own step.
    pub(crate) async fn jvm_queues(&mut self, member: &str, step_ms: u64) {
        let member = Party::from(member);
        self.change(|state, now_ms| {
            let state = state.of_redisson();
            let last = state.queue.back().and_then(|last| state.deadlines.get(last));
            state.queue.push_back(member.clone());
            state.deadlines.set(&member, last.unwrap_or(now_ms) + step_ms);
            state.queue_expires_ms = None;
        })
        .await;
    }

    /// Gives a thread the lock for this long.
    pub(crate) async fn jvm_holds(&mut self, member: &str, left_ms: Option<u64>) {
        let member = Party::from(member);
        self.change(|state, now_ms| {
            let expires_ms = left_ms.map(|ms| now_ms + ms);
            state.of_redisson().hold = Some(Hold { member, expires_ms });
        })
        .await;
    }

    /// Removes the head like a JVM, for its own thread or a dead entry: its step is subtracted from
    /// all others.
    pub(crate) async fn head_goes(&mut self, step_ms: u64) {
        self.change(|state, _| {
            let state = state.of_redisson();
            let head = state.queue.pop_front().expect("one waits");
            state.deadlines.remove(&head);
            for party in &state.queue {
                let score_ms = state.deadlines.get(party).expect("a score");
                state.deadlines.set(party, score_ms - step_ms);
            }
        })
        .await;
    }

    /// The score of a waiting party, ms after the server's time.
    pub(crate) async fn score(&mut self, party: impl Into<Party>) -> i64 {
        let (mut state, now_ms) = self.state().await;
        let score_ms = state.of_redisson().deadlines.get(&party.into()).expect("it waits");
        score_ms as i64 - now_ms as i64
    }

    /// Sets the score of a waiting party, ms after the server's time.
    pub(crate) async fn set_score(&mut self, party: impl Into<Party>, ms: u64) {
        let party = party.into();
        self.change(|state, now_ms| state.of_redisson().deadlines.set(&party, now_ms + ms)).await;
    }

    /// The threads known to receive no messages.
    pub(crate) async fn suspects(&mut self) -> Vec<String> {
        let (mut state, _) = self.state().await;
        let since_ms = &state.of_redisson().suspects.since_ms;
        since_ms.keys().map(|(party, _)| party.as_str().to_owned()).collect()
    }

    /// Lets `ms` pass for the suspects.
    pub(crate) async fn age_suspects(&mut self, ms: u64) {
        self.change(|state, _| {
            state.of_redisson().suspects.since_ms.values_mut().for_each(|since| *since -= ms);
        })
        .await;
    }
}
