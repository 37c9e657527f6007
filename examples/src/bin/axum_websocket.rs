//! `cargo run -p lock-examples --bin axum_websocket`: one editor per document, as long as the
//! socket is open.
//!
//! Then run this in two terminals: `npx wscat -c ws://localhost:3000/documents/7`. The second
//! connects when the first has disconnected, in any way.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::any;
use lock_axum::{Keys, LockScopeLayer, Lockable, Locks, OwnedLock};
use tokio::net::TcpListener;

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

/// Acquires the lock before the upgrade, so that a refusal is an ordinary response.
async fn edit(document: OwnedLock<Path<Document>>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|socket| session(socket, document))
}

/// Serves the socket in a task that outlives the handler, and holds the lock until the socket is
/// closed.
async fn session(mut socket: WebSocket, document: OwnedLock<Path<Document>>) {
    let guard = &document.guards()[0];
    let hello = format!("document {} is yours, token {}", document.id, guard.fencing_token());
    let mut next = Message::text(hello);
    loop {
        if socket.send(next).await.is_err() {
            break; // the client disconnected
        }
        next = tokio::select! {
            () = guard.lost() => break,
            message = socket.recv() => match message {
                Some(Ok(Message::Text(text))) => Message::text(format!("saved {} bytes", text.len())),
                Some(Ok(_)) => ping(),
                Some(Err(_)) | None => break,
            },
            // Detects a client that vanished without closing.
            () = tokio::time::sleep(Duration::from_secs(5)) => ping(),
        };
    }
    let _ = document.release().await;
}

fn ping() -> Message {
    Message::Ping("are you still there?".into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("example").in_memory()?; // or .connect("redis://127.0.0.1/").await?
    let app = Router::new()
        .route("/documents/{id}", any(edit))
        .layer(LockScopeLayer::new(locks).wait(Duration::from_secs(60)));

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
