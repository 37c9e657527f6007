//! `cargo run -p lock-examples --bin axum_streaming`: an export generated line by line under the
//! lock.
//!
//! Then run this twice at once: `curl -N localhost:3000/exports/march`. The second starts after the
//! first has received the last line.
#![allow(clippy::print_stdout)]

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use futures_util::stream;
use lock_axum::{Keys, LockScopeLayer, Lockable, Locked, Locks};
use tokio::net::TcpListener;

#[derive(serde::Deserialize)]
struct Export {
    month: String,
}

impl Lockable for Export {
    fn lock_key(&self) -> Keys {
        format!("export:{}", self.month).into()
    }
}

/// Responds at once. The body is generated afterwards, while the lock is held.
async fn export(export: Locked<Path<Export>>) -> Body {
    let token = export.fencing_token();
    Body::from_stream(stream::unfold(1, move |line| async move {
        if line > 5 {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        Some((Ok::<_, Infallible>(format!("line {line} under token {token}\n")), line + 1))
    }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("example").in_memory()?; // or .connect("redis://127.0.0.1/").await?
    let layer =
        LockScopeLayer::new(locks).hold_until_body_end(true).max_hold(Duration::from_secs(20)); // even if the client stops reading
    let app = Router::new().route("/exports/{month}", get(export)).layer(layer);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
