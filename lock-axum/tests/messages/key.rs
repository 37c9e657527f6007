use axum::extract::Request;
use axum::{Router, routing::post};
use lock_axum::{HttpLockLayer, Locks};

fn main() {
    let layer = HttpLockLayer::new(Locks::in_memory(), |_: &Request| 42_u64);
    let _: Router = Router::new().route("/", post(async || "paid")).layer(layer);
}
