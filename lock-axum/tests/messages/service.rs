use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use lock_axum::{HttpLockLayer, Locks, by_path};
use tower::{Layer, Service};

#[derive(Clone)]
struct App;

impl Service<Request> for App {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        ready(Ok(Response::default()))
    }
}

fn main() {
    let locked = HttpLockLayer::new(Locks::in_memory(), by_path()).layer(App);
    let _: Router = Router::new().fallback_service(locked);
}
