//! The client to whom an idempotency key belongs.

/// The client to whom an `Idempotency-Key` belongs: a tenant, a user, an account. Two scopes never
/// share a key, so no client can read the answer of another.
///
/// A scope has one part or several. Parts are kept apart: `Scope::new("a").and("b:c")` is not
/// `Scope::new("a:b").and("c")`.
///
/// Take it from what authentication has found out, never from a header that a client can choose.
/// Scopes and keys are hashed: neither is stored or logged. A request whose scope has an empty part
/// is refused with 500, since all clients for whom nothing was found would share it.
///
/// ```
/// use lock_idempotency::{RecordKey, Scope};
///
/// let one = RecordKey::new(&Scope::new("a:b").and("c"), "k");
/// let other = RecordKey::new(&Scope::new("a").and("b:c"), "k");
/// assert_ne!(one, other);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    parts: Vec<String>,
}

impl Scope {
    /// A scope of one part.
    pub fn new(part: impl Into<String>) -> Self {
        Self { parts: vec![part.into()] }
    }

    /// The scope with one more part.
    #[must_use]
    pub fn and(mut self, part: impl Into<String>) -> Self {
        self.parts.push(part.into());
        self
    }

    pub(crate) fn parts(&self) -> &[String] {
        &self.parts
    }

    /// Whether it tells no client from another.
    pub(crate) fn has_empty_part(&self) -> bool {
        self.parts.iter().any(String::is_empty)
    }
}
