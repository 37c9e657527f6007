//! Two layers on one request.

use http::{Request, Response};
use http_body_util::Empty;
use lock_tower::http::InExtensions;
use lock_tower::{Cause, ExtractKey, HttpLockLayer, KeyError, Keys, LockHandle, LockLayer, OnLost};
use lockcore::{FencingToken, Locks};
use tower::{BoxError, Layer as _, ServiceBuilder, ServiceExt as _, service_fn};

type Body = Empty<bytes::Bytes>;

/// An extractor of one name for all request types.
struct Named(&'static str);

impl<B> ExtractKey<Request<B>> for Named {
    fn extract_key(&self, _: &Request<B>) -> Result<Option<Keys>, KeyError> {
        Ok(Some(Keys::one(self.0)))
    }
}

#[tokio::test]
async fn a_second_layer_on_the_same_key_shares_the_hold() {
    let locks = Locks::in_memory();
    let by = |name: &'static str| {
        HttpLockLayer::new(locks.clone(), Named(name)).wait(std::time::Duration::ZERO)
    };
    let inner = locks.clone();
    // The inner layer for "a" finds the lock of the outer layer for "a", although the layer for "b"
    // is in between.
    let service = ServiceBuilder::new().layer(by("a")).layer(by("b")).layer(by("a")).service(
        service_fn(move |request: Request<_>| {
            let locks = inner.clone();
            async move {
                let lock = request.extensions().get::<LockHandle>().unwrap();
                assert_eq!([lock.key(), lock.outer().unwrap().key()], ["a", "b"]);
                let outermost = lock.outer().unwrap().outer().unwrap();
                assert_eq!(lock.fencing_token(), outermost.fencing_token());
                assert_eq!(locks.status().holding, 2);
                Ok::<_, BoxError>(Response::new(Body::new()))
            }
        }),
    );
    let response = service.oneshot(Request::new(String::new())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(locks.status().holding, 0);
    assert!(locks.try_lock("a").await.unwrap().is_some());
}

#[tokio::test]
async fn the_extension_is_of_the_exclusive_lock_and_leads_to_the_reads_and_permits() {
    for (permit, read) in [("a", "b"), ("z", "y"), ("y", "z"), ("a", "z")] {
        let key = move |_: &Request<String>| {
            Keys::one("m").join(Keys::one(permit).permits(1, 10)).join(Keys::one(read).read())
        };
        let layer = HttpLockLayer::new(Locks::in_memory(), key);
        let service = layer.layer(service_fn(move |request: Request<_>| async move {
            let lock = request.extensions().get::<LockHandle>().unwrap();
            let [second, third] = [lock.outer().unwrap(), lock.outer().unwrap().outer().unwrap()];
            assert_eq!([lock.key(), second.key(), third.key()], ["m", read, permit]);
            assert!(third.outer().is_none() && third.fencing_token() == FencingToken::NONE);
            Ok::<_, BoxError>(Response::new(Body::new()))
        }));
        service.oneshot(Request::new(String::new())).await.unwrap();
    }
}

#[tokio::test]
async fn a_layer_on_other_locks_does_not_share() {
    let one = Locks::in_memory();
    let other = Locks::in_memory();
    let by = |locks: &Locks| HttpLockLayer::new(locks.clone(), Named("a"));
    let inner = other.clone();
    let service = ServiceBuilder::new().layer(by(&one)).layer(by(&other)).service(service_fn(
        move |_: Request<_>| {
            let other = inner.clone();
            async move {
                assert!(other.try_lock("a").await.unwrap().is_none());
                Ok::<_, BoxError>(Response::new(Body::new()))
            }
        },
    ));
    service.oneshot(Request::new(String::new())).await.unwrap();
}

#[tokio::test]
async fn a_handle_can_prolong_the_hold_beyond_the_response() {
    let locks = Locks::in_memory();
    let layer = LockLayer::new(locks.clone(), |_: &Request<String>| "a").carry(InExtensions);
    let service = layer.layer(service_fn(|request: Request<_>| async move {
        let lock = request.extensions().get::<LockHandle>().unwrap().clone();
        let guard = lock.reenter()?;
        Ok::<_, BoxError>((lock, guard))
    }));
    let (lock, guard) = service.oneshot(Request::new(String::new())).await.unwrap();
    assert!(locks.try_lock("a").await.unwrap().is_none());
    assert!(lock.is_lost(), "the layer has given its part back");
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    assert!(locks.try_lock("a").await.unwrap().is_some());
}

#[tokio::test]
async fn the_release_of_a_lost_lock_reports_the_loss_although_an_outer_layer_shares_the_lock() {
    let locks = Locks::in_memory();
    let by_name = || HttpLockLayer::new(locks.clone(), Named("a")).on_lost(OnLost::Continue);
    let inner = locks.clone();
    let service = ServiceBuilder::new().layer(by_name()).layer(by_name()).service(service_fn(
        move |request: Request<_>| {
            let locks = inner.clone();
            async move {
                let lock = request.extensions().get::<LockHandle>().unwrap();
                locks.force_release("a").await.unwrap();
                lock.lost().await;
                assert_eq!(lock.release().await.unwrap_err().cause(), Cause::Lost);
                Ok::<_, BoxError>(Response::new(Body::new()))
            }
        },
    ));
    let response = service.oneshot(Request::new(String::new())).await.unwrap();
    assert_eq!(response.status(), 200);
}
