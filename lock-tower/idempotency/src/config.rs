//! The settings of a layer, shared by its services.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Response, request, response};
use lock_tower::LockScopeLayer;
use tokio::time::timeout;

use crate::board::Board;
use crate::collect::CollectBounds;
use crate::meaning::Meaning;
use crate::read::ReadBounds;
use crate::refusal::Refusal;
use crate::scope::Scope;
use crate::store::ReplayStore;
use crate::store::error::StoreError;
use crate::unanswered::OnUnanswered;

pub(crate) type ScopeOf = dyn Fn(&request::Parts) -> Result<Scope, Refusal> + Send + Sync;
pub(crate) type MeaningOf = dyn Fn(&response::Parts) -> Meaning + Send + Sync;
pub(crate) type Responds = dyn Fn(&Refusal) -> Response<Bytes> + Send + Sync;

/// The settings of an [`IdempotencyLayer`](crate::IdempotencyLayer), shared by the requests of a
/// service. The methods of the layer set and describe them.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) locking: LockScopeLayer,
    pub(crate) store: Arc<dyn ReplayStore>,
    pub(crate) board: Arc<Board>,
    pub(crate) scope: Arc<ScopeOf>,
    /// The namespace of the locks; `None` if none is set. It is hashed into each record name, so
    /// that services with a shared store and different namespaces have separate records.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) methods: Vec<Method>,
    pub(crate) header: HeaderName,
    pub(crate) is_required: bool,
    pub(crate) is_strict: bool,
    pub(crate) read: ReadBounds,
    pub(crate) collect: CollectBounds,
    pub(crate) meaning: Arc<MeaningOf>,
    pub(crate) expiry: Duration,
    pub(crate) max_run: Duration,
    pub(crate) store_within: Duration,
    pub(crate) on_unanswered: OnUnanswered,
    pub(crate) responds: Arc<Responds>,
}

impl Config {
    /// Waits for the store operation `step`. If it takes longer than `store_within`, drops it and
    /// returns an error of kind `Unavailable`.
    pub(crate) async fn within<T>(
        &self,
        step: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match timeout(self.store_within, step).await {
            Ok(result) => result,
            Err(_) => {
                let within = self.store_within;
                Err(StoreError::unavailable(format_args!("no reply within {within:?}")))
            }
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("locking", &self.locking)
            .field("store", &self.store)
            .field("methods", &self.methods)
            .field("header", &self.header)
            .field("is_required", &self.is_required)
            .field("is_strict", &self.is_strict)
            .field("read", &self.read)
            .field("collect", &self.collect)
            .field("expiry", &self.expiry)
            .field("max_run", &self.max_run)
            .field("on_unanswered", &self.on_unanswered)
            .finish_non_exhaustive()
    }
}
