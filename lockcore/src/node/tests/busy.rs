//! Tests that a task whose futures are ready at each poll, as on an in-memory store, leaves time
//! for the other tasks of the thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::api::locks::Locks;

/// Number of turns without a pause, enough to starve all other tasks of the thread.
const TURNS: usize = 20_000;

/// Spawns a task that sets the returned flag after ten polls.
fn share_the_thread() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&flag);
    tokio::spawn(async move {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        done.store(true, Ordering::Relaxed);
    });
    flag
}

/// Runs `turn` until another task of the thread has completed. Returns false if the other task did
/// not complete within [`TURNS`] turns.
async fn leaves_room(mut turn: impl AsyncFnMut()) -> bool {
    let had_its_turn = share_the_thread();
    for _ in 0..TURNS {
        turn().await;
        if had_its_turn.load(Ordering::Relaxed) {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn a_task_that_locks_without_a_pause_leaves_room_for_others() {
    let locks = Locks::in_memory();
    let is_released = async || {
        let guard = locks.lock("key").await.expect("free");
        guard.release().await.expect("held");
    };
    assert!(leaves_room(is_released).await, "released");
    assert!(leaves_room(async || drop(locks.lock("key").await.expect("free"))).await, "dropped");
    let shared = locks.lock("shared").await.expect("free");
    assert!(
        leaves_room(async || shared.reenter().expect("held").release().await.expect("held")).await,
        "shared"
    );
    let tried = async || assert!(locks.try_lock("shared").await.expect("held").is_none());
    assert!(leaves_room(tried).await, "busy");
    let refused = async || drop(locks.lock("").await.expect_err("no name"));
    assert!(leaves_room(refused).await, "refused");
    let set =
        async || locks.lock_all(["a", "b"]).await.expect("free").release().await.expect("held");
    assert!(leaves_room(set).await, "a set");
    let quorum = Locks::builder().in_memory_quorum(3).expect("3 stores");
    let by_most = async || drop(quorum.lock("key").await.expect("free"));
    assert!(leaves_room(by_most).await, "a quorum");
}

#[tokio::test]
async fn the_guards_that_a_task_drops_without_a_pause_are_released_meanwhile() {
    let locks = Locks::in_memory();
    let mut most = 0;
    for turn in 0..TURNS {
        drop(locks.lock(format!("{turn}")).await.expect("free"));
        most = most.max(locks.status().releasing);
    }
    assert!(most < 1_000, "{most} were released by nobody");
}
