//! Stores on Redis, and the keys, requests and store operations of the tests.

use std::time::Duration;

use bytes::Bytes;
use deadpool_redis::{Config, Runtime};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use lock_idempotency::{
    Answer, Fingerprint, Finish, Outcome, RecordKey, RedisReplays, Scope, Start,
};
use lock_tests::RedisServer;
use lockcore::FencingToken;

pub(crate) fn replays(server: &RedisServer) -> RedisReplays {
    replays_at(&server.url())
}

pub(crate) fn replays_at(url: &str) -> RedisReplays {
    let pool = Config::from_url(url).create_pool(Some(Runtime::Tokio1)).unwrap();
    RedisReplays::new(pool).prefix("shop:replay")
}

pub(crate) fn key(key: &str) -> RecordKey {
    RecordKey::new(&Scope::new("ada"), key)
}

pub(crate) fn token(token: u64) -> FencingToken {
    token.try_into().unwrap()
}

pub(crate) fn payment(key: &str) -> Request<Full<Bytes>> {
    Request::post("/payments").header("idempotency-key", key).body("500 cents".into()).unwrap()
}

pub(crate) fn fingerprint(body: &[u8]) -> Fingerprint {
    Fingerprint::new(&payment("a1").into_parts().0, body)
}

pub(crate) fn start(number: u64, takes_over: bool) -> Start {
    let fingerprint = fingerprint(b"500 cents");
    let mut start = Start::new(fingerprint, token(number), Duration::from_secs(60));
    start.takes_over = takes_over;
    start
}

pub(crate) fn finish(number: u64, body: &'static str) -> Finish {
    let (parts, ()) = Response::builder().header("link", "l").body(()).unwrap().into_parts();
    let outcome = Outcome::Kept(Answer::new(&parts, body.into()));
    Finish::new(token(number), outcome, Duration::from_secs(90))
}

pub(crate) async fn text<B>(response: Response<B>) -> (u16, String, bool)
where
    B: http_body::Body<Data: Send, Error: std::fmt::Debug>,
{
    let is_replayed = response.headers().contains_key("idempotency-replayed");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap(), is_replayed)
}
