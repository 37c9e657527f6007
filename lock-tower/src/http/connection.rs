//! Client connections that several requests may share.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use http::{Extensions, Request, Version};
use tower::Service;

use crate::hold::place::{Place, Waiters};

/// The client connection of a request. If it is in the request's extensions, the layers for HTTP
/// limit how many requests on the connection [wait at the same
/// time](crate::HttpLockLayer::waiting_per_connection). Clones refer to the same connection.
///
/// [`PerConnection`] inserts this value for servers that make a service per connection, such as
/// `axum::serve`. If you accept connections yourself, wrap the service of each connection in
/// [`InConnection::new`].
#[derive(Debug, Clone, Default)]
pub struct Connection(Waiters);

impl Connection {
    /// Creates the value for a new connection without waiting requests.
    pub fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }

    /// Returns the connection from the extensions. Returns `None` if no other request shares the
    /// connection, as in HTTP/1, or if the connection is unknown.
    pub(crate) fn of(version: Version, extensions: &Extensions) -> Option<&Self> {
        if version >= Version::HTTP_2 { extensions.get() } else { None }
    }

    /// Returns a [`Place`] for another request on this connection, where at most `limit` requests
    /// may wait.
    pub(crate) fn place(&self, limit: usize) -> Place {
        Place::new(Arc::clone(&self.0), limit)
    }
}

/// Makes a service for each connection, and so puts a [`Connection`] into the extensions of all
/// requests. Give it to a server, such as `axum::serve`.
///
/// ```
/// # use axum::Router;
/// # use lock_tower::http::PerConnection;
/// # async fn example(app: Router) -> std::io::Result<()> {
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
/// axum::serve(listener, PerConnection::new(app)).await
/// # }
/// ```
///
/// Together with axum's `ConnectInfo`, which needs a service per connection as well, use
/// [`InConnection`]:
///
/// ```
/// # use std::net::SocketAddr;
/// # use axum::Router;
/// # use lock_tower::http::InConnection;
/// use tower::util::MapResponse;
/// # async fn example(app: Router, listener: tokio::net::TcpListener) -> std::io::Result<()> {
/// let app = app.into_make_service_with_connect_info::<SocketAddr>();
/// axum::serve(listener, MapResponse::new(app, InConnection::new)).await
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PerConnection<S> {
    inner: S,
}

impl<S> PerConnection<S> {
    /// Creates a value that serves each connection with a clone of `inner`.
    pub fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<S: Clone, T> Service<T> for PerConnection<S> {
    type Response = InConnection<S>;
    type Error = Infallible;
    type Future = Ready<Result<InConnection<S>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: T) -> Self::Future {
        ready(Ok(InConnection::new(self.inner.clone())))
    }
}

/// A service for a single client connection: all requests receive the same [`Connection`] in their
/// extensions. Clones serve the same connection.
#[derive(Debug, Clone)]
pub struct InConnection<S> {
    inner: S,
    connection: Connection,
}

impl<S> InConnection<S> {
    /// Creates a service for a new connection. It passes requests on to `inner`.
    pub fn new(inner: S) -> Self {
        Self { inner, connection: Connection::new() }
    }
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for InConnection<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.extensions_mut().insert(self.connection.clone());
        self.inner.call(request)
    }
}
