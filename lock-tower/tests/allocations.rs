//! The allocations that the layer adds to a request. `benches/overhead.rs` measures its cost in
//! time.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../benches/support.rs"]
mod support;

use http::Request;
use lockcore::Locks;

use support::{call, call_http, hold, http, http_locked, key, plain, plain_locked, with_extension};

const CALLS: u64 = 100;

/// Returns the number of allocations of one call, after warm-up.
fn allocations(mut call: impl FnMut()) -> u64 {
    (0..CALLS).for_each(|_| call());
    let count = allocation_counter::measure(|| (0..CALLS).for_each(|_| call())).count_total;
    assert_eq!(count % CALLS, 0, "every call allocates alike");
    count / CALLS
}

/// Returns a runtime that is entered but runs no task, because a task's budget would interrupt
/// these calls, which never yield.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_request_without_a_key_allocates_nothing() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let locks = Locks::in_memory();
    let mut bare = plain();
    let mut service = plain_locked(&locks, None);
    assert_eq!(allocations(|| call(&mut bare)), 0);
    assert_eq!(allocations(|| call(&mut service)), 0);

    let mut bare = http();
    let mut service = http_locked(&locks, None);
    assert_eq!(allocations(|| call_http(&mut bare, Request::new(String::new()))), 0);
    assert_eq!(allocations(|| call_http(&mut service, Request::new(String::new()))), 0);
}

/// A free lock costs nine allocations in lockcore. The layer adds one, for the registry shared by
/// handles, and in HTTP one more, for the handle's entry in the extensions.
#[test]
fn a_request_with_a_free_lock_allocates_little() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let locks = Locks::in_memory();
    let key = key();
    // Fills the in-memory store's list of tombstones (records of finished requests), whose capacity
    // then lasts for all further calls.
    (0..1_100).for_each(|_| hold(&locks, &key));
    let alone = allocations(|| hold(&locks, &key));

    let mut service = plain_locked(&locks, Some(key.clone()));
    let locked = allocations(|| call(&mut service));
    assert!(locked <= 10, "{locked}");
    assert_eq!(locked, alone + 1);

    let mut service = http_locked(&locks, Some(key));
    let bare = allocations(|| drop(with_extension()));
    let locked = allocations(|| call_http(&mut service, with_extension())) - bare;
    assert!(locked <= 11, "{locked}");
    assert_eq!(locked, alone + 2);

    // The first extension of a request makes the `http` crate allocate the extension map.
    let map = allocations(|| drop(with_extension())) - 1;
    let first = allocations(|| call_http(&mut service, Request::new(String::new())));
    assert_eq!(first, locked + map);
    assert!(first <= 13, "{first}");
}
