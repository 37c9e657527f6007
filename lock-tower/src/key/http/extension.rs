//! An extractor for a key from an extension that an outer layer has set.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use http::Request;

use crate::key::{ExtractKey, IntoKeys, KeyError, Keys};

/// An extractor that makes the key from a request extension of type `T`, such as the authenticated
/// user. The client cannot choose this key, because an outer layer sets the extension.
///
/// ```
/// use lock_tower::{ByExtension, ExtractKey};
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// let extractor = ByExtension::new(|user: &User| format!("user:{}", user.id));
/// let mut request = http::Request::new(());
/// assert!(extractor.extract_key(&request).is_err());
/// request.extensions_mut().insert(User { id: 7 });
/// assert!(extractor.extract_key(&request).unwrap().is_some());
/// ```
#[must_use = "an extractor does nothing until it is given to a layer"]
pub struct ByExtension<T, F> {
    key: F,
    is_optional: bool,
    extension: PhantomData<fn(&T)>,
}

impl<T, F, K> ByExtension<T, F>
where
    F: Fn(&T) -> K,
    K: IntoKeys,
{
    /// Creates an extractor that makes the key from the extension with the closure `key`. A request
    /// without the extension is refused (400), and an event at `debug` names the type.
    pub fn new(key: F) -> Self {
        Self { key, is_optional: false, extension: PhantomData }
    }

    /// Lets requests without the extension pass without a lock, instead of refusing them.
    pub fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }
}

impl<B, T, F, K> ExtractKey<Request<B>> for ByExtension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K,
    K: IntoKeys,
{
    fn extract_key(&self, request: &Request<B>) -> Result<Option<Keys>, KeyError> {
        match request.extensions().get::<T>() {
            Some(extension) => (self.key)(extension).into_keys(),
            None if self.is_optional => Ok(None),
            None => {
                tracing::debug!(
                    extension = type_name::<T>(),
                    "the request has no extension for its key: put the layer that sets it outside \
                     the lock, or let such requests pass with `optional`"
                );
                Err(KeyError::new("the request does not name a resource"))
            }
        }
    }
}

impl<T, F: Clone> Clone for ByExtension<T, F> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), is_optional: self.is_optional, extension: PhantomData }
    }
}

impl<T, F> fmt::Debug for ByExtension<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByExtension")
            .field("extension", &type_name::<T>())
            .field("is_optional", &self.is_optional)
            .finish_non_exhaustive()
    }
}
