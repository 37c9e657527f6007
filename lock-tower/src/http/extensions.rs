//! The handle of a request's lock in the extensions.

use std::sync::Arc;

use http::Request;

use crate::hold::handle::LockHandle;
use crate::hold::registry::HoldRegistry;
use crate::http::request_locks::{Unlocked, holds};
use crate::lock::carry::CarryHandle;

/// Stores the [`LockHandle`] in the extensions of an HTTP request; for
/// [`LockLayer::carry`](crate::LockLayer::carry).
#[derive(Debug, Clone, Copy, Default)]
pub struct InExtensions;

impl<B> CarryHandle<Request<B>> for InExtensions {
    fn outer(&self, request: &Request<B>) -> Option<LockHandle> {
        request.extensions().get().cloned()
    }

    fn carry(&self, request: &mut Request<B>, handle: LockHandle) {
        request.extensions_mut().insert(handle);
    }

    fn unlocked(&self, request: &mut Request<B>) {
        let extensions = request.extensions_mut();
        let holds = holds(extensions).cloned().unwrap_or_default();
        extensions.remove::<LockHandle>();
        extensions.insert(Unlocked(holds));
    }

    fn holds(&self, request: &Request<B>) -> Option<Arc<HoldRegistry>> {
        holds(request.extensions()).cloned()
    }
}
