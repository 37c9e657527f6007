//! The lock modes of extractors: exclusive, read, write or permit.

use lock_tower::Keys;

use crate::limited::Limited;
use crate::lockable::Lockable;

/// A marker for the lock mode of a plain [`Locked`](crate::Locked): the mode set in the [`Keys`]
/// that the [`Lockable`] returns, exclusive if none is set.
#[derive(Debug, Clone, Copy)]
pub enum AsKeys {}

/// A marker for the lock mode of [`ReadLocked`](crate::ReadLocked): a read lock, which is shared
/// with other reads.
#[derive(Debug, Clone, Copy)]
pub enum Read {}

/// A marker for the lock mode of [`WriteLocked`](crate::WriteLocked): the exclusive lock, which
/// excludes all other locks, reads and permits with the same name.
#[derive(Debug, Clone, Copy)]
pub enum Write {}

/// A marker for the lock mode of [`PermitLocked`](crate::PermitLocked): a single permit. At most
/// [`permit_limit`](Limited::permit_limit) permits of a name are in use at a time.
#[derive(Debug, Clone, Copy)]
pub enum Permit {}

/// The mode in which [`Locked`](crate::Locked) acquires the lock named by `E`: [`AsKeys`],
/// [`Read`], [`Write`] or [`Permit`].
///
/// This trait is sealed.
pub trait Mode<E>: sealed::Sealed {
    /// Returns the keys of `source`, set to this lock mode.
    #[doc(hidden)]
    fn keys(source: &E) -> Keys;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::AsKeys {}
    impl Sealed for super::Read {}
    impl Sealed for super::Write {}
    impl Sealed for super::Permit {}
}

impl<E: Lockable> Mode<E> for AsKeys {
    fn keys(source: &E) -> Keys {
        source.lock_key()
    }
}

impl<E: Lockable> Mode<E> for Read {
    fn keys(source: &E) -> Keys {
        source.lock_key().read()
    }
}

impl<E: Lockable> Mode<E> for Write {
    fn keys(source: &E) -> Keys {
        source.lock_key().write()
    }
}

impl<E: Limited> Mode<E> for Permit {
    fn keys(source: &E) -> Keys {
        let limit = source.permit_limit();
        source.lock_key().permits(1, limit)
    }
}
