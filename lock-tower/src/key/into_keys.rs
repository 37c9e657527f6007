//! The return types of key closures.

use lockcore::LockKey;

use crate::key::KeyError;
use crate::key::keys::{Keys, Name};

/// A value that a key closure may return: a name, [`Keys`], or an `Option` or `Result` of these.
///
/// The value must be owned, so the closure cannot return a name borrowed from the request.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key",
    label = "not a key",
    note = "return a `String`, `&'static str`, `LockKey` or `Keys`, or an `Option` or `Result` of these: `format!(\"order:{{id}}\")`"
)]
pub trait IntoKeys {
    /// Converts the value into the keys to lock, or into `None` for a request without a lock.
    ///
    /// # Errors
    /// A [`KeyError`] if the value contains an error: the request is refused.
    fn into_keys(self) -> Result<Option<Keys>, KeyError>;
}

impl IntoKeys for Keys {
    fn into_keys(self) -> Result<Option<Keys>, KeyError> {
        Ok(Some(self))
    }
}

impl IntoKeys for String {
    fn into_keys(self) -> Result<Option<Keys>, KeyError> {
        Ok(Some(Keys::one(self)))
    }
}

impl IntoKeys for &'static str {
    fn into_keys(self) -> Result<Option<Keys>, KeyError> {
        Ok(Some(Keys::of(Name::Static(self))))
    }
}

impl IntoKeys for LockKey {
    fn into_keys(self) -> Result<Option<Keys>, KeyError> {
        Ok(Some(Keys::key(self)))
    }
}

impl<K: IntoKeys> IntoKeys for Option<K> {
    fn into_keys(self) -> Result<Option<Keys>, KeyError> {
        match self {
            Some(key) => key.into_keys(),
            None => Ok(None),
        }
    }
}

impl<K, E> IntoKeys for Result<K, E>
where
    K: IntoKeys,
    E: Into<KeyError>,
{
    fn into_keys(self) -> Result<Option<Keys>, KeyError> {
        self.map_err(Into::into)?.into_keys()
    }
}
