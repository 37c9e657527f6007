//! `AcquireContext`: the inputs of a quorum acquisition. The hold keeps them, to acquire missing
//! primaries later.

use std::sync::Arc;

use proto::WhenBusy;
use proto::node::Request;

use super::primaries::Primaries;
use crate::node::{HoldCell, LocalOptions};

/// The class of a request's attempts at all primaries but the first, and of attempts that acquire
/// missing primaries for a hold. Under the request's own class, the gauges would count the request
/// once for each primary.
pub(super) const BEHIND: &str = "quorum";

/// The inputs of a quorum acquisition.
#[derive(Clone)]
pub(crate) struct AcquireContext {
    pub(crate) primaries: Arc<Primaries>,
    pub(crate) request: Request,
    /// The cell with the request's class, for logs and metrics.
    pub(crate) of: HoldCell,
    pub(crate) local: LocalOptions,
}

impl AcquireContext {
    /// Labels the request with the caller's trace context, unless it has a label. Called once, so
    /// that the request has the same label at all primaries, including primaries acquired later by
    /// another task.
    pub(super) fn label(&mut self) {
        self.local.label(&mut self.request, &self.primaries.observer);
    }

    /// Returns the request for a single primary, without `max_hold`. The quorum hold enforces this
    /// limit for all primaries together, because they are acquired at different times. A request
    /// that does not wait still queues at primaries, where it must replace no other request.
    pub(super) fn at_a_primary(&self) -> Request {
        let mut request = self.request.clone();
        request.options.max_hold = None;
        request.options.when_busy = WhenBusy::Wait;
        request
    }
}
