//! Lock names: validated, percent-encoded so that distinct names never share a key in the store,
//! and kept inside their namespace.

use std::borrow::Cow;
use std::fmt;

use proto::LockName;

/// A validated lock name. Methods with a key argument take any type that converts to it: see
/// [`IntoKey`].
///
/// The Redis key contains a plain name such as `order:42` unchanged: `lock:{order:42}`. Braces and
/// percent signs are percent-encoded, because Redis Cluster chooses the slot by the part in `{…}`.
/// So a name from a request can neither choose the slot nor leave the [`Locks`](crate::Locks)
/// namespace, and distinct names have distinct keys.
///
/// ```
/// use lockcore::LockKey;
///
/// assert_eq!(LockKey::new("order:42")?.as_str(), "order:42");
/// assert_eq!(LockKey::new("50% {off}")?.as_str(), "50%25 %7Boff%7D");
/// assert!(LockKey::new("").is_err());
/// # Ok::<(), lockcore::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockKey {
    /// The name with braces and percent signs percent-encoded, without the namespace. A foreign
    /// name is stored unchanged.
    encoded: LockName,
    /// True for the name of another program's lock, created by [`LockKey::foreign`].
    foreign: bool,
}

impl LockKey {
    /// The maximum length of a lock name, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 512;

    /// Creates a lock name inside the [`Locks`](crate::Locks) namespace.
    ///
    /// # Errors
    /// [`KeyError`] if the name is empty, longer than [`LockKey::MAX_BYTES`], or contains a control
    /// character.
    pub fn new(name: impl AsRef<str>) -> Result<Self, KeyError> {
        let name = name.as_ref();
        if !is_plain(name) {
            validate(name)?;
            return Ok(Self { encoded: LockName::from(&*encode(name)), foreign: false });
        }
        Ok(Self { encoded: LockName::from(name), foreign: false })
    }

    /// Creates the name of another program's lock, unchanged: no encoding and no namespace.
    ///
    /// For a lock shared with a Redisson service, if the name contains braces or percent signs.
    /// Only with [`redisson_peers`](crate::LocksBuilder::redisson_peers); otherwise any use is
    /// [`Unsupported`](crate::LockErrorKind::Unsupported). Never build it from a request, because
    /// it is outside every namespace.
    ///
    /// # Errors
    /// As [`LockKey::new`].
    pub fn foreign(name: impl AsRef<str>) -> Result<Self, KeyError> {
        let name = name.as_ref();
        validate(name)?;
        Ok(Self { encoded: LockName::from(name), foreign: true })
    }

    /// Returns the encoded name. If it has an escape, [`new`](Self::new) makes another key of it:
    /// to give the name on, use [`given`](Self::given).
    ///
    /// It is the name as the store knows it, but without the namespace: braces and percent signs
    /// are percent-encoded, unless the name is [foreign](Self::foreign).
    pub fn as_str(&self) -> &str {
        self.encoded.as_str()
    }

    /// Returns the name as it was given, before encoding.
    pub fn given(&self) -> Cow<'_, str> {
        let text = self.as_str();
        if self.foreign { text.into() } else { decode(text) }
    }

    /// Returns true for the name of another program's lock, which is neither encoded nor in a
    /// namespace.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Returns the name under which the store knows the lock: `namespace:` followed by the encoded
    /// name, or only the encoded name if `namespace` is `None`. A foreign name stays unchanged.
    pub(crate) fn resolve(&self, namespace: Option<&str>) -> LockName {
        match namespace {
            Some(namespace) if !self.foreign => {
                LockName::from(&*format!("{namespace}:{}", self.as_str()))
            }
            _ => self.encoded.clone(),
        }
    }
}

/// Returns the key with which a caller locks the lock of this name in the store: decoded, and
/// without the namespace. This is the inverse of [`LockKey::resolve`]. `None` if the name is
/// outside the namespace, or if no valid key leads to the name.
pub(crate) fn key_of<'a>(name: &'a str, namespace: Option<&str>) -> Option<Cow<'a, str>> {
    let encoded = match namespace {
        Some(namespace) => name.strip_prefix(namespace)?.strip_prefix(':')?,
        None => name,
    };
    let key = decode(encoded);
    (encode(&key) == encoded && validate(&key).is_ok()).then_some(key)
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockKey").field(&self.as_str()).finish()
    }
}

/// A type that can name a lock, accepted by each method with a key argument: `&str`, `String`,
/// [`LockKey`], and your own types.
///
/// ```
/// use lockcore::{IntoKey, KeyError, LockKey};
///
/// struct OrderId(u64);
///
/// impl IntoKey for OrderId {
///     fn into_key(self) -> Result<LockKey, KeyError> {
///         LockKey::new(format!("order:{}", self.0))
///     }
/// }
///
/// # async fn example(locks: lockcore::Locks) -> Result<(), lockcore::LockError> {
/// let guard = locks.lock(OrderId(42)).await?; // `order:42`
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a lock",
    label = "neither a `&str`, a `String` nor a `LockKey`",
    note = "write `format!(\"order:{{id}}\")`, or implement `IntoKey` for your own type"
)]
pub trait IntoKey {
    /// Converts the value into a lock name.
    ///
    /// # Errors
    /// [`KeyError`] if the value cannot name a lock.
    fn into_key(self) -> Result<LockKey, KeyError>;
}

impl IntoKey for &str {
    fn into_key(self) -> Result<LockKey, KeyError> {
        LockKey::new(self)
    }
}

impl IntoKey for &String {
    fn into_key(self) -> Result<LockKey, KeyError> {
        LockKey::new(self)
    }
}

impl IntoKey for String {
    fn into_key(self) -> Result<LockKey, KeyError> {
        LockKey::new(self)
    }
}

impl IntoKey for LockKey {
    fn into_key(self) -> Result<LockKey, KeyError> {
        Ok(self)
    }
}

impl IntoKey for &LockKey {
    fn into_key(self) -> Result<LockKey, KeyError> {
        Ok(self.clone())
    }
}

/// Why a text cannot name a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The name is empty.
    Empty,
    /// The name is longer than [`LockKey::MAX_BYTES`].
    TooLong {
        /// The name's length in bytes.
        bytes: usize,
    },
    /// The name contains a control character.
    ControlCharacter {
        /// The position of the first control character, in bytes.
        at: usize,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the lock's name is empty: give it at least one character"),
            Self::TooLong { bytes } => write!(
                f,
                "the lock's name has {bytes} bytes: use at most {}, for example a hash of it",
                LockKey::MAX_BYTES
            ),
            Self::ControlCharacter { at } => write!(
                f,
                "the lock's name has a control character at byte {at}: remove or encode it"
            ),
        }
    }
}

impl std::error::Error for KeyError {}

/// Returns true if the name consists of 1 to 512 printable ASCII bytes, without braces and percent
/// signs. Such a name is valid and needs no encoding, and most names are of this kind. For any
/// other name, `validate` and `encode` examine each character.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'{' | b'}' | b'%');
    (1..=LockKey::MAX_BYTES).contains(&name.len()) && name.bytes().all(is_plain)
}

fn validate(name: &str) -> Result<(), KeyError> {
    if name.is_empty() {
        return Err(KeyError::Empty);
    }
    if name.len() > LockKey::MAX_BYTES {
        return Err(KeyError::TooLong { bytes: name.len() });
    }
    match name.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, _)) => Err(KeyError::ControlCharacter { at }),
        None => Ok(()),
    }
}

/// Percent-encodes braces and percent signs. Percent signs are included because otherwise two names
/// could have the same encoding.
fn encode(name: &str) -> Cow<'_, str> {
    if !name.contains(['{', '}', '%']) {
        return Cow::Borrowed(name);
    }
    let mut encoded = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        match c {
            '{' => encoded.push_str("%7B"),
            '}' => encoded.push_str("%7D"),
            '%' => encoded.push_str("%25"),
            other => encoded.push(other),
        }
    }
    Cow::Owned(encoded)
}

/// Reverses [`encode`]. The result is arbitrary for a text that `encode` never returns.
fn decode(encoded: &str) -> Cow<'_, str> {
    if !encoded.contains('%') {
        return Cow::Borrowed(encoded);
    }
    encoded.replace("%7B", "{").replace("%7D", "}").replace("%25", "%").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_themselves() {
        for name in ["order:42", "a b", "Größe/7", "日本", "x:y:z"] {
            let key = LockKey::new(name).unwrap();
            assert_eq!(key.as_str(), name);
            assert_eq!(format!("{key:?}"), format!("LockKey({name:?})"));
        }
    }

    #[test]
    fn names_that_look_like_an_encoding_do_not_collide_with_what_they_look_like() {
        let names = ["{", "%7B", "%257B", "}", "%7D", "%", "%25", "{}", "%7B}"];
        let keys: std::collections::BTreeSet<_> =
            names.iter().map(|name| LockKey::new(name).unwrap()).collect();
        assert_eq!(keys.len(), names.len());
    }

    #[test]
    fn no_key_of_ours_holds_a_brace() {
        assert!(!LockKey::new("a}x{b}").unwrap().as_str().contains(['{', '}']));
    }

    #[test]
    fn a_name_stays_in_its_namespace_and_a_foreign_one_outside() {
        for name in ["../x", "order:42", "shop:x", "{x}", "50%", "日本"] {
            let key = LockKey::new(name).unwrap();
            assert_eq!(key.resolve(None).as_str(), key.as_str());
            let own = key.resolve(Some("shop"));
            assert_eq!(own.as_str(), format!("shop:{}", key.as_str()));
        }
        for space in [None, Some("shop")] {
            let foreign = LockKey::foreign("{tag}:x%").unwrap();
            assert_eq!(
                (foreign.resolve(space).as_str(), foreign.as_str()),
                ("{tag}:x%", "{tag}:x%")
            );
        }
    }

    #[test]
    fn bad_names_say_what_is_wrong_with_them() {
        assert_eq!(LockKey::new(""), Err(KeyError::Empty));
        assert_eq!(LockKey::new("é".repeat(257)), Err(KeyError::TooLong { bytes: 514 }));
        assert_eq!(LockKey::new("a\nb"), Err(KeyError::ControlCharacter { at: 1 }));
        let said = [
            KeyError::Empty,
            KeyError::TooLong { bytes: 514 },
            KeyError::ControlCharacter { at: 1 },
        ]
        .map(|error| error.to_string());
        assert!(said[0].contains("empty"), "{}", said[0]);
        assert!(said[1].contains("514 bytes: use at most 512"), "{}", said[1]);
        assert!(said[2].contains("control character at byte 1"), "{}", said[2]);
        assert!(LockKey::new("x".repeat(512)).is_ok());
    }

    #[test]
    fn a_key_is_read_off_its_name_in_the_store_and_off_no_other() {
        for name in ["order:42", "50% {off}", "%7B", "%257B", "%", "日本", "a:b"] {
            let key = LockKey::new(name).unwrap();
            for namespace in [None, Some("shop")] {
                let stored = key.resolve(namespace);
                assert_eq!(key_of(stored.as_str(), namespace).as_deref(), Some(name));
                assert_eq!(key.given(), name);
            }
        }
        for (other, namespace) in [
            ("", None),
            ("{a}", None),
            ("50%", None),
            ("%7b", None),
            ("a", Some("shop")),
            ("shopa", Some("shop")),
        ] {
            assert_eq!(key_of(other, namespace), None, "{other}");
        }
    }
}
