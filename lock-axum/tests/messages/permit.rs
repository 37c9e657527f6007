use axum::{Router, routing::post};
use lock_axum::{HttpLockLayer, Locks, by_path};

fn main() {
    let layer = HttpLockLayer::permits(Locks::in_memory(), by_path(), "10");
    let _: Router = Router::new().route("/", post(async || "paid")).layer(layer);
}
