//! The trait through which a request carries a handle.

use std::sync::Arc;

use crate::hold::handle::LockHandle;
use crate::hold::registry::HoldRegistry;

/// Puts the [`LockHandle`] where the inner service finds it.
///
/// `()` does nothing, [`InExtensions`](crate::http::InExtensions) is for HTTP requests, and a
/// closure `Fn(&mut Request, LockHandle)` is for your own request types.
pub trait CarryHandle<Req> {
    /// Returns the request's hold from an outer layer. A lock with the same key is then shared.
    fn outer(&self, request: &Req) -> Option<LockHandle>;

    /// Stores the handle in the request.
    fn carry(&self, request: &mut Req, handle: LockHandle);

    /// Returns all the request's holds.
    #[doc(hidden)]
    fn holds(&self, request: &Req) -> Option<Arc<HoldRegistry>> {
        self.outer(request).map(|handle| Arc::clone(handle.request()))
    }
}

impl<Req> CarryHandle<Req> for () {
    fn outer(&self, _: &Req) -> Option<LockHandle> {
        None
    }

    fn carry(&self, _: &mut Req, _: LockHandle) {}
}

impl<Req, F> CarryHandle<Req> for F
where
    F: Fn(&mut Req, LockHandle),
{
    fn outer(&self, _: &Req) -> Option<LockHandle> {
        None
    }

    fn carry(&self, request: &mut Req, handle: LockHandle) {
        self(request, handle);
    }
}
