//! A payment that a client may send twice:
//!
//! ```sh
//! cargo run -p lock-idempotency --example payments                          # in memory
//! REDIS_URL=redis://127.0.0.1/ cargo run -p lock-idempotency --example payments
//! # in two terminals at the same time: the second waits, and receives the first response
//! curl -i -H 'x-user: ada' -H 'idempotency-key: a1' -d '500 cents' localhost:3000/payments
//! ```
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::{Router, routing::post};
use lock_idempotency::{IdempotencyLayer, MemoryReplays, RedisReplays, Refusal, Scope};
use lockcore::Locks;

/// Charges a card. It takes 5 s, to leave time to send the second request.
async fn pay(amount: String) -> (StatusCode, String) {
    static PAYMENTS: AtomicU64 = AtomicU64::new(1);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let number = PAYMENTS.fetch_add(1, Ordering::Relaxed);
    println!("charged {amount}");
    (StatusCode::CREATED, format!("payment {number}: {amount}\n"))
}

/// Returns the user in the header `x-user` as the scope of the request, so that no user receives
/// another user's response. A request without a user is refused with 401. A real service takes the
/// user from authentication, not from a header.
fn user(parts: &Parts) -> Result<Scope, Refusal> {
    let user = |headers: &HeaderMap| Some(headers.get("x-user")?.to_str().ok()?.to_owned());
    let user = user(&parts.headers).filter(|user| !user.is_empty());
    user.map(Scope::new).ok_or_else(|| Refusal::scope(StatusCode::UNAUTHORIZED, "Log in first."))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (locks, layer) = match std::env::var("REDIS_URL") {
        Ok(url) => {
            let locks = Locks::builder().namespace("shop").connect(&url).await?;
            let pool = deadpool_redis::Config::from_url(&url)
                .create_pool(Some(deadpool_redis::Runtime::Tokio1))?;
            let replays = RedisReplays::new(pool).prefix("shop:replay");
            (locks.clone(), IdempotencyLayer::new(locks, replays, user))
        }
        Err(_) => {
            let locks = Locks::in_memory();
            (locks.clone(), IdempotencyLayer::new(locks, MemoryReplays::new(), user))
        }
    };
    let app = Router::new().route("/payments", post(pay).route_layer(layer.required(true)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on {}", listener.local_addr()?);
    let interrupted = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    axum::serve(listener, app).with_graceful_shutdown(interrupted).await?;
    // Handlers whose clients have disconnected finish first.
    locks.shutdown(Duration::from_secs(10)).await;
    Ok(())
}
