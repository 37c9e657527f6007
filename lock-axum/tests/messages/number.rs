use axum::{Router, extract::Path, routing::post};
use lock_axum::Locked;

async fn pay(_: Locked<Path<u64>>) {}

fn main() {
    let _: Router = Router::new().route("/{id}", post(pay));
}
