//! The layers as methods of [`ServiceBuilder`].

use lockcore::Locks;
use tower::ServiceBuilder;
use tower::layer::util::Stack;

use crate::LockLayer;

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
pub trait ServiceBuilderExt<L>: sealed::Builder<L> {
    /// Adds [`LockLayer::new`].
    fn lock<K>(self, locks: Locks, key: K) -> ServiceBuilder<Stack<LockLayer<K>, L>> {
        self.builder().layer(LockLayer::new(locks, key))
    }

    /// Adds [`HttpLockLayer::new`](crate::HttpLockLayer::new).
    #[cfg(feature = "http")]
    fn http_lock<K>(
        self,
        locks: Locks,
        key: K,
    ) -> ServiceBuilder<Stack<crate::HttpLockLayer<K>, L>> {
        self.builder().layer(crate::HttpLockLayer::new(locks, key))
    }

    /// Adds [`HttpLockLayer::permits`](crate::HttpLockLayer::permits).
    #[cfg(feature = "http")]
    fn http_permit<K, P>(
        self,
        locks: Locks,
        key: K,
        limit: P,
    ) -> ServiceBuilder<Stack<crate::HttpLockLayer<crate::key::WithPermits<K, P>>, L>> {
        self.builder().layer(crate::HttpLockLayer::permits(locks, key, limit))
    }

    /// Adds [`LockScopeLayer::new`](crate::LockScopeLayer::new).
    #[cfg(feature = "http")]
    fn lock_scope(self, locks: Locks) -> ServiceBuilder<Stack<crate::LockScopeLayer, L>> {
        self.builder().layer(crate::LockScopeLayer::new(locks))
    }

    /// Adds [`DetachLayer::new`](crate::DetachLayer::new).
    #[cfg(feature = "http")]
    fn detach(self) -> ServiceBuilder<Stack<crate::DetachLayer, L>> {
        self.builder().layer(crate::DetachLayer::new())
    }
}

impl<L> ServiceBuilderExt<L> for ServiceBuilder<L> {}

mod sealed {
    /// A trait that only `ServiceBuilder` implements.
    pub trait Builder<L>: Sized {
        fn builder(self) -> tower::ServiceBuilder<L>;
    }

    impl<L> Builder<L> for tower::ServiceBuilder<L> {
        fn builder(self) -> Self {
            self
        }
    }
}
