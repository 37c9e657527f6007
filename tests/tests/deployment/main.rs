//! The start and the shutdown of a service in `docs/deploy.md`, and the leader of
//! `docs/recipes/jobs.md`, run as shown there.
#![allow(clippy::print_stderr, reason = "the page's code prints")]

mod role;
mod starting;

// With the types that the page imports.
include!("serve.rs");

use std::process;

use axum::extract::{Path, State};
use axum::routing::post;
use lock_axum::{Keys, LockScopeLayer, Lockable, Locked};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

#[test]
fn the_pages_show_the_code_that_is_run_here() {
    let page = include_str!("../../../docs/deploy.md");
    assert!(page.contains(include_str!("serve.rs")), "copy the block of the page to serve.rs");
    assert!(page.contains(include_str!("start.rs")), "copy the block of the page to start.rs");
    let page = include_str!("../../../docs/recipes/jobs.md");
    assert!(page.contains(include_str!("lead.rs")), "copy the function of the page to lead.rs");
}

#[derive(serde::Deserialize)]
struct Order {
    id: u64,
}

impl Lockable for Order {
    fn lock_key(&self) -> Keys {
        format!("order:{}", self.id).into()
    }
}

/// Detached work that ends 20 s after SIGTERM.
#[derive(Clone, Default)]
struct Work {
    begun: CancellationToken,
    leaving: CancellationToken,
    done: CancellationToken,
}

async fn pay(order: Locked<Path<Order>>, State(work): State<Work>) {
    let work = async move {
        work.begun.cancel();
        work.leaving.cancelled().await;
        sleep(Duration::from_secs(20)).await;
        work.done.cancel();
    };
    order.detach(work).await.expect("it is not stopped");
}

#[tokio::test(start_paused = true)]
async fn detached_work_whose_client_has_left_ends_within_the_shutdown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let locks = Locks::in_memory();
    let work = Work::default();
    let app = Router::new()
        .route("/orders/{id}/pay", post(pay))
        .with_state(work.clone())
        .layer(LockScopeLayer::new(locks.clone()));
    on_terminate(work.leaving.clone()).expect("a handler of the signal");
    let service = tokio::spawn(serve(listener, app, locks, work.leaving.clone()));

    let mut client = TcpStream::connect(address).await.expect("it listens");
    let request = b"POST /orders/42/pay HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    client.write_all(request).await.expect("it reads");
    work.begun.cancelled().await;
    drop(client);
    lock_tests::signal::terminate(process::id());
    service.await.expect("no panic").expect("no error");
    assert!(work.done.is_cancelled(), "the work was cut off");
}
