//! The extractors with other lock modes: `ReadLocked`, `WriteLocked`, `PermitLocked`.

use std::time::Duration;

use axum::extract::Path;
use axum::routing::{any, get as route_get};
use axum::{Extension, Router};
use lock_axum::{
    Cause, Keys, Limited, LockError, LockScopeLayer, Lockable, Locked, LockedBody, Locks,
    PermitLocked, ReadLocked, WriteLocked, mode,
};
use lock_tests::http::gate;
use lock_tests::{LIMIT, eventually};
use serde::Deserialize;
use tower::ServiceExt as _;

use crate::support::{ask, get, post, send};

#[derive(Debug, Clone, Deserialize)]
struct Document {
    id: u32,
}

impl Lockable for Document {
    fn lock_key(&self) -> Keys {
        format!("doc:{}", self.id).into()
    }
}

/// The permit limit of a document is its number.
impl Limited for Document {
    fn permit_limit(&self) -> u32 {
        self.id
    }
}

type ByDocument = Path<Document>;

fn layer(locks: &Locks) -> LockScopeLayer {
    LockScopeLayer::new(locks.clone()).wait(Duration::ZERO)
}

async fn waiting(locks: &Locks, key: &str, count: usize) {
    eventually(&format!("{count} wait for {key}"), LIMIT, async || {
        locks.inspect(key).await.unwrap().waiters.len() == count
    })
    .await;
}

#[tokio::test]
async fn two_reads_run_together_and_a_write_waits_for_both_and_keeps_the_next_out() {
    let locks = Locks::in_memory();
    let (reads, mut read_keeper) = gate();
    let (writes, mut write_keeper) = gate();
    let show = {
        let reads = reads.clone();
        async move |document: ReadLocked<ByDocument>| {
            reads.pass().await;
            format!("{} under {}", document.id, document.fencing_token())
        }
    };
    let replace = async move |put: LockedBody<ByDocument, String, mode::Write>| {
        writes.pass().await;
        format!("{} is {:?} under {}", put.lock.id, put.body, put.lock.fencing_token())
    };
    let app = Router::new()
        .route("/{id}", route_get(show).post(replace))
        .layer(LockScopeLayer::new(locks.clone()));
    let one = send(&app, get("/7"));
    let two = send(&app, get("/7"));
    read_keeper.entered().await;
    read_keeper.entered().await;
    let write = send(&app, post("/7", "new"));
    waiting(&locks, "doc:7", 1).await;
    let last = send(&app, get("/7"));
    waiting(&locks, "doc:7", 2).await;
    assert!(write_keeper.is_alone() && read_keeper.is_alone());
    read_keeper.let_one_on();
    read_keeper.finished().await;
    assert!(write_keeper.is_alone(), "the other one still reads");
    read_keeper.let_one_on();
    write_keeper.entered().await;
    assert!(read_keeper.is_alone(), "the last read came after the write");
    write_keeper.let_one_on();
    read_keeper.entered().await;
    read_keeper.let_one_on();
    let one = one.await.unwrap();
    let two = two.await.unwrap();
    assert_eq!((one.status, &one.body), (200, &two.body), "two reads have one token");
    assert!(write.await.unwrap().body.starts_with("7 is \"new\" under"));
    assert_eq!(last.await.unwrap().status, 200);
}

#[tokio::test]
async fn no_more_run_than_a_type_says_and_the_next_gets_429() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let call = async move |document: PermitLocked<ByDocument>| {
        gate.pass().await;
        document.detach(async {}).await?; // the handler methods work under permits, too
        Ok::<_, LockError>(document.is_lost().to_string())
    };
    let app = Router::new().route("/{id}", route_get(call)).layer(layer(&locks));
    let served = [send(&app, get("/2")), send(&app, get("/2"))];
    keeper.entered().await;
    keeper.entered().await;
    let refused = ask(&app, get("/2")).await;
    assert_eq!((refused.status, refused.cause), (429, Some(Cause::LimitReached)));
    assert!(refused.header("retry-after").is_some());
    assert!(refused.body.contains(r#""code":"lock-limit-reached""#), "{}", refused.body);
    let other = send(&app, get("/1"));
    keeper.entered().await;
    (0..3).for_each(|_| keeper.let_one_on());
    for answer in served.into_iter().chain([other]) {
        let answer = answer.await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "false"));
    }
    assert_eq!(ask(&app, get("/0")).await.status, 500, "there are no permits of 0");
    assert_eq!(locks.status().holding, 0);
}

// T3: the status was 423, as if another request held the lock.
#[tokio::test]
async fn permits_that_a_handler_waits_for_in_vain_are_429_through_its_error() {
    let locks = Locks::in_memory();
    let held = locks.permit("smtp", 1).await.unwrap();
    let inner = locks.clone();
    let call = async move || {
        let _permit = inner.key("smtp").wait(Duration::from_millis(10)).permits(1, 1).await?;
        Ok::<_, LockError>(())
    };
    let app = Router::new().route("/", route_get(call)).layer(layer(&locks));
    let refused = ask(&app, get("/")).await;
    assert_eq!((refused.status, refused.cause), (429, Some(Cause::LimitReached)));
    held.release().await.unwrap();
}

#[tokio::test]
async fn without_a_permit_an_optional_argument_is_none() {
    let locks = Locks::in_memory();
    let call = async |document: Option<PermitLocked<ByDocument>>| document.is_some().to_string();
    let app = Router::new().route("/{id}", route_get(call)).layer(layer(&locks));
    assert_eq!(ask(&app, get("/1")).await.body, "true");
    let _all = locks.permit("doc:1", 1).await.unwrap();
    assert_eq!(ask(&app, get("/1")).await.body, "false");
}

#[tokio::test]
async fn a_write_of_what_the_request_reads_is_refused_at_once_and_names_both_forms() {
    let locks = Locks::in_memory();
    let both = async |_: ReadLocked<ByDocument>, _: WriteLocked<ByDocument>| "never";
    let app = Router::new()
        .route("/{id}", any(both))
        .layer(LockScopeLayer::new(locks.clone()).wait_forever());
    let answer = tokio::time::timeout(LIMIT, app.oneshot(get("/7"))).await.expect("at once");
    let response = answer.unwrap();
    assert_eq!(response.status(), 500);
    let error = response.extensions().get::<LockError>().unwrap();
    let clash = error.as_clash().expect("it names the two forms").to_string();
    assert!(clash.contains("as a read and as a lock:"), "{clash}");
    assert_eq!(locks.status().holding, 0);
}

#[tokio::test]
async fn a_write_covers_a_read_of_the_same_request() {
    let locks = Locks::in_memory();
    let both = async |one: WriteLocked<ByDocument>, two: ReadLocked<ByDocument>| {
        (one.fencing_token() == two.fencing_token()).to_string()
    };
    let app = Router::new().route("/{id}", any(both)).layer(layer(&locks));
    assert_eq!(ask(&app, get("/7")).await.body, "true");
}

#[tokio::test]
async fn a_type_that_says_its_form_itself_has_it_in_a_plain_argument_and_no_other_in_others() {
    /// A type whose key is a read lock.
    #[derive(Deserialize)]
    struct Rates {
        _id: u32,
    }

    impl Lockable for Rates {
        fn lock_key(&self) -> Keys {
            Keys::one("rates").read()
        }
    }

    let locks = Locks::in_memory();
    let _read = locks.read("rates").await.unwrap();
    let app = Router::new()
        .route("/plain/{_id}", any(async |_: Locked<Path<Rates>>| "read"))
        .route("/read/{_id}", any(async |_: ReadLocked<Path<Rates>>| "read"))
        .route("/write/{_id}", any(async |_: WriteLocked<Path<Rates>>| "written"))
        .layer(layer(&locks));
    assert_eq!(ask(&app, get("/plain/1")).await.body, "read");
    assert_eq!(ask(&app, get("/read/1")).await.body, "read");
    assert_eq!(ask(&app, get("/write/1")).await.status, 500, "it says two things of one name");
}

#[tokio::test]
async fn a_limit_comes_from_what_an_outer_layer_has_found() {
    let locks = Locks::in_memory();
    let call = async |plan: PermitLocked<Extension<Document>>| plan.permit_limit().to_string();
    let app = Router::new()
        .route("/", route_get(call))
        .layer(layer(&locks))
        .layer(Extension(Document { id: 3 }));
    let _two = locks.key("doc:3").permits(2, 3).await.unwrap();
    assert_eq!(ask(&app, get("/")).await.body, "3");
    let _third = locks.permit("doc:3", 3).await.unwrap();
    assert_eq!(ask(&app, get("/")).await.status, 429);
}
