//! `Failovers`: one failover after the other in the background, while tests check everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::cmd;
use tokio::sync::{oneshot, watch};

use crate::{RedisOptions, Watched, eventually};

/// The number of databases: more than tests here; each uses its own.
const DATABASES: usize = 256;
/// The bound of a failover, which takes some three seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The pause between two failovers, and between two checks whether a failover is wanted.
const PAUSE: Duration = Duration::from_millis(200);

/// How a primary is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// An operator replaces the primary without loss: it accepts no writes any more and its
    /// replicas have all data before another server is promoted.
    Planned,
    /// SIGKILL ends the primary; it returns empty, as a replica.
    Killed,
}

/// Servers and sentinels whose primary is replaced, over and over, while there is a [`Spell`].
#[derive(Debug)]
pub struct Failovers {
    url: String,
    database: AtomicUsize,
    count: watch::Receiver<usize>,
    spells: Arc<AtomicUsize>,
}

impl Failovers {
    /// Starts the failovers, on a dedicated thread: tests of several runtimes can share them.
    ///
    /// # Panics
    ///
    /// If the servers and sentinels do not find each other.
    pub async fn start(replaced: Replaced) -> Self {
        let (sender, count) = watch::channel(0);
        let (url_sender, url) = oneshot::channel();
        let spells = Arc::new(AtomicUsize::new(0));
        let wanted = Arc::clone(&spells);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut scene = Scene::start(replaced).await;
                let _ = url_sender.send(scene.watched.url());
                loop {
                    tokio::time::sleep(PAUSE).await;
                    if wanted.load(Ordering::SeqCst) > 0 {
                        scene.fail_over().await;
                        sender.send_modify(|count| *count += 1);
                    }
                }
            });
        });
        let url = url.await.expect("the sentinels find each other");
        Self { url, database: AtomicUsize::new(0), count, spells }
    }

    /// Begins a period of failovers, with the URL of an unused database.
    ///
    /// # Panics
    ///
    /// If there is no database left.
    #[must_use]
    pub fn spell(&self) -> Spell<'_> {
        let database = self.database.fetch_add(1, Ordering::Relaxed);
        assert!(database < DATABASES, "a database for each");
        self.spells.fetch_add(1, Ordering::SeqCst);
        let begun = *self.count.borrow();
        Spell { failovers: self, url: format!("{}/{database}", self.url), begun }
    }
}

/// A period of failovers.
#[derive(Debug)]
pub struct Spell<'a> {
    failovers: &'a Failovers,
    url: String,
    begun: usize,
}

impl Spell<'_> {
    /// Returns the sentinels' URL, with a database.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns how many failovers have ended since the period began; of the first, perhaps only the
    /// end was in the period.
    ///
    /// # Panics
    ///
    /// As [`Spell::until_seen`].
    #[must_use]
    pub fn seen(&self) -> usize {
        assert!(self.failovers.count.has_changed().is_ok(), "the failovers go on");
        *self.failovers.count.borrow() - self.begun
    }

    /// Waits until `count` failovers have been seen.
    ///
    /// # Panics
    ///
    /// If the failovers stop: one took too long.
    pub async fn until_seen(&self, count: usize) {
        let until = self.begun + count;
        let mut counter = self.failovers.count.clone();
        counter.wait_for(|count| *count >= until).await.expect("the failovers go on");
    }
}

impl Drop for Spell<'_> {
    fn drop(&mut self) {
        self.failovers.spells.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Scene {
    watched: Watched,
    primary: usize,
    replaced: Replaced,
}

impl Scene {
    async fn start(replaced: Replaced) -> Self {
        let options = RedisOptions::default().arg("databases", &DATABASES.to_string());
        Self { watched: Watched::start(options).await, primary: 0, replaced }
    }

    /// Replaces the primary; the old one follows the new one when this returns.
    async fn fail_over(&mut self) {
        let old = self.primary;
        match self.replaced {
            Replaced::Planned => {
                self.close(old).await;
                self.primary = self.watched.fail_over(old).await;
                // The sentinels would take ten seconds for this.
                self.follow(old).await;
                let mut redis = self.watched.raw(old).await;
                redis.configure("min-replicas-to-write", "0").await;
                self.watched.until_named(self.primary).await;
            }
            Replaced::Killed => {
                self.watched.server(old).kill();
                self.primary = self.watched.promoted(old).await;
                // The old primary returns empty: by then no sentinel may name it.
                self.watched.until_named(self.primary).await;
                self.watched.server(old).restart();
                self.follow(old).await;
            }
        }
        self.watched.demoted(old).await;
        self.primary = self.watched.in_step().await;
    }

    /// Makes the primary refuse writes; both replicas have all its writes.
    async fn close(&self, primary: usize) {
        let mut redis = self.watched.raw(primary).await;
        // There are only two replicas.
        redis.configure("min-replicas-to-write", "3").await;
        let (_, written) = offsets(&mut redis).await;
        eventually("both replicas have all", LIMIT, async || {
            let (acknowledged, _) = offsets(&mut redis).await;
            acknowledged.len() == 2 && acknowledged.iter().all(|offset| *offset >= written)
        })
        .await;
    }

    async fn follow(&mut self, old: usize) {
        let port = self.watched.server(self.primary).port();
        let mut redis = self.watched.raw(old).await;
        redis.ask::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(port)).await;
    }
}

/// Returns the offsets acknowledged by the replicas, and the offset written by the primary.
async fn offsets(primary: &mut crate::Raw) -> (Vec<u64>, u64) {
    let (_, written, replicas): (String, u64, Vec<Vec<String>>) = primary.ask(&cmd("ROLE")).await;
    let acknowledged = replicas.iter().map(|replica| replica[2].parse().expect("an offset"));
    (acknowledged.collect(), written)
}
