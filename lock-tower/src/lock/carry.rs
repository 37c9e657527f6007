//! How a request carries the handle of its lock to the inner service.

use std::sync::Arc;

use crate::hold::handle::LockHandle;
use crate::hold::registry::HoldRegistry;

/// Stores the [`LockHandle`] in the request, where the inner service finds it. Given to
/// [`LockLayer::carry`](crate::LockLayer::carry).
///
/// Use [`InExtensions`](crate::http::InExtensions) for HTTP requests, and a closure
/// `Fn(&mut Request, LockHandle)` for your own request types. `()` stores nothing.
pub trait CarryHandle<Req> {
    /// Returns the handle that an outer layer stored in `request`; `None` if there is none. With
    /// this handle, a second lock on the same key shares the first lock instead of waiting for it.
    /// Always `None` for closures and `()`.
    fn outer(&self, request: &Req) -> Option<LockHandle>;

    /// Stores the handle of the acquired lock in the request.
    fn carry(&self, request: &mut Req, handle: LockHandle);

    /// Called instead of [`carry`](Self::carry) for a request that [`fail_open`] serves without its
    /// lock. [`InExtensions`](crate::http::InExtensions) removes the handle that an outer layer has
    /// stored, so that the inner service does not take it for this lock's. By default nothing is
    /// done.
    ///
    /// [`fail_open`]: crate::LockLayer::fail_open
    fn unlocked(&self, request: &mut Req) {
        let _ = request;
    }

    /// Returns the registry of the locks that the request has acquired; `None` if it has no handle.
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
