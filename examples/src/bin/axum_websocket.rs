//! `cargo run -p lock-examples --bin axum_websocket`: one editor per document, as long as the
//! socket is open.
//!
//! Then run this in two terminals: `npx wscat -c ws://localhost:3000/documents/7`. The second
//! connects when the first has disconnected, or has vanished: a client that answers no ping loses
//! the document after 10 s. The optional second argument replaces the 5 s until a ping.
#![allow(clippy::print_stdout)]

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::any;
use axum::{BoxError, Router};
use lock_axum::{Keys, LockScopeLayer, Lockable, Locks, OwnedLock};
use tokio::net::TcpListener;
use tokio::time::timeout;

#[derive(serde::Deserialize)]
struct Document {
    id: u64,
}

impl Lockable for Document {
    fn lock_key(&self) -> Keys {
        // A human waits: at most one editor may queue, a third is refused at once.
        Keys::one(format!("document:{}", self.id)).queue_limit(1)
    }
}

/// How long a client may be silent: then it is pinged, and after the same time again it counts as
/// vanished.
#[derive(Clone, Copy)]
struct Silence(Duration);

/// Acquires the lock before the upgrade, so that a refusal is an ordinary response.
async fn edit(
    State(silence): State<Silence>,
    document: OwnedLock<Path<Document>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.on_upgrade(move |socket| session(socket, document, silence))
}

/// Serves the socket in a task that outlives the handler, and holds the lock until the client
/// disconnects or vanishes, or the lock is lost.
async fn session(mut socket: WebSocket, document: OwnedLock<Path<Document>>, silence: Silence) {
    let guard = &document.guards()[0];
    let hello = format!("document {} is yours, token {}", document.id, guard.fencing_token());
    tokio::select! {
        () = guard.lost() => {}
        _ = converse(&mut socket, hello, silence) => {}
    }
    let _ = document.release().await;
}

/// Answers the client's messages until the client disconnects or vanishes.
async fn converse(
    socket: &mut WebSocket,
    hello: String,
    Silence(silence): Silence,
) -> Result<Infallible, BoxError> {
    // A client that reads nothing must not hold up the send for ever.
    let mut next = Some(Message::text(hello));
    let mut is_pinged = false;
    loop {
        if let Some(message) = next.take() {
            timeout(silence, socket.send(message)).await??;
        }
        let message = match timeout(silence, socket.recv()).await {
            Ok(message) => message.ok_or("the client disconnected")??,
            Err(_) if is_pinged => return Err("the client vanished".into()),
            Err(_) => {
                is_pinged = true;
                next = Some(Message::Ping("are you still there?".into()));
                continue;
            }
        };
        // Any message shows that the client is there, such as the pong. Only silence is a reason
        // for a ping: a ping for each pong would be a storm.
        is_pinged = false;
        if let Message::Text(text) = message {
            next = Some(Message::text(format!("saved {} bytes", text.len())));
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("example").in_memory()?; // or .connect("redis://127.0.0.1/").await?
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let silence = arguments.next().map_or(Ok(5), |seconds| seconds.parse())?;
    let layer = LockScopeLayer::new(locks)
        .wait(Duration::from_secs(60))
        .max_hold(Duration::from_secs(3_600)); // even if the editor is left open
    let app = Router::new()
        .route("/documents/{id}", any(edit))
        .layer(layer)
        .with_state(Silence(Duration::from_secs(silence)));

    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
