//! A payment whose response is stored in the booking transaction, on PostgreSQL:
//!
//! ```sh
//! cargo run -p lock-idempotency --example transaction 127.0.0.1:3000 REDIS_URL POSTGRES_URL
//! # in two terminals at the same time:
//! curl -i -H 'idempotency-key: a1' -d 500 localhost:3000/accounts/7/payments
//! ```
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

mod replays;
mod service;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [address, redis, postgres] => service::serve(address, redis, postgres).await,
        _ => Err("usage: transaction ADDRESS REDIS_URL POSTGRES_URL".into()),
    }
}
