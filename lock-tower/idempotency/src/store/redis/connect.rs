//! The connection to the server, by a pool of any kind.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use deadpool::managed::{Manager, Object, Pool};
use redis::aio::ConnectionLike;
use tokio::sync::Mutex;

use crate::store::error::StoreError;

/// A connection that is lent for one step.
pub(crate) struct Lent {
    pub(crate) connection: Box<dyn ConnectionLike + Send>,
    /// The number of the connection, by which it is given up.
    pub(crate) number: u64,
    /// Whether it was opened for this step. An older one may have ended unnoticed.
    pub(crate) is_new: bool,
}

pub(crate) type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<Lent, StoreError>> + Send + 'a>>;

/// A source of one connection, which all steps share.
pub(crate) trait Connect: Send + Sync {
    /// Lends the connection, and opens it if there is none.
    fn connect(&self) -> Connecting<'_>;

    /// Has the next step open another connection than this one.
    fn give_up(&self, number: u64);
}

/// The connection that the manager of a pool opens: it takes no slot of the pool, and needs no
/// check before each step, which would be a round trip.
pub(crate) struct PoolConnect<M: Manager, W: From<Object<M>>> {
    pool: Pool<M, W>,
    /// The connection, and its number.
    open: Mutex<Option<(M::Type, u64)>>,
    /// The number of the last connection that was given up.
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
            // Steps that come while it is opened wait for it.
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
