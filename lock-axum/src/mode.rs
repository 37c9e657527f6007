//! Lock modes of arguments: exclusive, read, or permit.

use lock_tower::Keys;

use crate::limited::Limited;
use crate::lockable::Lockable;

/// The mode of [`Locked`](crate::Locked): the demand set in the keys, by default an exclusive lock.
#[derive(Debug, Clone, Copy)]
pub enum AsKeys {}

/// The mode of [`ReadLocked`](crate::ReadLocked): shared with other reads.
#[derive(Debug, Clone, Copy)]
pub enum Read {}

/// The mode of [`WriteLocked`](crate::WriteLocked): exclusive of reads, permits and other locks.
#[derive(Debug, Clone, Copy)]
pub enum Write {}

/// The mode of [`PermitLocked`](crate::PermitLocked): a permit, under the limit from [`Limited`].
#[derive(Debug, Clone, Copy)]
pub enum Permit {}

/// A lock mode for `E`: [`AsKeys`], [`Read`], [`Write`] or [`Permit`].
///
/// This trait is sealed.
pub trait Mode<E>: sealed::Sealed {
    /// Returns the keys of `source` with the demand of this mode.
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
