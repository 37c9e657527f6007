//! `cargo run -p lock-examples --bin webhook_orders`: webhooks of one order are handled one at a
//! time; a busy one gets 409.
//!
//! Then, in two terminals: `curl -i --json '{"id": "e1", "order": 42, "version": 1}'
//! localhost:3000/webhooks`.
#![allow(clippy::print_stdout)]

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::{Extensions, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use lock_axum::{Cause, FencingToken, Keys, LockError, LockScopeLayer, Locks, RequestLocks};
use serde::Deserialize;
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct Event {
    /// The sender's own name of it: the same when it is sent again.
    id: String,
    order: u64,
    version: u64,
}

/// Stands for your database.
#[derive(Clone, Default)]
struct Orders(Arc<Mutex<Tables>>);

#[derive(Default)]
struct Tables {
    handled: HashSet<String>,
    orders: HashMap<u64, (FencingToken, u64)>,
}

async fn webhook(
    State(orders): State<Orders>,
    extensions: Extensions,
    Json(event): Json<Event>,
) -> Result<Response, LockError> {
    // The layer keeps the lock until the answer is sent; the key was in the body.
    let order = Keys::one(format!("order:{}", event.order)).label(event.id.as_str());
    let locked = RequestLocks::of(&extensions)?.lock(order).await?;
    // Under the lock: a copy of this event that came at the same time is handled by now.
    if let Some(nothing_to_do) = orders.seen(&event) {
        return Ok(nothing_to_do.into_response());
    }
    tokio::time::sleep(Duration::from_secs(3)).await; // the warehouse, the mail
    let token = locked[0].fencing_token();
    Ok(match orders.apply(&event, token) {
        Ok(()) => format!("version {} under token {token}\n", event.version).into_response(),
        Err(later) => (StatusCode::CONFLICT, later).into_response(),
    })
}

impl Orders {
    /// The lock keeps the order of arrival. Whether that is the sender's order only the version
    /// tells.
    fn seen(&self, event: &Event) -> Option<&'static str> {
        let tables = self.tables();
        if tables.handled.contains(&event.id) {
            return Some("handled before\n");
        }
        let newer =
            tables.orders.get(&event.order).is_some_and(|(_, version)| *version >= event.version);
        newer.then_some("older than what is known\n")
    }

    /// Both tables in one transaction, unless a later holder of the order has written.
    fn apply(&self, event: &Event, token: FencingToken) -> Result<(), &'static str> {
        let mut tables = self.tables();
        if tables.orders.get(&event.order).is_some_and(|(last, _)| *last > token) {
            return Err("the lease expired, and a later event was handled\n");
        }
        tables.orders.insert(event.order, (token, event.version));
        tables.handled.insert(event.id.clone());
        Ok(())
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("shop").in_memory(); // or .connect("redis://127.0.0.1/").await?
    let layer = LockScopeLayer::new(locks)
        .wait(Duration::from_secs(1)) // with the work's 3 s less than the 5 s for which this sender waits
        .status(Cause::Busy, StatusCode::CONFLICT)
        .status(Cause::QueueFull, StatusCode::CONFLICT);
    let app =
        Router::new().route("/webhooks", post(webhook)).layer(layer).with_state(Orders::default());

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
