//! The nodes of all sequences: two that hear and one that does not; and the threads of two JVMs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use lock_tests::{Proxy, Raw, RedisServer, eventually};
use lockcore::internals::protocol::{Answer, Command};
use lockcore::internals::{
    Event, Label, Listener, LockName, Member, Presence, Renewed, Reply, Store, StoreError, Touched,
    new_node, redis_store_as,
};
use lockcore::{LockErrorKind, NodeId};
use redis::aio::PubSub;

/// The lock of the tests of one thing each.
pub(crate) const LOCK: &str = "order: 42";
/// How many sequences there are, each on a lock of its own.
pub(crate) const LOCKS: u64 = 24;
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// A thread that listens, and two of a JVM that is gone.
pub(crate) const THREADS: [&str; 3] = [
    "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41",
    "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41",
    "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:42",
];

#[derive(Default)]
pub(crate) struct Ear(Mutex<Vec<Event>>);

impl Listener for Ear {
    fn hear(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Ear {
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A node that shares queues with JVMs.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ear: Arc<Ear>,
    next: AtomicU64,
}

impl Node {
    pub(crate) async fn connect(url: &str) -> Self {
        let (id, ear) = (new_node(), Arc::new(Ear::default()));
        let store = redis_store_as(url, id.clone(), ear.clone(), true).await.expect("connected");
        Self { id, store, ear, next: AtomicU64::new(1) }
    }

    pub(crate) fn member(&self, lease_ms: u64) -> Member {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Member::new(&self.id, number, lease_ms, &Label::new("a label"))
    }

    pub(crate) async fn run(
        &self,
        lock: &LockName,
        command: &Command,
    ) -> Result<Answer, StoreError> {
        let store = &self.store;
        Ok(match command {
            Command::Acquire { member, mode, queue_limit } => {
                Answer::Acquired(store.acquire(lock, member, *mode, *queue_limit).await?)
            }
            Command::Release { member } => Answer::Released(store.release(lock, member).await?),
            Command::Renew { member } => {
                Answer::Renewed(self.renew_in_company(lock, member).await?)
            }
            Command::Touch { members } => {
                Answer::Touched(self.touch_in_company(lock, members).await?)
            }
            Command::Leave { leaving } => Answer::Left(store.leave(lock, leaving.clone()).await?),
            Command::ForceRelease => Answer::Released(store.force_release(lock).await?),
            Command::Inspect => Answer::Inspected(store.inspect(lock).await?),
        })
    }

    /// In one script with another program's key and with a lock that is not held, now before them and now behind.
    async fn renew_in_company(
        &self,
        lock: &LockName,
        member: &Member,
    ) -> Result<Reply<Renewed>, StoreError> {
        let stranger = self.member(30_000);
        let mut holds = vec![
            (LockName::from(STRANGE), stranger.clone()),
            (lock.clone(), member.clone()),
            (LockName::from("not held"), stranger),
        ];
        let by = (self.next.load(Ordering::Relaxed) % 3) as usize;
        holds.rotate_left(by);
        let mut each = self.store.renew(holds).await?;
        each.rotate_right(by);
        let [strange, answer, gone] = each.try_into().expect("three answers");
        assert_eq!(strange.expect_err("a strange key").kind, LockErrorKind::WrongType);
        assert_eq!(gone.map(|reply| reply.outcome), Ok(Renewed::NotHeld));
        answer
    }

    async fn touch_in_company(
        &self,
        lock: &LockName,
        members: &[Member],
    ) -> Result<Reply<Touched>, StoreError> {
        let stranger = self.member(30_000);
        let mut lines = vec![
            (LockName::from(STRANGE), vec![stranger.clone(); 2]),
            (lock.clone(), members.to_vec()),
            (LockName::from("not held"), vec![stranger]),
        ];
        let by = (self.next.load(Ordering::Relaxed) % 3) as usize;
        lines.rotate_left(by);
        let mut each = self.store.touch(lines).await?;
        each.rotate_right(by);
        let [strange, answer, gone] = each.try_into().expect("three answers");
        assert_eq!(strange.expect_err("a strange key").kind, LockErrorKind::WrongType);
        assert_eq!(gone.map(|reply| reply.outcome.members), Ok(vec![Presence::Gone]));
        answer
    }
}

/// A key of another program.
pub(crate) const STRANGE: &str = "person:1";

pub(crate) struct World {
    pub(crate) server: RedisServer,
    _proxy: Proxy,
    pub(crate) redis: Raw,
    pub(crate) nodes: Vec<Node>,
    /// Channels on which the thread that listens was told to come.
    pokes: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::start();
        let mut redis = Raw::connect(&server.url()).await;
        let proxy = Proxy::start(server.address());
        let mut nodes =
            vec![Node::connect(&server.url()).await, Node::connect(&server.url()).await];
        let deaf = Node::connect(&proxy.url()).await;
        proxy.refuse().await;
        assert_eq!(proxy.cut_subscriptions().await, 1);
        let channel = format!("lockcore:grants:{}", deaf.id);
        let unheard = async || redis.subscribers(&channel).await == 0;
        eventually("the server notices a lost subscription", SOON, unheard).await;
        nodes.push(deaf);
        let pokes = listen(&server).await;
        Self { server, _proxy: proxy, redis, nodes, pokes }
    }

    pub(crate) fn is_connected(&self, node: &str) -> bool {
        self.nodes[..2].iter().any(|connected| connected.id.as_str() == node)
    }

    pub(crate) fn listens(member: &str) -> bool {
        member == THREADS[0]
    }

    /// A subscription to a channel, until it is dropped.
    pub(crate) async fn subscribe(&self, channel: &str) -> PubSub {
        let client = redis::Client::open(self.server.url()).expect("a URL");
        let mut subscription = client.get_async_pubsub().await.expect("a subscription");
        subscription.subscribe(channel).await.expect("a channel");
        subscription
    }

    /// Of which locks the thread that listens was told, since the last call.
    pub(crate) async fn poked(&mut self) -> Vec<String> {
        let mark = format!("redisson_lock__channel:{{end}}:{}", THREADS[0]);
        self.redis.publish(&mark, "0").await;
        let pokes = Arc::clone(&self.pokes);
        let heard = move || pokes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        eventually("a message arrives", SOON, async || heard().contains(&mark)).await;
        let mut poked =
            std::mem::take(&mut *self.pokes.lock().unwrap_or_else(PoisonError::into_inner));
        poked.pop();
        poked
    }
}

/// The lock of a sequence.
pub(crate) fn lock_of(seed: u64) -> String {
    format!("lock of {seed}")
}

async fn listen(server: &RedisServer) -> Arc<Mutex<Vec<String>>> {
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut subscription = client.get_async_pubsub().await.expect("a subscription");
    for lock in (1..=LOCKS).map(lock_of).chain([LOCK.to_owned(), "end".to_owned()]) {
        let channel = format!("redisson_lock__channel:{{{lock}}}:{}", THREADS[0]);
        subscription.subscribe(channel).await.expect("a channel");
    }
    let pokes = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&pokes);
    tokio::spawn(async move {
        let mut messages = subscription.into_on_message();
        while let Some(message) = messages.next().await {
            assert_eq!(message.get_payload_bytes(), b"0");
            let channel = message.get_channel_name().to_owned();
            heard.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
        }
    });
    pokes
}
