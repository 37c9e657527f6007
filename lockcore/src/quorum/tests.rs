//! Locks by a majority of stores in memory.

use std::time::Duration;

use crate::locks::Locks;
use crate::store::memory::MemoryStore;

#[tokio::test(start_paused = true)]
async fn a_lock_is_had_by_one_process_at_a_time_with_rising_tokens() {
    let stores = [(); 3].map(|()| MemoryStore::new());
    let process = || Locks::builder().on_memory_quorum(&stores).expect("three stores");
    let (one, other) = (process(), process());
    let mut last = 0;
    for _ in 0..10 {
        for locks in [&one, &other] {
            let guard = locks.lock("key").await.expect("free");
            assert!(guard.fencing_token().get() > last);
            last = guard.fencing_token().get();
            assert!(other.try_lock("key").await.expect("an answer").is_none());
            tokio::time::sleep(Duration::from_millis(7)).await;
            assert!(!guard.is_lost());
            guard.release().await.expect("held");
        }
    }
}
