//! `cargo run -p lock-examples --bin axum_documents`: documents with many concurrent readers or a
//! single writer, in order of arrival.
//!
//! Then run as many of these in parallel as you like: `curl localhost:3000/documents/7` and `curl
//! -X PUT -d words localhost:3000/documents/7`. With a Redis URL as the second argument, several of
//! these servers share the locks; the texts are each server's own.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use lock_axum::{
    FencingToken, Keys, LockScopeLayer, Lockable, LockedBody, Locks, OnLost, ReadLocked, mode,
};
use serde::Deserialize;
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct Document {
    id: u64,
}

impl Lockable for Document {
    fn lock_key(&self) -> Keys {
        format!("doc:{}", self.id).into()
    }
}

/// Reads the document. Other requests may read it at the same time, but not write it.
async fn show(
    document: ReadLocked<Path<Document>>,
    State(files): State<Files>,
) -> Result<String, StatusCode> {
    files.read(document.id, document.fencing_token()).await
}

/// Writes the document. The body is read before the lock is acquired, so that a slow upload does
/// not block readers. The write is detached, so that a disconnect does not leave it half done.
async fn replace(
    State(files): State<Files>,
    LockedBody { lock, body }: LockedBody<Path<Document>, String, mode::Write>,
) -> axum::response::Result<String> {
    let (id, token) = (lock.id, lock.fencing_token());
    lock.detach(async move { files.write(id, token, &body).await }).await??;
    Ok(format!("written under token {token}\n"))
}

/// The texts of the documents, in this process alone. Replace this with your storage, shared by all
/// servers. A text has two halves, written in sequence: a read during a write would see half of the
/// old text.
#[derive(Clone, Default)]
struct Files(Arc<Mutex<HashMap<u64, Text>>>);
/// The highest token of the readers and writers so far, and the halves.
type Text = (Option<FencingToken>, [String; 2]);

impl Files {
    async fn read(&self, id: u64, token: FencingToken) -> Result<String, StatusCode> {
        println!("reads {id}");
        let head = self.access(id, token, |[head, _]| head.clone())?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let tail = self.access(id, token, |[_, tail]| tail.clone())?;
        println!("has read {id}");
        Ok(format!("{head}{tail}\n"))
    }

    async fn write(&self, id: u64, token: FencingToken, text: &str) -> Result<(), StatusCode> {
        println!("writes {id}");
        let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        let (first, second) = text.split_at(half);
        self.access(id, token, |[head, _]| first.clone_into(head))?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.access(id, token, |[_, tail]| second.clone_into(tail))?;
        println!("has written {id}");
        Ok(())
    }

    /// Runs the action, unless a later holder has come. The first access of a holder raises the
    /// token; each further access compares it.
    fn access<T>(
        &self,
        id: u64,
        token: FencingToken,
        action: impl FnOnce(&mut [String; 2]) -> T,
    ) -> Result<T, StatusCode> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (highest, halves) = files.entry(id).or_default();
        if *highest > Some(token) {
            return Err(StatusCode::CONFLICT); // the lease of this request is over
        }
        *highest = Some(token);
        Ok(action(halves))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let locks = Locks::builder().namespace("example");
    let locks = match arguments.next() {
        Some(url) => locks.connect(url).await?,
        None => locks.in_memory()?,
    };
    let app = Router::new()
        .route("/documents/{id}", get(show).put(replace))
        .layer(LockScopeLayer::new(locks).on_lost(OnLost::Continue)) // the tokens decide
        .with_state(Files::default());

    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
