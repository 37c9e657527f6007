//! `RecordKey`: the name of a record.

use std::fmt;

use crate::digest::{FieldDigest, write_hex};
use crate::scope::Scope;

/// The name of the record that a store keeps for an idempotency key: the SHA-256 of scope and key.
/// It reveals neither, so it may be stored and logged. As text it has 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey([u8; 32]);

impl RecordKey {
    /// Computes the record name for a key, without quotes, in a scope.
    pub fn new(scope: &Scope, key: &str) -> Self {
        let mut digest = FieldDigest::new("lock-idempotency record 1");
        digest.number(scope.parts().len());
        scope.parts().iter().for_each(|part| digest.field(part.as_bytes()));
        digest.field(key.as_bytes());
        Self(digest.finish())
    }

    /// Computes the record name in a [namespace](lockcore::LocksBuilder::namespace), which the
    /// layer takes from its locks. Two services with a shared store and different namespaces never
    /// see each other's responses. `None` leaves the name unchanged.
    #[must_use]
    pub fn in_namespace(self, namespace: Option<&str>) -> Self {
        let Some(namespace) = namespace else { return self };
        let mut digest = FieldDigest::new("lock-idempotency namespace 1");
        digest.field(namespace.as_bytes());
        digest.field(&self.0);
        Self(digest.finish())
    }

    /// Returns the name of the lock under which the record is written.
    pub(crate) fn lock(&self) -> String {
        // Not the name under which a store keeps the record: beside Redisson, and without a
        // namespace, the name of a lock is the key of its hold.
        format!("idempotency:lock:{self}")
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordKey({self})")
    }
}
