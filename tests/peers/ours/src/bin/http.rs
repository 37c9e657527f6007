//! `http plain|bare|bare-mutex|memory|layer|extractor ADDRESS`: a handler that responds at once:
//! without a lock, between two bare scripts for its path, the same behind a process-wide mutex, or
//! behind a lock for the path, in memory or on the Redis at that address. The program prints `ready
//! <its address>`, and exits when the input ends.

use std::sync::Arc;

use axum::Router;
use axum::extract::OriginalUri;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use lock_axum::{LockScopeLayer, Locked};
use lock_peer_kit::Peer as _;
use lock_peer_ours::Bare;
use lock_tower::{ByPath, HttpLockLayer};
use lockcore::Locks;
use tokio::net::TcpListener;

const ROUTE: &str = "/orders/{id}";

async fn serve(mode: &str, address: &str) {
    let free = Router::new().route(ROUTE, get(async || "done"));
    let locked = Router::new().route(ROUTE, get(async |_: Locked<OriginalUri>| "done"));
    let bare = async |has_mutex| {
        let bare = Arc::new(Bare::connect(address, has_mutex).await);
        let handler = async move |path: OriginalUri| {
            let hold = bare.take(path.path().to_owned()).await;
            bare.give(hold).await;
            "done"
        };
        Router::new().route(ROUTE, get(handler))
    };
    let redis = async || Locks::connect(address).await.expect("connected");
    let app = match mode {
        "plain" => free,
        "bare" => bare(false).await,
        "bare-mutex" => bare(true).await,
        "memory" => free.layer(HttpLockLayer::new(Locks::in_memory(), ByPath::new())),
        "layer" => free.layer(HttpLockLayer::new(redis().await, ByPath::new())),
        "extractor" => locked.layer(LockScopeLayer::new(redis().await)),
        _ => panic!("usage: http plain|bare|bare-mutex|memory|layer|extractor ADDRESS"),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    println!("ready {}", listener.local_addr().expect("bound"));
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true); // at worst it is slower
    });
    axum::serve(listener, app).await.expect("serves until it is ended");
}

#[tokio::main]
async fn main() {
    std::thread::spawn(|| {
        for _ in std::io::stdin().lines() {}
        std::process::exit(0);
    });
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next();
    let address = arguments.next();
    serve(&mode.unwrap_or_default(), &address.unwrap_or_default()).await;
}
