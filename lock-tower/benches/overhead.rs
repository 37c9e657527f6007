//! The time that the layers add to a bare service. `tests/allocations.rs` counts the allocations.
//!
//! Targets: a request without a key takes at most 60 ns more than without the layer, and a request
//! with a free lock in memory at most 5 µs more. lockcore alone is measured as well, so that the
//! layer's own cost is the difference.
#![allow(missing_docs, reason = "criterion's macros")]

mod support;

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use http::Request;
use lockcore::Locks;

use support::{call, call_http, hold, http, http_locked, key, plain, plain_locked, with_extension};

fn unlocked(criterion: &mut Criterion) {
    let runtime = runtime();
    let _entered = runtime.enter();
    let locks = Locks::in_memory();

    let mut group = criterion.benchmark_group("unlocked");
    let mut bare = plain();
    group.bench_function("plain, bare", |bencher| bencher.iter(|| call(&mut bare)));
    let mut none = plain_locked(&locks, None);
    group.bench_function("plain, no key", |bencher| bencher.iter(|| call(&mut none)));
    let mut bare = http();
    group.bench_function("HTTP, bare", |bencher| {
        bencher.iter(|| call_http(&mut bare, black_box(Request::new(String::new()))));
    });
    let mut none = http_locked(&locks, None);
    group.bench_function("HTTP, no key", |bencher| {
        bencher.iter(|| call_http(&mut none, black_box(Request::new(String::new()))));
    });
    group.finish();
}

fn locked(criterion: &mut Criterion) {
    let runtime = runtime();
    let _entered = runtime.enter();
    let (locks, key) = (Locks::in_memory(), key());
    let mut group = criterion.benchmark_group("locked");
    group.bench_function("lockcore alone", |bencher| bencher.iter(|| hold(&locks, &key)));
    let mut plain = plain_locked(&locks, Some(key.clone()));
    group.bench_function("plain", |bencher| bencher.iter(|| call(&mut plain)));
    let mut http = http_locked(&locks, Some(key.clone()));
    group.bench_function("HTTP", |bencher| {
        bencher.iter(|| call_http(&mut http, Request::new(String::new())));
    });
    group.bench_function("HTTP, with extensions", |bencher| {
        bencher.iter(|| call_http(&mut http, with_extension()));
    });
    group.finish();
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

fn configuration() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! {
    name = overhead;
    config = configuration();
    targets = unlocked, locked
}
criterion_main!(overhead);
