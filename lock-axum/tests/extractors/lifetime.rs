//! How long the lock is held, for each way to write a handler.

use axum::extract::State;
use axum::routing::any;
use axum::{Router, response::IntoResponse};
use lock_axum::{LockScopeLayer, Locked, Locks, OwnedLock};
use lock_tests::http::{Gate, Keeper, gate};
use lock_tests::{free, is_held, queued};

use crate::support::{Answer, ByOrder, ask, get, send, serve};

async fn unused(_: Locked<ByOrder>, State(gate): State<Gate>) {
    gate.pass().await;
}

async fn dropped(order: Locked<ByOrder>, State(gate): State<Gate>) {
    drop(order);
    gate.pass().await;
}

async fn taken_apart(order: Locked<ByOrder>, State(gate): State<Gate>) {
    let _id = order.into_source().0.id;
    gate.pass().await;
}

/// Creates a router with a route for each way to write a handler. Each handler waits at the gate.
fn app(locks: &Locks) -> (Router, Keeper) {
    let (gate, keeper) = gate();
    let [closure, used, in_async, owned] = [(); 4].map(|()| gate.clone());
    let app = Router::new()
        .route("/unused/{id}", any(unused))
        .route("/dropped/{id}", any(dropped))
        .route("/taken-apart/{id}", any(taken_apart))
        .route("/closure/{id}", any(|_: Locked<ByOrder>| async move { closure.pass().await }))
        .route(
            "/closure-that-uses/{id}",
            any(|order: Locked<ByOrder>| async move {
                used.pass().await;
                order.id.to_string()
            }),
        )
        .route("/async-closure/{id}", any(async move |_: Locked<ByOrder>| in_async.pass().await))
        .route(
            "/owned-in-closure/{id}",
            any(|_: OwnedLock<ByOrder>| async move { owned.pass().await }),
        )
        .layer(LockScopeLayer::new(locks.clone()))
        .with_state(gate);
    (app, keeper)
}

#[tokio::test]
async fn every_kind_of_handler_runs_under_its_lock_until_it_has_answered() {
    let kinds =
        ["unused", "dropped", "taken-apart", "closure", "closure-that-uses", "async-closure"];
    for kind in kinds {
        let locks = Locks::in_memory();
        let (app, mut keeper) = app(&locks);
        let path = format!("/{kind}/7");
        let first = send(&app, get(&path));
        keeper.entered().await;
        assert!(is_held(&locks, "order:7").await, "{kind}: the handler runs without the lock");
        let second = send(&app, get(&path));
        queued(&locks, "order:7", 1).await;
        assert!(keeper.is_alone(), "{kind}");
        keeper.let_one_on();
        assert_eq!(first.await.unwrap().status, 200);
        keeper.entered().await;
        keeper.let_one_on();
        assert_eq!(second.await.unwrap().status, 200);
        free(&locks, "order:7").await;
    }
}

/// A guard in a closure's argument is dropped early: this is how `Locked` would fail if it owned
/// its guard.
#[tokio::test]
async fn a_closure_drops_the_guard_that_it_does_not_use_before_its_body_runs() {
    let locks = Locks::in_memory();
    let (app, mut keeper) = app(&locks);
    let answer = send(&app, get("/owned-in-closure/7"));
    keeper.entered().await;
    free(&locks, "order:7").await; // the handler still runs
    assert!(!keeper.has_finished());
    keeper.let_one_on();
    answer.await.unwrap();
}

#[tokio::test]
async fn the_lock_is_free_when_the_answer_is_there() {
    let locks = Locks::in_memory();
    let (app, keeper) = app(&locks);
    for _ in 0..20 {
        keeper.let_one_on();
        assert_eq!(ask(&app, get("/closure/7")).await.status, 200);
        assert!(!is_held(&locks, "order:7").await, "a client's next request met its own lock");
    }
}

#[tokio::test]
async fn a_panic_in_the_handler_frees_the_lock() {
    let locks = Locks::in_memory();
    let panics = |order: Locked<ByOrder>| async move {
        assert_ne!(order.id, 7, "on purpose");
    };
    let app = Router::new()
        .route("/{id}", any(panics))
        .layer(LockScopeLayer::new(locks.clone()).hold_until_body_end(true));
    send(&app, get("/7")).await.unwrap_err();
    free(&locks, "order:7").await;
    let address = serve(app.clone()).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(format!("http://{address}/7")).send().await.unwrap_err();
    free(&locks, "order:7").await;
    assert_eq!(ask(&app, get("/8")).await.status, 200);
}

#[tokio::test]
async fn the_lock_lasts_while_the_answer_is_made_into_a_response() {
    /// A response that checks whether the lock is still held when axum builds the response.
    struct Late(Locks, tokio::runtime::Handle);

    impl IntoResponse for Late {
        fn into_response(self) -> axum::response::Response {
            let Self(locks, runtime) = self;
            let held = std::thread::spawn(move || runtime.block_on(is_held(&locks, "order:7")));
            held.join().unwrap().to_string().into_response()
        }
    }

    let locks = Locks::in_memory();
    let inner = locks.clone();
    let handler =
        |_: Locked<ByOrder>| async move { Late(inner, tokio::runtime::Handle::current()) };
    let app = Router::new().route("/{id}", any(handler)).layer(LockScopeLayer::new(locks.clone()));
    let Answer { body, .. } = ask(&app, get("/7")).await;
    assert_eq!(body, "true");
}

#[tokio::test]
async fn a_handler_sees_its_token_and_its_deadline() {
    let locks = Locks::in_memory();
    let handler = async |order: Locked<ByOrder>| {
        assert!(order.deadline() > tokio::time::Instant::now());
        assert!(!order.is_lost());
        assert_eq!((order.handles().len(), &*order.handle().key()), (1, "order:7"));
        order.fencing_token().to_string()
    };
    let app = Router::new().route("/{id}", any(handler)).layer(LockScopeLayer::new(locks));
    let [first, second] = [ask(&app, get("/7")).await.body, ask(&app, get("/7")).await.body];
    assert!(first.parse::<u64>().unwrap() < second.parse::<u64>().unwrap(), "{first}, {second}");
}
