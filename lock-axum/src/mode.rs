//! How an argument locks what it names: alone, to read, or as one of so many.

use lock_tower::Keys;

use crate::limited::Limited;
use crate::lockable::Lockable;

/// As its keys say, which is one request at a time unless they say something else; of
/// [`Locked`](crate::Locked).
#[derive(Debug, Clone, Copy)]
pub enum Lock {}

/// Together with others that read; of [`ReadLocked`](crate::ReadLocked).
#[derive(Debug, Clone, Copy)]
pub enum Read {}

/// One request at a time, beside those that read; of [`WriteLocked`](crate::WriteLocked).
#[derive(Debug, Clone, Copy)]
pub enum Write {}

/// One of as many as [`Limited`] says; of [`PermitLocked`](crate::PermitLocked).
#[derive(Debug, Clone, Copy)]
pub enum Permits {}

/// How `E` is locked: [`Lock`], [`Read`], [`Write`] or [`Permits`].
///
/// It cannot be implemented outside of this crate.
pub trait Mode<E>: sealed::Sealed {
    /// The keys that `source` names, in this form.
    #[doc(hidden)]
    fn keys(source: &E) -> Keys;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::Lock {}
    impl Sealed for super::Read {}
    impl Sealed for super::Write {}
    impl Sealed for super::Permits {}
}

impl<E: Lockable> Mode<E> for Lock {
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

impl<E: Limited> Mode<E> for Permits {
    fn keys(source: &E) -> Keys {
        let limit = source.permit_limit();
        source.lock_key().permits(1, limit)
    }
}
