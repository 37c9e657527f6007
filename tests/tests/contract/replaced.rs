//! The facts that still hold while the primary is replaced, over and over.
//!
//! A call in flight when the primary goes away may end as unavailable: a release then continues in
//! the background, and an acquire retries for 15 s, unless its grant needs replicas. Order is not
//! among these facts: a waiter is skipped while its node is not yet subscribed at the new primary.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_tests::{Failovers, Replaced, Spell, eventually, eventually_some};
use lockcore::{LockError, LockErrorKind, LockGuard, LockOptions, Locks};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::ms;

/// The lease, much longer than several failovers: a lock that is free before the lease ends was
/// released.
const LEASE: Duration = Duration::from_secs(120);
/// The bound of a test, more than several failovers take on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// The bound of a call that neither waits nor is unlimited: its wait or the request timeout, and
/// some polls.
const BOUND: Duration = Duration::from_secs(6);
/// How many failovers each fact sees; of the first, perhaps only the end.
const FAILOVERS: usize = 2;

/// Creates a test from each function, while primaries are replaced in this way. A grant needs
/// `replicas` acknowledgements: a promoted replica has every write that both replicas have.
macro_rules! while_primaries_are {
    ($name:ident, $replaced:expr, $replicas:expr, $($fact:ident),+ $(,)?) => {
        mod $name {
            use super::*;

            static SERVERS: OnceCell<Failovers> = OnceCell::const_new();

            $(
                #[tokio::test]
                async fn $fact() {
                    let failovers = SERVERS.get_or_init(|| Failovers::start($replaced)).await;
                    let world = World { spell: failovers.spell(), replicas: $replicas };
                    timeout(LIMIT, super::$fact(&world)).await.expect("the test ends");
                }
            )+
        }
    };
}

while_primaries_are!(
    planned,
    Replaced::Planned,
    0,
    turns_never_overlap_their_tokens_rise_and_all_are_served,
    a_hold_lasts_and_a_try_never_gets_it,
    what_is_cancelled_leaves_nothing,
    readers_meet_no_writer_and_permits_are_never_too_many,
    a_shutdown_ends_in_its_time_and_what_it_held_is_free_again,
);

while_primaries_are!(
    killed,
    Replaced::Killed,
    2,
    turns_never_overlap_their_tokens_rise_and_all_are_served,
    a_hold_lasts_and_a_try_never_gets_it,
);

struct World<'a> {
    spell: Spell<'a>,
    replicas: u32,
}

impl World<'_> {
    async fn node(&self) -> Locks {
        self.node_with(LEASE).await
    }

    /// Connects a node between two failovers, or after one.
    async fn node_with(&self, lease: Duration) -> Locks {
        eventually_some("a node connects", LIMIT, async || {
            let options = LockOptions::new().lease(lease);
            let mut builder = Locks::builder().defaults(options);
            if self.replicas > 0 {
                builder = builder.require_replicas(self.replicas, ms(1_000));
            }
            let connected = builder.connect(self.spell.url()).await;
            connected.inspect_err(|error| assert!(is_away(error), "{error}")).ok()
        })
        .await
    }

    async fn nodes<const N: usize>(&self) -> [Locks; N] {
        let mut nodes = Vec::with_capacity(N);
        for _ in 0..N {
            nodes.push(self.node().await);
        }
        nodes.try_into().expect("as many as asked for")
    }

    fn goes_on(&self) -> bool {
        self.spell.seen() < FAILOVERS
    }
}

/// Acquires, however often it is refused: no primary for too long, or too few replicas for the
/// grant.
async fn acquired<F, G>(acquire: impl Fn() -> F) -> G
where
    F: Future<Output = Result<G, LockError>>,
{
    loop {
        match acquire().await {
            Ok(guard) => return guard,
            Err(error) => assert!(is_away(&error), "{error}"),
        }
        sleep(ms(20)).await;
    }
}

async fn lock(locks: &Locks, key: &str) -> LockGuard {
    acquired(|| locks.lock(key)).await
}

/// Whether the primary is away, or is no primary any more.
fn is_away(error: &LockError) -> bool {
    matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::ReadOnly)
}

/// Releases at once, or in the background; in either case the lock was held until now.
async fn give_back(guard: LockGuard) {
    if let Err(error) = guard.release().await {
        assert!(is_away(&error), "{error}");
    }
}

/// The work under the lock of `key`.
#[derive(Default)]
struct Section {
    is_entered: AtomicBool,
    last: Mutex<u64>,
}

impl Section {
    async fn enter(&self, guard: &LockGuard) {
        assert!(!self.is_entered.swap(true, Ordering::SeqCst), "two at a time");
        let token = guard.fencing_token().get();
        let last = std::mem::replace(
            &mut *self.last.lock().unwrap_or_else(PoisonError::into_inner),
            token,
        );
        assert!(last < token, "{token} after {last}");
        sleep(ms(2)).await;
        assert!(!guard.is_lost());
        self.is_entered.store(false, Ordering::SeqCst);
    }
}

// S1, S3, L1.
async fn turns_never_overlap_their_tokens_rise_and_all_are_served(world: &World<'_>) {
    let nodes = world.nodes::<3>().await;
    let section = Arc::new(Section::default());
    let is_over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..6)
        .map(|number| {
            let locks = nodes[number % 3].clone();
            let section = Arc::clone(&section);
            let is_over = Arc::clone(&is_over);
            tokio::spawn(async move {
                let mut turns = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let guard = lock(&locks, "key").await;
                    section.enter(&guard).await;
                    give_back(guard).await;
                    turns += 1;
                }
                turns
            })
        })
        .collect();
    world.spell.until_seen(FAILOVERS).await;
    is_over.store(true, Ordering::SeqCst);
    for task in tasks {
        assert!(task.await.expect("no panic") > FAILOVERS, "each has its turns");
    }
    nothing_is_left(&nodes, "key").await;
}

// S1, L2, L5.
async fn a_hold_lasts_and_a_try_never_gets_it(world: &World<'_>) {
    let [a, b] = world.nodes().await;
    let guard = lock(&a, "key").await;
    let token = guard.fencing_token();
    let waiter = b.clone();
    let waiting = tokio::spawn(async move { lock(&waiter, "key").await });
    while world.goes_on() {
        let started = Instant::now();
        match b.try_lock("key").await {
            Ok(got) => assert!(got.is_none(), "it is held"),
            Err(error) => assert!(is_away(&error), "{error}"),
        }
        let limited = b.lock_timeout("key", ms(50)).await.expect_err("it is held");
        assert!(limited.kind() == LockErrorKind::Timeout || is_away(&limited), "{limited}");
        assert!(started.elapsed() < 2 * BOUND, "{:?}", started.elapsed());
        assert!(!guard.is_lost() && !waiting.is_finished());
        sleep(ms(20)).await;
    }
    assert_eq!(guard.fencing_token(), token);
    give_back(guard).await;
    let next = waiting.await.expect("no panic");
    assert!(next.fencing_token() > token);
    give_back(next).await;
    nothing_is_left(&[a, b], "key").await;
}

// L3.
async fn what_is_cancelled_leaves_nothing(world: &World<'_>) {
    let [a, b] = world.nodes().await;
    let guard = lock(&a, "key").await;
    let mut round = 0;
    while world.goes_on() {
        let waiting = tokio::spawn(b.lock("key"));
        let other = tokio::spawn(b.try_lock("key"));
        // The attempt is dropped at different times, from before it is sent to long after it is
        // queued.
        sleep(ms(round * 7 % 200)).await;
        waiting.abort();
        other.abort();
        round += 1;
    }
    assert!(!guard.is_lost());
    give_back(guard).await;
    nothing_is_left(&[a, b], "key").await;
}

/// The total weight of all holders: a write counts as the maximum.
#[derive(Default)]
struct Room(AtomicI64);

impl Room {
    async fn enter(&self, weight: i64, capacity: i64) {
        let within = self.0.fetch_add(weight, Ordering::SeqCst) + weight;
        assert!(within <= capacity, "{within} of {capacity}");
        sleep(ms(5)).await;
        self.0.fetch_sub(weight, Ordering::SeqCst);
    }
}

// S8 of the permits' protocol.
async fn readers_meet_no_writer_and_permits_are_never_too_many(world: &World<'_>) {
    const ALL: i64 = 100;
    let nodes = world.nodes::<2>().await;
    let document = Room::default();
    let pool = Room::default();
    let reads = async |locks: &Locks| {
        while world.goes_on() {
            let guard = acquired(|| locks.read("document")).await;
            document.enter(1, ALL).await;
            drop(guard);
        }
    };
    let writes = async |locks: &Locks| {
        while world.goes_on() {
            let guard = acquired(|| locks.write("document")).await;
            document.enter(ALL, ALL).await;
            drop(guard);
        }
    };
    let takes = async |locks: &Locks| {
        while world.goes_on() {
            let guard = acquired(|| locks.permit("pool", 2)).await;
            pool.enter(1, 2).await;
            drop(guard);
        }
    };
    let [a, b] = &nodes;
    tokio::join!(reads(a), reads(b), writes(b), takes(a), takes(a), takes(b));
    for locks in &nodes {
        eventually("the node has nothing left to do", LIMIT, async || is_idle(locks)).await;
    }
}

// L6.
async fn a_shutdown_ends_in_its_time_and_what_it_held_is_free_again(world: &World<'_>) {
    let other = world.node().await;
    let lease = Duration::from_secs(5);
    while world.goes_on() {
        let locks = world.node_with(lease).await;
        let guard = lock(&locks, "key").await;
        let started = Instant::now();
        let report = locks.shutdown(ms(200)).await;
        assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
        assert_eq!((report.waiters, report.holds), (0, 1));
        assert!(guard.is_lost());
        // If the primary was away throughout the shutdown, the lock stays until its lease ends.
        let free_again = timeout(LEASE, lock(&other, "key")).await;
        give_back(free_again.expect("in time")).await;
    }
}

fn is_idle(locks: &Locks) -> bool {
    let status = locks.status();
    (status.waiting, status.holding, status.releasing) == (0, 0, 0)
}

/// Checks that nothing is left (L3), across continuing failovers.
async fn nothing_is_left(nodes: &[Locks], key: &str) {
    eventually("it is free", LEASE / 2, async || {
        let seen = nodes[0].inspect(key).await;
        seen.is_ok_and(|seen| seen.holders.is_empty() && seen.waiters.is_empty())
    })
    .await;
    for locks in nodes {
        eventually("the node has nothing left to do", LIMIT, async || is_idle(locks)).await;
    }
}
