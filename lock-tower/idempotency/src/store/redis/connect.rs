//! The connection that all operations of a store share, opened by a pool of any kind.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use deadpool::managed::{Manager, Object, Pool};
use redis::aio::ConnectionLike;
use tokio::sync::Mutex;

use crate::store::error::StoreError;

/// The shared connection, lent to one operation. An operation that fails passes `number` to
/// [`give_up`](Connect::give_up), so that the next operation opens a new connection.
pub(crate) struct Lent {
    pub(crate) connection: Box<dyn ConnectionLike + Send>,
    /// The number of the connection, by which [`give_up`](Connect::give_up) recognizes it. Each new
    /// connection has a higher number, so a late failure of an old connection is ignored.
    pub(crate) number: u64,
    /// True if the connection was opened for this operation. Only on an older connection a failed
    /// operation is tried again, because the server may have closed that connection unnoticed.
    pub(crate) is_new: bool,
}

pub(crate) type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<Lent, StoreError>> + Send + 'a>>;

/// Opens and replaces the connection that all operations of a store share. It is a trait, so that
/// the store's type does not depend on the type of the pool.
pub(crate) trait Connect: Send + Sync {
    /// Returns the shared connection. Opens a new connection if there is none, or if the last was
    /// given up. Fails if the new connection cannot be opened.
    fn connect(&self) -> Connecting<'_>;

    /// Makes the next operation open a new connection, because an operation failed on the
    /// connection with this number.
    fn give_up(&self, number: u64);
}

/// A [`Connect`] that opens the connection with a pool's manager. The connection takes no pool
/// slot, and is not checked before each operation, because the check would cost a round trip.
pub(crate) struct PoolConnect<M: Manager, W: From<Object<M>>> {
    pool: Pool<M, W>,
    /// The open connection and the connection's number. `None` before the first operation.
    open: Mutex<Option<(M::Type, u64)>>,
    /// The highest connection number that was given up. A connection with a higher number is still
    /// usable.
    given_up: AtomicU64,
}

impl<M: Manager, W: From<Object<M>>> PoolConnect<M, W> {
    pub(crate) fn new(pool: Pool<M, W>) -> Self {
        Self { pool, open: Mutex::new(None), given_up: AtomicU64::new(0) }
    }
}

impl<M, W> Connect for PoolConnect<M, W>
where
    M: Manager<Type: ConnectionLike + Clone + Send + 'static, Error: fmt::Display> + 'static,
    W: From<Object<M>> + Send + 'static,
{
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            // Operations that arrive while the connection is being opened wait for it.
            let mut open = self.open.lock().await;
            let given_up = self.given_up.load(Ordering::SeqCst);
            if let Some((connection, number)) = &*open
                && *number > given_up
            {
                let connection = Box::new(connection.clone());
                return Ok(Lent { connection, number: *number, is_new: false });
            }
            let opened = self.pool.manager().create().await;
            let connection = opened.map_err(StoreError::unavailable)?;
            let number = given_up + 1;
            *open = Some((connection.clone(), number));
            Ok(Lent { connection: Box::new(connection), number, is_new: true })
        })
    }

    fn give_up(&self, number: u64) {
        self.given_up.fetch_max(number, Ordering::SeqCst);
    }
}
