//! Connections from a pool of any kind.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use deadpool::managed::{Manager, Object, Pool};
use redis::aio::ConnectionLike;

use crate::store::error::StoreError;

pub(crate) type Connection = Box<dyn ConnectionLike + Send>;

type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Connection, StoreError>> + Send + 'a>>;

/// A source of connections.
pub(crate) trait Connect: Send + Sync {
    fn connect(&self) -> Connecting<'_>;
}

/// A pool.
pub(crate) struct PoolConnect<M: Manager, W: From<Object<M>>>(pub(crate) Pool<M, W>);

impl<M, W> Connect for PoolConnect<M, W>
where
    M: Manager<Error: fmt::Display> + 'static,
    W: From<Object<M>> + ConnectionLike + Send + 'static,
{
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            match self.0.get().await {
                Ok(connection) => Ok(Box::new(connection) as Connection),
                Err(error) => Err(StoreError::unavailable(error)),
            }
        })
    }
}
