//! What the layer costs, in time over the bare service and in allocations.
//!
//! Targets: a request without a key costs at most 60 ns and no allocation; one with a free lock, on a store in
//! memory, at most 5 µs and 10 allocations, of which the rows "lockcore alone" and "the layer's part" say whose
//! they are.
#![allow(clippy::print_stdout, missing_docs)]

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use lock_tower::{HttpLockLayer, LockError, LockLayer};
use lockcore::{LockKey, Locks};
use tower::{Layer as _, Service, service_fn};

const REPETITIONS: usize = 15;
const CALLS: u32 = 20_000;

/// Everything here is ready at the first poll: no executor gets between.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a store in memory answers at once"),
    }
}

/// Median over the repetitions, and allocations of one call.
struct Row {
    nanos: f64,
    allocations: u64,
}

fn time(call: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..CALLS).for_each(|_| call());
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn allocations(call: &mut impl FnMut()) -> u64 {
    (0..100).for_each(|_| call());
    allocation_counter::measure(|| (0..100).for_each(|_| call())).count_total / 100
}

/// All in turn, so that a machine that slows down slows all of them.
fn measure(calls: &mut [&mut dyn FnMut()]) -> Vec<Row> {
    let mut times = vec![Vec::new(); calls.len()];
    for _ in 0..REPETITIONS {
        for (call, times) in calls.iter_mut().zip(&mut times) {
            times.push(time(call));
        }
    }
    let medians = times.into_iter().map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let counts: Vec<_> = calls.iter_mut().map(allocations).collect();
    medians.zip(counts).map(|(nanos, allocations)| Row { nanos, allocations }).collect()
}

fn show(name: &str, row: &Row, bare: &Row, target: &str) {
    let (nanos, over) = (row.nanos, row.nanos - bare.nanos);
    let extra = row.allocations - bare.allocations;
    println!("{name:<34} {nanos:>8.0} {over:>+8.0} {extra:>6}   {target}");
}

async fn plain(number: u64) -> Result<u64, LockError> {
    Ok(black_box(number) + 1)
}

async fn http(request: Request<()>) -> Result<Response<Empty<Bytes>>, Infallible> {
    black_box(request);
    Ok(Response::new(Empty::new()))
}

/// What routers and layers outside leave on a request: the map of extensions is there already.
fn with_extension() -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(7u8);
    request
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let _entered = runtime.enter();
    let locks = Locks::in_memory();
    let key = LockKey::new("bench").expect("a name");
    println!("{REPETITIONS} repetitions of {CALLS} calls, interleaved; medians in ns");
    println!("{:<34} {:>8} {:>8} {:>6}   target", "", "ns", "over", "allocs");
    any_request(&locks, &key);
    http_requests(&locks, &key);
}

fn any_request(locks: &Locks, key: &LockKey) {
    let taken = key.clone();
    let mut bare = service_fn(plain);
    let mut none = LockLayer::new(locks.clone(), |_: &u64| None::<String>).layer(bare);
    let mut some = LockLayer::new(locks.clone(), move |_: &u64| taken.clone()).layer(bare);
    let mut name = LockLayer::new(locks.clone(), |n: &u64| format!("k:{n}")).layer(bare);
    let rows = measure(&mut [
        &mut || drop(black_box(now(bare.call(1)))),
        &mut || drop(black_box(now(none.call(1)))),
        &mut || {
            let guard = now(locks.lock(key)).expect("free");
            now(guard.release()).expect("held");
        },
        &mut || drop(black_box(now(some.call(1)))),
        &mut || drop(black_box(now(name.call(1)))),
    ]);
    show("bare service", &rows[0], &rows[0], "");
    show("no key", &rows[1], &rows[0], "+60 ns, 0 allocations");
    show("lockcore alone, in memory", &rows[2], &rows[0], "");
    show("locked, in memory", &rows[3], &rows[0], "+5000 ns, 10 allocations");
    show("  the layer's part", &rows[3], &rows[2], "");
    show("locked, the key a String", &rows[4], &rows[0], "");
}

fn http_requests(locks: &Locks, key: &LockKey) {
    let taken = key.clone();
    let (mut bare, mut other) = (service_fn(http), service_fn(http));
    let none = HttpLockLayer::new(locks.clone(), |_: &Request<()>| None::<String>);
    let mut none = none.layer(bare);
    let some = HttpLockLayer::new(locks.clone(), move |_: &Request<()>| taken.clone());
    let (mut some, mut several) = (some.layer(bare), some.layer(bare));
    let rows = measure(&mut [
        &mut || drop(black_box(now(bare.call(Request::new(()))))),
        &mut || drop(black_box(now(none.call(Request::new(()))))),
        &mut || drop(black_box(now(some.call(Request::new(()))))),
        &mut || drop(black_box(now(other.call(with_extension())))),
        &mut || drop(black_box(now(several.call(with_extension())))),
    ]);
    show("bare HTTP service", &rows[0], &rows[0], "");
    show("HTTP, no key", &rows[1], &rows[0], "+60 ns, 0 allocations");
    show("HTTP, locked", &rows[2], &rows[0], "");
    show("HTTP, locked, with extensions", &rows[4], &rows[3], "+5000 ns, 10 allocations");
}
