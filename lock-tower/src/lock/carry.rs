//! The trait by which a request carries its handle.

use std::sync::Arc;

use crate::hold::handle::LockHandle;
use crate::hold::registry::HoldRegistry;

/// Puts the [`LockHandle`] where the inner service finds it.
///
/// `()` does nothing, [`InExtensions`](crate::http::InExtensions) is for HTTP requests, and a
/// closure `Fn(&mut Request, LockHandle)` is for requests of your own.
pub trait CarryHandle<Req> {
    /// A hold that the request has from an outer layer. A lock of the same key is then shared.
    fn outer(&self, request: &Req) -> Option<LockHandle>;

    /// Gives the request its handle.
    fn carry(&self, request: &mut Req, handle: LockHandle);

    /// All holds of the request.
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
