use axum::{Router, routing::post};
use lock_axum::lock_by;

fn main() {
    let _: Router = Router::new().route("/{id}", post(async || "paid").layer(lock_by("order")));
}
