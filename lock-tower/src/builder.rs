//! The layers as methods of [`ServiceBuilder`].

use lockcore::Locks;
use tower::ServiceBuilder;
use tower::layer::util::Stack;

#[cfg(feature = "http")]
use crate::detach::DetachLayer;
#[cfg(feature = "http")]
use crate::http_layer::HttpLockLayer;
use crate::layer::LockLayer;
#[cfg(feature = "http")]
use crate::scope_layer::LockScopeLayer;

/// The layers with their default options as methods of [`ServiceBuilder`].
///
/// ```
/// use lock_tower::{ByPath, ServiceBuilderExt};
/// use tower::ServiceBuilder;
///
/// # fn build(locks: lockcore::Locks) {
/// let stack = ServiceBuilder::new().http_lock(locks, ByPath::new()).detach().into_inner();
/// # let _ = stack;
/// # }
/// ```
pub trait ServiceBuilderExt<L>: sealed::Sealed + Sized {
    /// [`LockLayer::new`].
    fn lock<K>(self, locks: Locks, key: K) -> ServiceBuilder<Stack<LockLayer<K>, L>>;

    /// [`HttpLockLayer::new`].
    #[cfg(feature = "http")]
    fn http_lock<K>(self, locks: Locks, key: K) -> ServiceBuilder<Stack<HttpLockLayer<K>, L>>;

    /// [`LockScopeLayer::new`].
    #[cfg(feature = "http")]
    fn lock_scope(self, locks: Locks) -> ServiceBuilder<Stack<LockScopeLayer, L>>;

    /// [`DetachLayer::new`].
    #[cfg(feature = "http")]
    fn detach(self) -> ServiceBuilder<Stack<DetachLayer, L>>;
}

impl<L> ServiceBuilderExt<L> for ServiceBuilder<L> {
    fn lock<K>(self, locks: Locks, key: K) -> ServiceBuilder<Stack<LockLayer<K>, L>> {
        self.layer(LockLayer::new(locks, key))
    }

    #[cfg(feature = "http")]
    fn http_lock<K>(self, locks: Locks, key: K) -> ServiceBuilder<Stack<HttpLockLayer<K>, L>> {
        self.layer(HttpLockLayer::new(locks, key))
    }

    #[cfg(feature = "http")]
    fn lock_scope(self, locks: Locks) -> ServiceBuilder<Stack<LockScopeLayer, L>> {
        self.layer(LockScopeLayer::new(locks))
    }

    #[cfg(feature = "http")]
    fn detach(self) -> ServiceBuilder<Stack<DetachLayer, L>> {
        self.layer(DetachLayer::new())
    }
}

mod sealed {
    pub trait Sealed {}
    impl<L> Sealed for tower::ServiceBuilder<L> {}
}
