//! Several locks in one request: shared locks, their order, and tuples.

use std::time::Duration;

use axum::extract::{FromRequestParts, Path};
use axum::routing::any;
use axum::{Extension, Json, Router};
use http::request::Parts;
use lock_axum::{
    HttpLockLayer, Keys, LockHandle, LockScopeLayer, Lockable, Locked, LockedBody, Locks,
    OwnedLock, by_path, lock_by,
};
use lock_tests::http::gate;
use lock_tests::{free, is_held, queued};

use crate::support::{ask, get, post, send};

/// `First` is locked by the first name in the route, and `Second` by the second name.
struct First(String);
struct Second(String);

async fn names<S: Send + Sync>(parts: &mut Parts, state: &S) -> (String, String) {
    let Path(names) = Path::from_request_parts(parts, state).await.unwrap();
    names
}

impl<S: Send + Sync> FromRequestParts<S> for First {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(names(parts, state).await.0))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Second {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(names(parts, state).await.1))
    }
}

impl Lockable for First {
    fn lock_key(&self) -> Keys {
        Keys::one(&self.0)
    }
}

impl Lockable for Second {
    fn lock_key(&self) -> Keys {
        Keys::one(&self.0)
    }
}

/// Creates a layer whose requests do not wait, so that a request that conflicts with its own lock
/// is refused.
fn layer(locks: &Locks) -> LockScopeLayer {
    LockScopeLayer::new(locks.clone()).wait(Duration::ZERO)
}

fn token<K: Lockable>(lock: &Locked<K>) -> u64 {
    lock.fencing_token().get()
}

#[tokio::test]
async fn the_same_key_twice_in_one_request_is_one_hold() {
    let locks = Locks::in_memory();
    let two = async |one: Locked<First>, two: Locked<Second>| {
        assert_eq!(token(&one), token(&two));
    };
    let then_body = async |one: Locked<First>, two: LockedBody<Second, Json<u64>>| {
        assert_eq!(token(&one), token(&two.lock));
    };
    let then_owned = async |one: Locked<First>, two: OwnedLock<Second>| {
        assert_eq!(one.fencing_token(), two.fencing_token());
    };
    let within = async |both: LockedBody<First, LockedBody<Second, Json<u64>>>| {
        assert_eq!(token(&both.lock), token(&both.body.lock));
    };
    let app = Router::new()
        .route("/two/{a}/{b}", any(two))
        .route("/body/{a}/{b}", any(then_body))
        .route("/owned/{a}/{b}", any(then_owned))
        .route("/within/{a}/{b}", any(within))
        .route(
            "/tuple/{a}/{b}",
            any(async |both: Locked<(First, Second)>| assert_eq!(both.handles().len(), 1)),
        )
        .layer(layer(&locks));
    for kind in ["two", "body", "owned", "within", "tuple"] {
        assert_eq!(ask(&app, post(&format!("/{kind}/x/x"), "1")).await.status, 200, "{kind}");
        free(&locks, "x").await;
    }
}

#[tokio::test]
async fn a_layer_and_an_extractor_share_a_hold() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let handler = async move |lock: Locked<axum::extract::OriginalUri>| {
        let outer_token = lock.handle().outer().map(|outer| outer.fencing_token());
        assert_eq!(outer_token, Some(lock.fencing_token()));
        gate.pass().await;
    };
    let app = Router::new()
        .route("/orders/{id}", any(handler))
        .layer(HttpLockLayer::new(locks.clone(), by_path()))
        .layer(layer(&locks));
    let first = send(&app, get("/orders/7"));
    keeper.entered().await;
    let next = tokio::spawn(locks.lock("/orders/7"));
    queued(&locks, "/orders/7", 1).await;
    keeper.let_one_on();
    assert_eq!(first.await.unwrap().status, 200);
    drop(next.await.unwrap());
    free(&locks, "/orders/7").await;
}

#[tokio::test]
async fn arguments_are_locked_in_their_order_and_a_tuple_in_the_order_of_the_names() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let [one, other] = [(); 2].map(|()| gate.clone());
    let app = Router::new()
        .route(
            "/arguments/{a}/{b}",
            any(async move |_: Locked<First>, _: Locked<Second>| one.pass().await),
        )
        .route("/tuple/{a}/{b}", any(async move |_: Locked<(First, Second)>| other.pass().await))
        .layer(LockScopeLayer::new(locks.clone()));
    for (kind, first_asked, second_asked) in [("arguments", "z", "a"), ("tuple", "a", "z")] {
        let guard = locks.lock(second_asked).await.unwrap();
        let answer = send(&app, get(&format!("/{kind}/z/a")));
        queued(&locks, second_asked, 1).await;
        assert!(is_held(&locks, first_asked).await, "{kind}");
        drop(guard);
        keeper.entered().await;
        assert!(is_held(&locks, "a").await && is_held(&locks, "z").await);
        keeper.let_one_on();
        assert_eq!(answer.await.unwrap().status, 200);
        assert!(!is_held(&locks, "a").await && !is_held(&locks, "z").await, "both are given back");
    }
}

#[tokio::test]
async fn two_handlers_that_take_a_tuple_the_other_way_round_never_deadlock() {
    let locks = Locks::in_memory();
    let app = Router::new()
        .route(
            "/one/{a}/{b}",
            any(async |_: Locked<(First, Second)>| tokio::task::yield_now().await),
        )
        .route(
            "/other/{a}/{b}",
            any(async |_: Locked<(Second, First)>| tokio::task::yield_now().await),
        )
        .layer(LockScopeLayer::new(locks.clone()).wait_forever());
    let requests = (0..200).map(|number| match number % 4 {
        0 => "/one/a/b",
        1 => "/other/a/b",
        2 => "/one/b/a",
        _ => "/other/b/a",
    });
    let answers: Vec<_> = requests.map(|path| send(&app, get(path))).collect();
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, 200); // within the limit of `ask`
    }
    free(&locks, "a").await;
    free(&locks, "b").await;
}

#[tokio::test]
async fn a_tuple_of_sources_gives_each_of_them_and_a_token_for_each_lock() {
    let both = async |both: Locked<(First, Second)>| {
        let (First(first), Second(second)) = both.source();
        let tokens: Vec<_> = both.handles().iter().map(|handle| handle.fencing_token()).collect();
        assert!(tokens.len() == 2 && tokens[0] != tokens[1]);
        let names: Vec<_> = both.handles().iter().map(|handle| handle.key()).collect();
        format!("{first}{second}:{}", names.concat())
    };
    let app = Router::new().route("/{a}/{b}", any(both)).layer(layer(&Locks::in_memory()));
    assert_eq!(ask(&app, get("/z/a")).await.body, "za:az");
}

/// An account, locked exclusively, beside a rate that is read and a permit: the first name in the
/// route names the permit, and the second the rate.
struct Mixed(String, String);

impl<S: Send + Sync> FromRequestParts<S> for Mixed {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let (permit, read) = names(parts, state).await;
        Ok(Self(permit, read))
    }
}

impl Lockable for Mixed {
    fn lock_key(&self) -> Keys {
        let Self(permit, read) = self;
        Keys::one("m").join(Keys::one(permit).permits(1, 10)).join(Keys::one(read).read())
    }
}

// Once, the name that sorts last decided: beside a permit for "smtp", the token was 0.
#[tokio::test]
async fn the_handle_and_the_token_are_of_the_exclusive_lock_whatever_the_names_are() {
    let of_handle = async |lock: Locked<Mixed>| {
        assert_eq!(lock.fencing_token(), lock.handle().fencing_token());
        lock.handle().key().into_owned()
    };
    let of_guards = async |lock: OwnedLock<Mixed>| {
        let last = lock.guards().last().unwrap();
        assert_eq!(lock.fencing_token(), last.fencing_token());
        last.key().into_owned()
    };
    let by_layer = async |Extension(lock): Extension<LockHandle>| lock.key().into_owned();
    let by_extractor =
        async |_: Locked<Mixed>, Extension(lock): Extension<LockHandle>| lock.key().into_owned();
    let key = lock_by(|mixed: Mixed| mixed.lock_key());
    let app = Router::new()
        .route("/handle/{permit}/{read}", any(of_handle))
        .route("/guards/{permit}/{read}", any(of_guards))
        .route("/layer/{permit}/{read}", any(by_layer).layer(key))
        .route("/extractor/{permit}/{read}", any(by_extractor))
        .layer(layer(&Locks::in_memory()));
    for kind in ["handle", "guards", "layer", "extractor"] {
        for names in ["a/b", "b/a", "y/z", "z/y", "a/z", "z/a"] {
            assert_eq!(
                ask(&app, get(&format!("/{kind}/{names}"))).await.body,
                "m",
                "{kind} {names}"
            );
        }
    }
}

#[tokio::test]
async fn what_was_released_early_is_not_shared_but_acquired_again() {
    let locks = Locks::in_memory();
    let handler = async |one: Locked<First>, request: axum::extract::Request| {
        one.release().await.unwrap();
        let again = lock_tower::RequestLocks::of(request.extensions()).unwrap();
        let again = again.lock(Keys::one("x")).await.unwrap();
        assert!(again[0].fencing_token() > one.fencing_token());
        assert!(one.is_lost() && !again[0].is_lost());
    };
    let app = Router::new().route("/{a}/{b}", any(handler)).layer(layer(&locks));
    assert_eq!(ask(&app, get("/x/x")).await.status, 200);
    free(&locks, "x").await;
}
