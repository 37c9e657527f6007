use axum::{Router, routing::post};
use lock_axum::{Locks, PermitLayer, by_path};

fn main() {
    let layer = PermitLayer::new(Locks::in_memory(), by_path(), "10");
    let _: Router = Router::new().route("/", post(async || "paid")).layer(layer);
}
