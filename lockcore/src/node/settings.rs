//! Node settings.

use std::sync::Arc;
use std::time::Duration;

use proto::layout::{Ability, Layout};
use proto::{Label, LockErrorKind};
use tokio::sync::Semaphore;

use crate::store::confirmation::Confirmation;
use crate::types::error::LockError;
use crate::types::options::LockOptions;
use crate::types::trace_links::TraceLinks;

/// The settings for all locks.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) namespace: Option<Arc<str>>,
    /// The server's index in the quorum list, from 1.
    pub(crate) primary: Option<usize>,
    pub(crate) label: Label,
    /// The class of requests without a class; `default` if empty.
    pub(crate) class: Box<str>,
    pub(crate) defaults: LockOptions,
    pub(crate) confirm_grants: bool,
    /// The way in which a grant or a renewal is confirmed before it counts.
    pub(crate) confirmation: Option<Confirmation>,
    pub(crate) redact_names: bool,
    pub(crate) request_timeout: Duration,
    /// The default wait for the store.
    pub(crate) store_wait: Duration,
    pub(crate) layout: &'static dyn Layout,
    /// The maximum batch size.
    pub(crate) run_limit: u32,
    pub(crate) trace_links: Option<Arc<dyn TraceLinks>>,
    pub(crate) max_waiting: u32,
    /// The slots for waiting attempts: `max_waiting` of them.
    pub(crate) waiting: Arc<Semaphore>,
}

impl Settings {
    /// Refuses a feature that the layout lacks.
    pub(crate) fn can(&self, ability: Ability) -> Result<(), LockError> {
        let refused = |why| Err(LockError::with_detail(LockErrorKind::Unsupported, why));
        self.layout.refuses(ability).map_or(Ok(()), refused)
    }
}
