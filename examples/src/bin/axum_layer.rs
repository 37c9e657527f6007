//! `cargo run -p lock-examples --bin axum_layer`: an axum route that serves one request per path at
//! a time.
//!
//! Then run this twice at once: `curl -X POST localhost:3000/orders/42/pay`. Other orders do not
//! wait.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use axum::routing::{get, post};
use axum::{Extension, Router};
use lock_axum::{Cause, DetachLayer, HttpLockLayer, LockHandle, Locks, by_path};
use tokio::net::TcpListener;
use tower::ServiceBuilder;

async fn pay(Extension(lock): Extension<LockHandle>) -> String {
    tokio::time::sleep(Duration::from_secs(2)).await; // the payment
    format!("paid under token {}\n", lock.fencing_token())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("example").in_memory()?; // or .connect("redis://127.0.0.1/").await?
    let layer = HttpLockLayer::new(locks.clone(), by_path())
        .wait(Duration::from_secs(5))
        .queue_limit(10)
        .status(Cause::Busy, axum::http::StatusCode::CONFLICT);
    // First the lock, then a payment that finishes even if the client disconnects.
    let stack = ServiceBuilder::new().layer(layer).layer(DetachLayer::new());
    let app = Router::new()
        .route("/orders/{id}/pay", post(pay).route_layer(stack))
        .route("/", get(async || "POST /orders/{id}/pay\n"));

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(interrupted()).await?;
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

async fn interrupted() {
    let _ = tokio::signal::ctrl_c().await;
}
