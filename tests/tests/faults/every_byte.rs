//! Connections cut after every single byte of a request and of a reply: the same outcome, or an
//! error that reports an unknown outcome, and never a second hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use lock_tests::{Fault, Proxy, Raw, RedisServer, Request, eventually};
use lockcore::{LockErrorKind, Locks};

use crate::common::{LONG, SOON, held, holder, queue, release, soon};
use crate::script::runs;

/// The number of cut offsets, above the length of any frame here. The proxy takes the offset modulo
/// the length, so each byte of a frame is covered.
const PLACES: usize = 512;
/// The number of cut offsets in a reply: most replies are short.
const REPLY_PLACES: usize = 64;
/// How many nodes have their connections cut at once.
const LANES: usize = 32;

/// The length of a request on the wire.
fn length(request: &Request) -> usize {
    let header = |count: usize| count.to_string().len() + 3;
    let arg = |arg: &Vec<u8>| header(arg.len()) + arg.len() + 2;
    header(request.args().len()) + request.args().iter().map(arg).sum::<usize>()
}

/// Matches these requests, and records the maximum length.
fn measured(
    runs: impl Fn(&Request) -> bool + Send + 'static,
    longest: &Arc<AtomicUsize>,
) -> impl Fn(&Request) -> bool + Send + 'static {
    let longest = Arc::clone(longest);
    move |request| {
        let matches = runs(request);
        if matches {
            longest.fetch_max(length(request), Ordering::SeqCst);
        }
        matches
    }
}

/// Matches the release of a lock without waiters: the script, or the command.
fn releases() -> impl Fn(&Request) -> bool + Send + 'static {
    let script = runs("unlock");
    move |request| request.compares() || script(request)
}

/// A node with its own proxy: each cut delays it for a moment, so many take turns at once.
struct Lane {
    proxy: Proxy,
    locks: Locks,
    redis: Raw,
}

impl Lane {
    /// Acquires and releases a lock while a cut strikes its acquire.
    async fn acquire_cut(&mut self, place: usize, arm: impl FnOnce(&Proxy) -> Fault) {
        let locks = &self.locks;
        let redis = &mut self.redis;
        let key = format!("k{place}");
        // Once more: a name that shares its index in the table of free names may have been busy.
        release(held(locks, &key, LONG).await).await;
        let cut = arm(&self.proxy);
        let lock = soon("the lock", locks.key(&key).lease(LONG).lock()).await;
        let guard = lock.unwrap_or_else(|error| panic!("cut at {place}: {error}"));
        assert!(cut.has_struck(), "place {place}");
        let member = holder(redis, &key).await.expect("it is held");
        assert!(member.contains(locks.node().as_str()), "{member}");
        assert_eq!(queue(redis, &key).await, Vec::<String>::new(), "place {place}");
        soon("the release", guard.release()).await.expect("held until now");
        assert_eq!(holder(redis, &key).await, None, "place {place}");
    }

    /// Acquires and releases a lock while a cut strikes its release.
    async fn release_cut(&mut self, place: usize, arm: impl FnOnce(&Proxy) -> Fault) {
        let locks = &self.locks;
        let redis = &mut self.redis;
        let key = format!("k{place}");
        let lock = locks.key(&key).lease(LONG);
        let guard = soon("the lock", lock.clone().lock()).await.expect("a free lock");
        let cut = arm(&self.proxy);
        if let Err(error) = soon("the release", guard.release()).await {
            assert_eq!(error.kind(), LockErrorKind::Unavailable, "cut at {place}");
        }
        soon("the cut", cut.struck()).await;
        eventually("it is free", SOON, async || holder(redis, &key).await.is_none()).await;
        release(soon("the lock again", lock.lock()).await.expect("a free lock")).await;
    }
}

/// How free locks are acquired.
#[derive(Clone, Copy)]
enum By {
    /// By script: the user has no right to a transaction.
    Script,
    Transaction,
}

/// Cuts at every offset, each in one of the lanes.
async fn at_every_place(by: By, places: usize, cut: impl AsyncFn(&mut Lane, usize)) {
    let server = match by {
        By::Script => RedisServer::options().arg("user", "default on nopass +@all ~* &* -multi"),
        By::Transaction => RedisServer::options(),
    };
    let server = server.start();
    let lanes = (0..LANES).map(|first| {
        let server = &server;
        let cut = &cut;
        async move {
            let proxy = Proxy::start(server.address());
            // So many connections are cut at once that some are away for longer than a request
            // timeout.
            let builder = Locks::builder().store_wait(SOON);
            let locks = soon("a connection", builder.connect(proxy.url())).await.expect("accepted");
            release(held(&locks, &format!("first {first}"), LONG).await).await; // by the script
            let mut lane = Lane { proxy, locks, redis: Raw::connect(&server.url()).await };
            for place in (first..places).step_by(LANES) {
                cut(&mut lane, place).await;
            }
        }
    });
    join_all(lanes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_cut_at_any_byte_of_its_request_is_granted_once() {
    let longest = Arc::new(AtomicUsize::new(0));
    at_every_place(By::Script, PLACES, async |lane, place| {
        let lock = measured(runs("lock"), &longest);
        lane.acquire_cut(place, |proxy| proxy.cut_request(place, lock)).await;
    })
    .await;
    assert!((1..=PLACES).contains(&longest.load(Ordering::SeqCst)), "{longest:?} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_cut_at_any_byte_of_its_reply_is_granted_once() {
    at_every_place(By::Script, REPLY_PLACES, async |lane, place| {
        lane.acquire_cut(place, |proxy| proxy.cut_reply(place, runs("lock"))).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_cut_at_any_byte_of_its_transaction_is_granted_once() {
    const EACH: usize = 192;
    const COMMANDS: [&str; 5] = ["MULTI", "SET", "INCR", "GET", "EXEC"];
    let longest = Arc::new(AtomicUsize::new(0));
    at_every_place(By::Transaction, COMMANDS.len() * EACH, async |lane, place| {
        let is = move |request: &Request| request.is(COMMANDS[place / EACH]);
        let command = measured(is, &longest);
        lane.acquire_cut(place, |proxy| proxy.cut_request(place % EACH, command)).await;
    })
    .await;
    assert!((1..=EACH).contains(&longest.load(Ordering::SeqCst)), "{longest:?} bytes");
    at_every_place(By::Transaction, COMMANDS.len() * EACH, async |lane, place| {
        let is = move |request: &Request| request.is(COMMANDS[place / EACH]);
        lane.acquire_cut(place, |proxy| proxy.cut_reply(place % EACH, is)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_cut_at_any_byte_of_its_request_frees_the_lock() {
    let longest = Arc::new(AtomicUsize::new(0));
    at_every_place(By::Transaction, PLACES, async |lane, place| {
        lane.release_cut(place, |proxy| proxy.cut_request(place, measured(releases(), &longest)))
            .await;
    })
    .await;
    assert!((1..=PLACES).contains(&longest.load(Ordering::SeqCst)), "{longest:?} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_cut_at_any_byte_of_its_reply_frees_the_lock_once() {
    at_every_place(By::Transaction, REPLY_PLACES, async |lane, place| {
        lane.release_cut(place, |proxy| proxy.cut_reply(place, releases())).await;
    })
    .await;
}
