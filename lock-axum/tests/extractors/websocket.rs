//! A lock that is held as long as a WebSocket is open.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::any;
use futures_util::{SinkExt as _, StreamExt as _};
use lock_axum::{LockScopeLayer, Locked, Locks, OwnedLock};
use lock_tests::{free, is_held, queued};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::support::{ByOrder, serve};

/// Sends each message back, until the client closes the socket or disappears.
async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Message::Text(_)) && socket.send(message).await.is_err() {
            break;
        }
    }
}

async fn owned(order: OwnedLock<ByOrder>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async move |socket| {
        echo(socket).await;
        order.release().await.unwrap();
    })
}

async fn scoped(_: Locked<ByOrder>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(echo)
}

async fn start(locks: &Locks) -> SocketAddr {
    let app = Router::new()
        .route("/owned/{id}", any(owned))
        .route("/scoped/{id}", any(scoped))
        .layer(LockScopeLayer::new(locks.clone()));
    serve(app).await
}

async fn connect(address: SocketAddr, path: &str) -> WebSocketStream<MaybeTlsStream<TcpStream>> {
    let (mut socket, _) = connect_async(format!("ws://{address}{path}")).await.unwrap();
    socket.send(tungstenite::Message::text("hello")).await.unwrap();
    let echoed = socket.next().await.unwrap().unwrap();
    assert_eq!(echoed.into_text().unwrap().as_str(), "hello");
    socket
}

#[tokio::test]
async fn an_owned_lock_lasts_as_long_as_the_sockets_task() {
    let locks = Locks::in_memory();
    let address = start(&locks).await;
    let mut socket = connect(address, "/owned/7").await;
    assert!(is_held(&locks, "order:7").await);
    let next = tokio::spawn(async move { connect(address, "/owned/7").await });
    queued(&locks, "order:7", 1).await; // the next client has no 101 yet
    socket.close(None).await.unwrap();
    let next = next.await.unwrap();
    assert!(is_held(&locks, "order:7").await);
    drop(next); // a client that vanishes without closing
    free(&locks, "order:7").await;
}

#[tokio::test]
async fn a_lock_of_the_scope_ends_with_the_101() {
    let locks = Locks::in_memory();
    let address = start(&locks).await;
    let _socket = connect(address, "/scoped/7").await;
    assert!(!is_held(&locks, "order:7").await);
}
