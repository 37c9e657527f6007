//! `cargo run -p lock-examples --bin axum_documents`: documents with many concurrent readers or a
//! single writer, in order of arrival.
//!
//! Then run as many of these in parallel as you like: `curl localhost:3000/documents/7` and `curl
//! -X PUT -d words localhost:3000/documents/7`. With a Redis URL as the second argument, several of
//! these servers share the documents.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use lock_axum::{Keys, LockScopeLayer, Lockable, LockedBody, Locks, ReadLocked, mode};
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
async fn show(document: ReadLocked<Path<Document>>, State(files): State<Files>) -> String {
    files.read(document.id).await
}

/// Writes the document. The body is read before the lock is acquired, so that a slow upload does
/// not block readers.
async fn replace(
    State(files): State<Files>,
    put: LockedBody<Path<Document>, String, mode::Write>,
) -> String {
    files.write(put.lock.id, &put.body).await;
    format!("written under token {}\n", put.lock.fencing_token())
}

/// The texts of the documents. Replace this with your storage. A document has two halves, written
/// in sequence: a read during a write would see half of the old text.
#[derive(Clone, Default)]
struct Files(Arc<Mutex<HashMap<(u64, bool), String>>>);

impl Files {
    async fn read(&self, id: u64) -> String {
        println!("reads {id}");
        let head = self.get((id, false));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let tail = self.get((id, true));
        println!("has read {id}");
        format!("{head}{tail}\n")
    }

    async fn write(&self, id: u64, text: &str) {
        println!("writes {id}");
        let half = text.chars().count() / 2;
        self.set((id, false), text.chars().take(half).collect());
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.set((id, true), text.chars().skip(half).collect());
        println!("has written {id}");
    }

    fn get(&self, half: (u64, bool)) -> String {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(&half).cloned().unwrap_or_default()
    }

    fn set(&self, half: (u64, bool), text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(half, text);
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
        .layer(LockScopeLayer::new(locks))
        .with_state(Files::default());

    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
