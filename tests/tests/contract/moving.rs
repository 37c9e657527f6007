//! Migrates a running service from locks to reads and writes in one release: the old and the new
//! release run side by side for a while.

use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::join_all;
use lockcore::Locks;

use crate::backend::{Backend, soon};

on_every_store!(locks_and_reads_and_writes_of_one_name_never_overlap);

const TURNS: usize = 40;

/// The number of readers, or -1 while a task has exclusive access.
#[derive(Default)]
struct Resource(AtomicI64);

impl Resource {
    async fn alone(&self) {
        let before = self.0.compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst);
        assert_eq!(before, Ok(0), "an overlap");
        tokio::task::yield_now().await;
        self.0.store(0, Ordering::SeqCst);
    }

    async fn together(&self) {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        assert!(before >= 0, "an overlap");
        tokio::task::yield_now().await;
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A release of the service. It has tasks that only read the resource, and tasks that change it.
#[derive(Clone, Copy)]
enum Release {
    Old,
    New,
}

impl Release {
    async fn turns(self, locks: Locks, resource: &Resource, only_reads: bool) {
        for _ in 0..TURNS {
            match self {
                Self::Old => {
                    let _lock = locks.lock("doc").await.expect("acquired");
                    resource.alone().await;
                }
                Self::New if only_reads => {
                    let _read = locks.read("doc").await.expect("acquired");
                    resource.together().await;
                }
                Self::New => {
                    let _write = locks.write("doc").await.expect("acquired");
                    resource.alone().await;
                }
            }
        }
    }
}

async fn locks_and_reads_and_writes_of_one_name_never_overlap(backend: &Backend) {
    let nodes = backend.nodes::<2>().await;
    let resource = &Resource::default();
    let releases = [Release::Old, Release::New];
    let tasks = nodes.iter().zip(releases).flat_map(|(locks, release)| {
        [true, false, true].map(|only_reads| release.turns(locks.clone(), resource, only_reads))
    });
    soon(join_all(tasks)).await;
}
