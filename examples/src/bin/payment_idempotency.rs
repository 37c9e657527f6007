//! `cargo run -p lock-examples --bin payment_idempotency`: a payment that is sent twice waits, and
//! gets the first answer.
//!
//! Then, twice at once: `curl -i -H 'idempotency-key: a1' --json '{"cents": 500}'
//! localhost:3000/accounts/7/payments`.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use lock_tower::{DetachLayer, HttpLockLayer, KeyError, LockHandle, canonical_path};
use lockcore::{FencingToken, Locks};
use serde::Deserialize;
use tokio::net::TcpListener;
use tower::ServiceBuilder;

const KEY: &str = "idempotency-key";
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

#[derive(Clone, Deserialize, PartialEq)]
struct Payment {
    cents: i64,
}

/// Stands for your database.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Tables>>);

#[derive(Default)]
struct Tables {
    charged: HashMap<u64, i64>,
    /// By account and key: what was asked, and what was answered. To be kept for as long as clients
    /// may try again.
    answers: HashMap<(u64, String), (Payment, String)>,
}

/// One lock for each attempt to pay: the account is in it, so that no client can meet another's
/// key.
fn attempt(request: &Request) -> Result<String, KeyError> {
    let path = canonical_path(request.uri().path())?;
    Ok(format!("payment:{path}:{}", key(request.headers())?))
}

fn key(headers: &HeaderMap) -> Result<&str, KeyError> {
    let key = headers.get(KEY).and_then(|key| key.to_str().ok());
    key.ok_or_else(|| KeyError::new("the header idempotency-key is missing or not ASCII"))
}

async fn pay(
    Path(account): Path<u64>,
    State(ledger): State<Ledger>,
    Extension(lock): Extension<LockHandle>,
    headers: HeaderMap,
    Json(payment): Json<Payment>,
) -> Result<([(HeaderName, &'static str); 1], String), StatusCode> {
    let key = key(&headers).map_err(|_| StatusCode::BAD_REQUEST)?.to_owned();
    // Under the lock: the same attempt, if it was sent before, has its answer by now.
    match ledger.tables().answers.get(&(account, key.clone())) {
        Some((asked, _)) if *asked != payment => return Err(StatusCode::UNPROCESSABLE_ENTITY),
        Some((_, answer)) => return Ok(([(REPLAYED, "true")], answer.clone())),
        None => {}
    }
    let token = lock.fencing_token();
    let answer = ledger.charge(account, &key, &payment, token).await;
    Ok(([(REPLAYED, "false")], answer))
}

async fn charged(Path(account): Path<u64>, State(ledger): State<Ledger>) -> String {
    ledger.tables().charged.get(&account).copied().unwrap_or(0).to_string()
}

impl Ledger {
    /// The key goes along to the bank: if this process dies before the answer is stored, the bank
    /// knows the next attempt.
    async fn charge(
        &self,
        account: u64,
        key: &str,
        payment: &Payment,
        token: FencingToken,
    ) -> String {
        tokio::time::sleep(Duration::from_secs(2)).await; // the bank
        let answer = format!("charged {} cents under token {token}\n", payment.cents);
        let mut tables = self.tables();
        *tables.charged.entry(account).or_default() += payment.cents;
        tables.answers.insert((account, key.to_owned()), (payment.clone(), answer.clone()));
        answer
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("bank").in_memory(); // or .connect("redis://127.0.0.1/").await?
    // First the lock; then a payment that finishes even if its client hangs up, so that the next
    // attempt finds its answer.
    let stack = ServiceBuilder::new()
        .layer(HttpLockLayer::new(locks, attempt).wait(Duration::from_secs(10)))
        .layer(DetachLayer::new());
    let app = Router::new()
        .route("/accounts/{account}/payments", post(pay).route_layer(stack))
        .route("/accounts/{account}", get(charged))
        .with_state(Ledger::default());

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
