//! The service, which books each payment and its response in a single transaction.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{Response, StatusCode};
use axum::routing::post;
use axum::{Extension, Router};
use lock_idempotency::{Answer, Attempt, IdempotencyLayer, Scope};
use lockcore::Locks;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

use crate::replays::{self, PostgresReplays};

type Database = Arc<Mutex<Client>>; // a pool in a real service

async fn pay(
    Path(account): Path<i64>,
    State(database): State<Database>,
    Extension(attempt): Extension<Attempt>,
    cents: String,
) -> Result<Response<String>, StatusCode> {
    let cents: u32 = cents.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    println!("charging {cents} cents to account {account}");
    tokio::time::sleep(Duration::from_secs(1)).await; // the bank, which receives the key
    let booked = book(&database, &attempt, account, cents).await;
    // If the transaction was committed in spite of the error, its response is stored, and the next
    // request receives it. Otherwise 500 keeps the record of the charge: 503 would mean that
    // nothing was done.
    let booked = booked.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    booked.ok_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Books the payment and stores the response, in one transaction. Returns `Ok(None)`, and does
/// neither, if a later attempt has begun.
async fn book(
    database: &Database,
    attempt: &Attempt,
    account: i64,
    cents: u32,
) -> Result<Option<Response<String>>, tokio_postgres::Error> {
    let (parts, body) = Response::new(format!("charged {cents} cents\n")).into_parts();
    let answer = Answer::new(&parts, body.clone().into());
    let mut client = database.lock().await;
    let work = client.transaction().await?;
    work.execute("INSERT INTO payments VALUES ($1, $2)", &[&account, &i64::from(cents)]).await?;
    if !replays::store(&work, attempt, answer).await? {
        return Ok(None); // dropping the transaction rolls it back
    }
    work.commit().await?;
    Ok(Some(Response::from_parts(parts, body)))
}

pub(crate) async fn serve(
    address: &str,
    redis: &str,
    postgres: &str,
) -> Result<(), Box<dyn Error>> {
    let (client, connection) = tokio_postgres::connect(postgres, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(replays::SCHEMA).await?;
    let payments = "CREATE TABLE IF NOT EXISTS payments (account BIGINT, cents BIGINT)";
    client.batch_execute(payments).await?;
    let database = Arc::new(Mutex::new(client));

    let locks = Locks::builder().namespace("bank").connect(redis).await?;
    let replays = PostgresReplays::new(Arc::clone(&database));
    // A real service takes the scope from authentication.
    let once = IdempotencyLayer::new(locks, replays, |_| Ok(Scope::new("bank"))).required(true);
    let app = Router::new()
        .route("/accounts/{account}/payments", post(pay).route_layer(once))
        .with_state(database);
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
