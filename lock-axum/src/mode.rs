//! The modes in which an argument locks its name: alone, to read, or with a permit.

use lock_tower::Keys;

use crate::limited::Limited;
use crate::lockable::Lockable;

/// The mode of [`Locked`](crate::Locked): the demand of the keys, which is a lock unless they set
/// another.
#[derive(Debug, Clone, Copy)]
pub enum AsKeys {}

/// The mode of [`ReadLocked`](crate::ReadLocked): together with other reads.
#[derive(Debug, Clone, Copy)]
pub enum Read {}

/// The mode of [`WriteLocked`](crate::WriteLocked): a lock, which excludes reads, permits and other
/// locks.
#[derive(Debug, Clone, Copy)]
pub enum Write {}

/// The mode of [`PermitLocked`](crate::PermitLocked): one permit of the limit that [`Limited`]
/// gives.
#[derive(Debug, Clone, Copy)]
pub enum Permit {}

/// A mode in which `E` is locked: [`AsKeys`], [`Read`], [`Write`] or [`Permit`].
///
/// It cannot be implemented outside of this crate.
pub trait Mode<E>: sealed::Sealed {
    /// The keys that `source` names, with the demand of this mode.
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
