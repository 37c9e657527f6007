//! How the handle of a hold gets into the request, and how an inner layer finds it there.

use crate::handle::LockHandle;

/// Puts the [`LockHandle`] where the inner service finds it.
///
/// `()` does nothing; [`InExtensions`] is for HTTP requests; and a closure `Fn(&mut Request, LockHandle)` is
/// for requests of your own.
pub trait CarryHandle<Req> {
    /// The hold that the request has from an outer layer: a lock of the same key is then shared.
    fn outer(&self, request: &Req) -> Option<LockHandle>;

    /// Gives the request its handle.
    fn carry(&self, request: &mut Req, handle: LockHandle);
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

/// In the extensions of an HTTP request.
#[cfg(feature = "http")]
#[derive(Debug, Clone, Copy, Default)]
pub struct InExtensions;

#[cfg(feature = "http")]
impl<B> CarryHandle<http::Request<B>> for InExtensions {
    fn outer(&self, request: &http::Request<B>) -> Option<LockHandle> {
        request.extensions().get().cloned()
    }

    fn carry(&self, request: &mut http::Request<B>, handle: LockHandle) {
        request.extensions_mut().insert(handle);
    }
}
