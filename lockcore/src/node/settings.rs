//! The settings that a node keeps.

use std::sync::Arc;
use std::time::Duration;

use proto::layout::{Ability, Layout};
use proto::{Label, LockErrorKind};
use tokio::sync::Semaphore;

use crate::types::error::LockError;
use crate::types::options::LockOptions;
use crate::types::trace_links::TraceLinks;

/// The settings of all locks of one `Locks`.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) namespace: Option<Arc<str>>,
    /// The place of its server in the list of a quorum, from 1.
    pub(crate) primary: Option<usize>,
    pub(crate) label: Label,
    /// The class of requests that name none; `default` if it is empty.
    pub(crate) class: Box<str>,
    pub(crate) defaults: LockOptions,
    pub(crate) confirm_grants: bool,
    /// A grant or a renewal counts once so many replicas have it.
    pub(crate) replicas: u32,
    pub(crate) redact_names: bool,
    pub(crate) request_timeout: Duration,
    /// The wait for the store of requests that set none.
    pub(crate) store_wait: Duration,
    pub(crate) layout: &'static dyn Layout,
    /// The most members of a run.
    pub(crate) run_limit: u32,
    pub(crate) trace_links: Option<Arc<dyn TraceLinks>>,
    pub(crate) max_waiting: u32,
    /// The slots of attempts that wait: `max_waiting` of them.
    pub(crate) waiting: Arc<Semaphore>,
}

impl Settings {
    /// Refuses a use that the layout does not have.
    pub(crate) fn can(&self, ability: Ability) -> Result<(), LockError> {
        let refused = |why| Err(LockError::with_detail(LockErrorKind::Unsupported, why));
        self.layout.refuses(ability).map_or(Ok(()), refused)
    }
}
