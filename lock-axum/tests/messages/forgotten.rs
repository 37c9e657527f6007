use axum::{Router, extract::Path, routing::post};
use lock_axum::Locked;

struct Order {
    _id: u64,
}

async fn pay(_: Locked<Path<Order>>) {}

fn main() {
    let _: Router = Router::new().route("/{id}", post(pay));
}
