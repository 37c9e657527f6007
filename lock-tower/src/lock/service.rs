//! The service of `LockLayer`.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower::Service;

use crate::config::Config;
use crate::inner::inner;
use crate::key::ExtractKey;
use crate::lock::carry::CarryHandle;
use crate::lock::future::LockFuture;
use crate::lock::locking::Locking;
use crate::refusal::LockError;

/// A service behind a lock; made by [`LockLayer`](crate::LockLayer).
///
/// This service is always ready. The inner service is made ready *after* the lock is acquired, so
/// that requests waiting for a key take no capacity from the inner service.
pub struct Lock<S, K, C = ()> {
    inner: S,
    config: Arc<Config>,
    key: Arc<K>,
    carry: C,
}

impl<S, K, C> Lock<S, K, C> {
    pub(crate) fn new(inner: S, config: Arc<Config>, key: Arc<K>, carry: C) -> Self {
        Self { inner, config, key, carry }
    }

    inner!();
}

impl<S, K, C, Req> Service<Req> for Lock<S, K, C>
where
    S: Service<Req> + Clone,
    S::Error: From<LockError>,
    K: ExtractKey<Req>,
    C: CarryHandle<Req> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = LockFuture<S, Req, C>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Req) -> Self::Future {
        let keys = self.key.extract_key(&request);
        let carry = self.carry.clone();
        let inner = &mut self.inner;
        let config = &self.config;
        LockFuture::new(Locking::new(inner, request, keys, config, carry, None, |_, _| false))
    }
}

impl<S: Clone, K, C: Clone> Clone for Lock<S, K, C> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            config: Arc::clone(&self.config),
            key: Arc::clone(&self.key),
            carry: self.carry.clone(),
        }
    }
}

impl<S: fmt::Debug, K, C> fmt::Debug for Lock<S, K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("inner", &self.inner)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
