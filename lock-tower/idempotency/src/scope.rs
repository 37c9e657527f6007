//! The owner of an idempotency key.

/// The owner of an `Idempotency-Key`, such as a tenant, a user or an account. Equal keys in two
/// scopes are unrelated, so no client can read another client's response.
///
/// A scope has one or more parts. Part boundaries matter: `Scope::new("a").and("b:c")` differs from
/// `Scope::new("a:b").and("c")`.
///
/// Take the scope from authentication, never from a header chosen by the client. Scopes and keys
/// are hashed: neither is stored or logged. A request whose scope has an empty part is refused with
/// 500, because otherwise all unidentified clients would share a scope.
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
    /// Creates a scope with one part.
    pub fn new(part: impl Into<String>) -> Self {
        Self { parts: vec![part.into()] }
    }

    /// Adds a part to the scope.
    #[must_use]
    pub fn and(mut self, part: impl Into<String>) -> Self {
        self.parts.push(part.into());
        self
    }

    pub(crate) fn parts(&self) -> &[String] {
        &self.parts
    }

    /// Returns true if a part is empty: such a scope does not distinguish clients.
    pub(crate) fn has_empty_part(&self) -> bool {
        self.parts.iter().any(String::is_empty)
    }
}
