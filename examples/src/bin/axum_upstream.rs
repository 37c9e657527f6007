//! `cargo run -p lock-examples --bin axum_upstream`: a slow upstream with streamed responses, and a
//! limit of concurrent calls per tenant, by plan.
//!
//! Then run several at once: `curl -N -H 'x-tenant: acme' 'localhost:3000/words?count=10'`. A
//! paying tenant (with a name starting with `a`) may have two streams at a time, any other tenant
//! one. Further requests wait for a second and then receive 429.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::stream;
use lock_axum::{HttpLockLayer, Locks};
use lock_tower::ByExtension;
use serde::Deserialize;
use tokio::net::TcpListener;

/// An authenticated client, whose plan limits the number of concurrent streams.
#[derive(Clone)]
struct Tenant {
    name: String,
    /// How many concurrent streams the tenant's plan allows.
    streams: u32,
}

/// Replace this with authentication that looks up the tenant's plan.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let name = request.headers().get("x-tenant").and_then(|name| name.to_str().ok());
    let name = name.ok_or(StatusCode::UNAUTHORIZED)?.to_owned();
    let streams = if name.starts_with('a') { 2 } else { 1 };
    request.extensions_mut().insert(Tenant { name, streams });
    Ok(next.run(request).await)
}

#[derive(Deserialize)]
struct Wish {
    count: u32,
}

/// Responds at once with a stream of words. The permit is held until the last word was sent.
async fn words(
    State(upstream): State<Upstream>,
    Extension(tenant): Extension<Tenant>,
    Query(wish): Query<Wish>,
) -> Body {
    let call = upstream.open(tenant.name);
    let words = stream::unfold((call, 0), move |(call, word)| async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let line = format!("word {word}, {} at the upstream\n", call.at_once());
        (word < wish.count).then_some((Ok::<_, Infallible>(line), (call, word + 1)))
    });
    Body::from_stream(words)
}

/// The number of open calls of each tenant. Replace this with your upstream.
#[derive(Clone, Default)]
struct Upstream(Arc<Mutex<HashMap<String, u32>>>);

/// An open call to the upstream, closed on drop.
struct Call {
    upstream: Upstream,
    tenant: String,
}

impl Upstream {
    fn open(&self, tenant: String) -> Call {
        self.count(&tenant, |count| *count += 1);
        Call { upstream: self.clone(), tenant }
    }

    fn count<T>(&self, tenant: &str, look: impl FnOnce(&mut u32) -> T) -> T {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        look(calls.entry(tenant.to_owned()).or_default())
    }
}

impl Call {
    fn at_once(&self) -> u32 {
        self.upstream.count(&self.tenant, |count| *count)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.upstream.count(&self.tenant, |count| *count -= 1);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("example").in_memory()?; // or .connect("redis://127.0.0.1/").await?
    let key = ByExtension::new(|tenant: &Tenant| format!("words:{}", tenant.name));
    let limit =
        |request: &Request| request.extensions().get().map_or(1, |tenant: &Tenant| tenant.streams);
    let permits = HttpLockLayer::permits(locks, key, limit)
        .wait(Duration::from_secs(1))
        .max_hold(Duration::from_secs(60)); // even if the client stops reading
    let app = Router::new()
        .route("/words", get(words).route_layer(permits))
        .layer(from_fn(authenticate))
        .with_state(Upstream::default());

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
