//! `cargo run -p lock-examples --bin axum_extractor`: handlers that lock an account from the path,
//! or two accounts from the body.
//!
//! Then run `curl localhost:3000/accounts/1` and `curl --json '{"from": 1, "to": 2, "cents": 500}'
//! localhost:3000/transfers`, as often and in parallel as you like.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use lock_axum::{Keys, LockScopeLayer, Lockable, Locked, Locks};
use serde::Deserialize;
use tokio::net::TcpListener;

/// The balance of each account. Replace this with your service. A read and a write take a while, so
/// that without a lock concurrent transfers would overwrite each other's balances.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<HashMap<u64, u64>>>);

#[derive(Deserialize)]
struct Account {
    id: u64,
}

impl Lockable for Account {
    fn lock_key(&self) -> Keys {
        format!("account:{}", self.id).into()
    }
}

async fn balance(account: Locked<Path<Account>>, State(bank): State<Bank>) -> String {
    format!("{} cents, as of token {}\n", bank.get(account.id).await, account.fencing_token())
}

#[derive(Deserialize)]
struct Transfer {
    from: u64,
    to: u64,
    cents: u64,
}

impl Lockable for Transfer {
    /// Returns the keys of both accounts, in any order: opposite transfers do not deadlock.
    fn lock_key(&self) -> Keys {
        Keys::one(format!("account:{}", self.from)).and(format!("account:{}", self.to))
    }
}

async fn transfer(
    State(bank): State<Bank>,
    transfer: Locked<Json<Transfer>>,
) -> axum::response::Result<String> {
    let Transfer { from, to, cents } = **transfer;
    let work = async move {
        let (left, balance) = (bank.get(from).await.checked_sub(cents), bank.get(to).await);
        let left = left.filter(|_| from != to).ok_or(StatusCode::UNPROCESSABLE_ENTITY)?;
        // Both at once: if the lock is lost, the work may end at any await.
        bank.set([(from, left), (to, balance + cents)]).await;
        Ok::<_, StatusCode>(())
    };
    transfer.detach(work).await??; // not stopped by a disconnect
    Ok(format!("done under token {}\n", transfer.fencing_token()))
}

impl Bank {
    async fn get(&self, account: u64) -> u64 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.get(&account).copied().unwrap_or(10_000)
    }

    async fn set(&self, balances: [(u64, u64); 2]) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(balances);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("example").in_memory()?; // or .connect("redis://127.0.0.1/").await?
    let app = Router::new()
        .route("/accounts/{id}", get(balance))
        .route("/transfers", post(transfer))
        .layer(LockScopeLayer::new(locks).wait(Duration::from_secs(5)))
        .with_state(Bank::default());

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
