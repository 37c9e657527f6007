//! Node settings.

use std::sync::Arc;
use std::time::Duration;

use proto::layout::{Ability, Layout};
use proto::{Label, LockErrorKind};

use super::WaitLimit;
use crate::store::confirmation::Confirmation;
use crate::types::error::LockError;
use crate::types::options::LockOptions;
use crate::types::trace_links::TraceLinks;

/// The settings of a node, for all its locks.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) namespace: Option<Arc<str>>,
    /// The server's index in the quorum list, from 1; `None` outside a quorum.
    pub(crate) primary: Option<usize>,
    pub(crate) label: Label,
    /// Name of the class for requests whose caller names no class; `default` if empty.
    pub(crate) class: Box<str>,
    pub(crate) defaults: LockOptions,
    pub(crate) confirm_grants: bool,
    /// How a grant or a renewal is confirmed before the node relies on it; `None` if the server's
    /// reply suffices.
    pub(crate) confirmation: Option<Confirmation>,
    pub(crate) redact_names: bool,
    pub(crate) request_timeout: Duration,
    /// The longest time that a request waits for an unreachable store. A request may set another
    /// time.
    pub(crate) store_wait: Duration,
    pub(crate) layout: &'static dyn Layout,
    /// Maximum number of consecutive waiters that are granted a lock as one hold.
    pub(crate) batch_limit: u32,
    pub(crate) trace_links: Option<Arc<dyn TraceLinks>>,
    /// The permits of which each attempt that may wait takes one; `None` at a primary of a quorum,
    /// where an acquisition takes a permit for its attempts at all primaries together.
    pub(crate) wait_limit: Option<WaitLimit>,
}

impl Settings {
    /// Returns an error if the key layout, ours or Redisson's, does not support an ability, such as
    /// reads and permits.
    pub(crate) fn can(&self, ability: Ability) -> Result<(), LockError> {
        let refused = |why| Err(LockError::with_detail(LockErrorKind::Unsupported, why));
        self.layout.refuses(ability).map_or(Ok(()), refused)
    }
}
