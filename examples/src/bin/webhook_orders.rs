//! `cargo run -p lock-examples --bin webhook_orders`: webhooks for the same order are handled one
//! at a time; a busy order is refused with 409.
//!
//! Then run this in two terminals: `curl -i --json '{"id": "e1", "order": 42, "version": 1}'
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
    /// The sender's id for the event, unchanged when it is sent again.
    id: String,
    order: u64,
    version: u64,
}

/// The orders, and the ids of the handled events. Replace this with your database.
#[derive(Clone, Default)]
struct Orders(Arc<Mutex<Tables>>);

#[derive(Default)]
struct Tables {
    handled: HashSet<String>,
    orders: HashMap<u64, Order>,
}

#[derive(Default)]
struct Order {
    /// The fencing token of the last hold that has begun. Earlier holds cannot write any more.
    token: Option<FencingToken>,
    version: Option<u64>,
}

type Answer = &'static str;
const OVERTAKEN: Answer = "the lease expired, and a later event is handled\n";

async fn webhook(
    State(orders): State<Orders>,
    extensions: Extensions,
    Json(event): Json<Event>,
) -> Result<Response, LockError> {
    // The layer keeps the lock until the response has been sent; the key was in the body.
    let order = Keys::one(format!("order:{}", event.order)).label(event.id.as_str());
    let token = RequestLocks::of(&extensions)?.lock(order).await?[0].fencing_token();
    // Under the lock, so a concurrent copy of this event has been handled by now.
    match orders.begin(&event, token) {
        Ok(None) => {}
        Ok(Some(nothing_to_do)) => return Ok(nothing_to_do.into_response()),
        Err(later) => return Ok((StatusCode::CONFLICT, later).into_response()),
    }
    tokio::time::sleep(Duration::from_secs(3)).await; // the warehouse, the mail
    Ok(match orders.apply(&event, token) {
        Ok(()) => format!("version {} under token {token}\n", event.version).into_response(),
        Err(later) => (StatusCode::CONFLICT, later).into_response(),
    })
}

impl Orders {
    /// Raises the order's token. Returns `Ok(Some)` if the event is already known or outdated.
    fn begin(&self, event: &Event, token: FencingToken) -> Result<Option<Answer>, Answer> {
        let tables = &mut *self.tables(); // one transaction, as in `apply`
        let order = tables.orders.entry(event.order).or_default();
        if order.token >= Some(token) {
            return Err(OVERTAKEN);
        }
        order.token = Some(token);
        if tables.handled.contains(&event.id) {
            return Ok(Some("handled before\n"));
        }
        Ok((order.version >= Some(event.version)).then_some("older than the known version\n"))
    }

    /// Writes both tables, unless a later hold has begun.
    fn apply(&self, event: &Event, token: FencingToken) -> Result<(), Answer> {
        let tables = &mut *self.tables();
        let order = tables.orders.entry(event.order).or_default();
        if order.token != Some(token) {
            return Err(OVERTAKEN);
        }
        order.version = Some(event.version);
        tables.handled.insert(event.id.clone());
        Ok(())
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("shop").in_memory()?; // or .connect("redis://127.0.0.1/").await?
    let layer = LockScopeLayer::new(locks)
        .wait(Duration::from_secs(1)) // plus the 3 s of work, below the sender's timeout of 5 s
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_holders_that_both_read_only_the_later_one_writes() {
        let orders = Orders::default();
        let [earlier, later] = [5, 9].map(|token| FencingToken::try_from(token).expect("small"));
        let event = |id: &str, version| Event { id: id.to_owned(), order: 42, version };
        let old = event("e1", 1);
        let new = event("e2", 2);
        assert_eq!(orders.begin(&new, earlier), Ok(None));
        assert_eq!(orders.begin(&old, later), Ok(None));
        // If this were accepted, version 1 would overwrite version 2.
        assert_eq!(orders.apply(&new, earlier), Err(OVERTAKEN));
        assert_eq!(orders.apply(&old, later), Ok(()));
        assert_eq!(orders.begin(&new, earlier), Err(OVERTAKEN));
        assert_eq!(orders.tables().orders[&42].version, Some(1));
    }
}
