//! `cargo run -p lock-examples --bin payment_idempotency`: a payment that is sent twice waits, and
//! gets the first answer.
//!
//! Then, twice at once: `curl -i -H 'idempotency-key: a1' --json '{"cents": 500}'
//! localhost:3000/accounts/7/payments`.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use lock_axum::{DetachLayer, FencingToken, KeyError, LockHandle, LockScopeLayer, Locks, lock_by};
use serde::Deserialize;
use tokio::net::TcpListener;
use tower::ServiceBuilder;

const KEY: &str = "idempotency-key";

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
    /// The answers, under a unique index. Keep them for as long as clients may try again.
    answers: HashMap<Attempt, Stored>,
}

type Attempt = (u64, String); // the account and the key
type Stored = (Payment, String); // what was asked and what was answered

/// The lock of an attempt to pay, named by the parsed account: `7` and `07` are one.
fn attempt(Path(account): Path<u64>, headers: HeaderMap) -> Result<String, KeyError> {
    Ok(format!("payment:{account}:{}", key(&headers)?))
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
) -> Result<([(&'static str, String); 1], String), StatusCode> {
    let attempt = (account, key(&headers).map_err(|_| StatusCode::BAD_REQUEST)?.to_owned());
    // Under the lock: the same attempt, if it was sent before, has its answer by now.
    let stored = ledger.tables().answers.get(&attempt).cloned();
    let (replayed, (asked, answer)) = match stored {
        Some(stored) => (true, stored),
        None => ledger.charge(attempt, &payment, lock.fencing_token()).await,
    };
    match asked == payment {
        true => Ok(([("idempotency-replayed", replayed.to_string())], answer)),
        false => Err(StatusCode::UNPROCESSABLE_ENTITY),
    }
}

async fn charged(Path(account): Path<u64>, State(ledger): State<Ledger>) -> String {
    ledger.tables().charged.get(&account).copied().unwrap_or(0).to_string()
}

impl Ledger {
    /// Books, or returns the answer that an earlier attempt booked, and whether there was one. The
    /// bank gets the key, so that it knows the next attempt if this process dies before.
    async fn charge(&self, to: Attempt, payment: &Payment, token: FencingToken) -> (bool, Stored) {
        println!("calls the bank for account {}", to.0);
        tokio::time::sleep(Duration::from_secs(2)).await; // the bank
        let Tables { charged, answers } = &mut *self.tables(); // one transaction
        match answers.entry(to) {
            Entry::Occupied(first) => (true, first.get().clone()),
            Entry::Vacant(free) => {
                *charged.entry(free.key().0).or_default() += payment.cents;
                let answer = format!("charged {} cents under token {token}\n", payment.cents);
                (false, free.insert((payment.clone(), answer)).clone())
            }
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("bank").in_memory(); // or .connect("redis://127.0.0.1/").await?
    // First the lock; then a payment that finishes even if its client hangs up.
    let stack = ServiceBuilder::new()
        .layer(LockScopeLayer::new(locks).wait(Duration::from_secs(10)))
        .layer(lock_by(attempt))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_charges_of_one_key_whose_lock_was_lost_are_booked_once_and_answered_alike() {
        let ledger = Ledger::default();
        let payment = Payment { cents: 500 };
        let charge = |token| {
            let token = FencingToken::try_from(token).expect("it is small");
            ledger.charge((7, "a1".to_owned()), &payment, token)
        };
        let (first, second) = tokio::join!(charge(1), charge(2));
        assert_eq!(ledger.tables().charged[&7], 500);
        assert!(first.0 != second.0, "one is told that it was the second");
        assert!(first.1 == second.1, "{} {}", first.1.1, second.1.1);
    }
}
