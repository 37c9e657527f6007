//! The order in which requests are served.

use lock_tests::queued;
use lockcore::{Locks, MemoryStore};

use crate::support::{job, layer, locked, next, nothing_reaches, send};

#[tokio::test]
async fn the_inner_service_is_not_called_before_the_grant() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    let guard = locks.lock("a").await.unwrap();
    let answer = send(&service, job("a", 1));
    queued(&locks, "a", 1).await;
    nothing_reaches(&mut handle).await;

    guard.release().await.unwrap();
    let (request, respond) = next(&mut handle).await;
    assert_eq!(request.number, 1);
    respond.send_response(7);
    assert_eq!(answer.await.unwrap().unwrap(), 7);
}

#[tokio::test]
async fn requests_of_one_key_are_served_one_at_a_time_in_order_of_arrival() {
    let store = MemoryStore::new();
    serves_in_order([(); 2].map(|()| Locks::builder().on_memory(&store).unwrap())).await;
}

#[tokio::test]
async fn by_a_quorum_requests_are_served_one_at_a_time_in_order_of_arrival() {
    let stores = [(); 3].map(|()| MemoryStore::new());
    serves_in_order([(); 2].map(|()| Locks::builder().on_memory_quorum(&stores).unwrap())).await;
}

async fn serves_in_order(nodes: [Locks; 2]) {
    let (one, mut handle) = locked(layer(&nodes[0]));
    let other = layer(&nodes[1]);
    let other = tower::Layer::layer(&other, one.get_ref().clone()); // one inner service, two processes
    let guard = nodes[0].lock("a").await.unwrap();
    let mut answers = Vec::new();
    for number in 0..20 {
        answers.push(send(if number % 3 == 0 { &one } else { &other }, job("a", number)));
        queued(&nodes[0], "a", number + 1).await;
    }
    drop(guard);
    for number in 0..20 {
        let (request, respond) = next(&mut handle).await;
        assert_eq!(request.number, number);
        nothing_reaches(&mut handle).await;
        respond.send_response(number);
    }
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn another_key_does_not_wait() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    let _first = send(&service, job("a", 1));
    let (_running, _respond) = next(&mut handle).await;
    let _second = send(&service, job("b", 2));
    let (request, _) = next(&mut handle).await;
    assert_eq!(request.number, 2);
}

#[tokio::test]
async fn the_next_request_of_the_same_client_does_not_meet_its_own_lock() {
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks).wait(std::time::Duration::ZERO));
    for number in 0..50 {
        let answer = send(&service, job("a", number));
        next(&mut handle).await.1.send_response(number);
        answer.await.unwrap().expect("the lock was given back before the answer went out");
    }
}
