use axum::{Router, routing::post};
use lock_axum::{HttpLockLayer, Locks};

fn main() {
    let layer = HttpLockLayer::new(Locks::in_memory(), "order:42");
    let _: Router = Router::new().route("/", post(async || "paid")).layer(layer);
}
