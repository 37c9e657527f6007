use axum::{Router, routing::post};
use lock_axum::lock_by;

fn main() {
    let pay = post(async || "paid").route_layer(lock_by("order"));
    let _: Router = Router::new().route("/{id}", pay);
}
