//! The connection that all operations of a store share, opened by a pool of any kind.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use deadpool::managed::{Manager, Object, Pool};
use redis::aio::ConnectionLike;
use tokio::sync::Mutex;

use crate::store::error::StoreError;

/// The shared connection, for the use of one operation.
pub(crate) struct Lent {
    pub(crate) connection: Box<dyn ConnectionLike + Send>,
    /// The number of the connection, by which [`give_up`](Connect::give_up) recognizes it. Each new
    /// connection has a higher number.
    pub(crate) number: u64,
    /// Whether the connection was opened for this operation. The server may have closed an older
    /// connection unnoticed.
    pub(crate) is_new: bool,
}

pub(crate) type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<Lent, StoreError>> + Send + 'a>>;

/// The source of the connection shared by all operations.
pub(crate) trait Connect: Send + Sync {
    /// Returns the shared connection. Opens a new connection if there is none, or if the last was
    /// given up.
    fn connect(&self) -> Connecting<'_>;

    /// Makes the next operation open a new connection, because an operation failed on the
    /// connection with this number.
    fn give_up(&self, number: u64);
}

/// The connection opened by a pool's manager. It takes no pool slot, and is not checked before each
/// operation, which would cost a round trip.
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
