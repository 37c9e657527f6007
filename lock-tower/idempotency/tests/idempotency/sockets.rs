//! The layer behind real sockets, on HTTP/1 and HTTP/2.

use std::convert::Infallible;

use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use lock_idempotency::{IdempotencyLayer, MemoryReplays};
use lock_tests::http::{AnyBody, Client, Multiplexed, gate, serve, serve_http2};
use lock_tests::{LIMIT, eventually};
use lockcore::Locks;
use tower::{ServiceBuilder, service_fn};

use crate::support::{by_user, paid, payment};

const HEADERS: &str = "x-user: ada\r\nidempotency-key: a1\r\ncontent-length: 4\r\n";

#[tokio::test]
async fn on_http1_a_client_that_hangs_up_finds_its_answer_and_a_waiting_one_leaves_the_line() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let paid = paid(gate);
    let layer = IdempotencyLayer::new(locks.clone(), MemoryReplays::new(), by_user);
    let handler = service_fn(move |request| paid(request).map(Ok::<_, Infallible>));
    let address = serve(ServiceBuilder::new().layer(layer).service(handler)).await;
    let send = async || {
        let mut client = Client::send(address, "POST /payments", HEADERS).await;
        client.write("500c").await;
        client
    };
    let first = send().await;
    keeper.entered().await;
    let (gone, second) = (send().await, send().await);
    let waiting = async |number| {
        eventually("so many wait", LIMIT, || async { locks.status().waiting == number }).await;
    };
    waiting(2).await;
    drop((first, gone));
    waiting(1).await;
    keeper.let_one_on();
    let second = second.answer().await;
    assert_eq!((second.status, second.body.as_str()), (200, "paid"));
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    assert_eq!(second.header("content-length"), Some("4"));
    assert!(keeper.is_alone(), "the handler ran once");
}

#[tokio::test]
async fn on_http2_requests_of_one_connection_wait_for_each_other() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let paid = paid(gate);
    let layer = IdempotencyLayer::new(locks.clone(), MemoryReplays::new(), by_user);
    let handler = service_fn(move |request| paid(request).map(Ok::<_, Infallible>));
    let address = serve_http2(ServiceBuilder::new().layer(layer).service(handler)).await;
    let mut sender = Multiplexed::sender::<AnyBody>(address).await;
    let mut send = || {
        let mut request = payment("a1");
        *request.uri_mut() = format!("http://{address}/payments").parse().unwrap();
        tokio::spawn(sender.send_request(request))
    };
    let first = send();
    keeper.entered().await;
    let rest = [send(), send(), send()];
    eventually("the others wait", LIMIT, || async { locks.status().waiting == 3 }).await;
    // A reset stream does not stop the handler.
    first.abort();
    keeper.let_one_on();
    for response in rest {
        let response = response.await.unwrap().unwrap();
        assert_eq!(response.headers()["idempotency-replayed"], "true");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "paid");
    }
    assert!(keeper.is_alone(), "the handler ran once");
}
