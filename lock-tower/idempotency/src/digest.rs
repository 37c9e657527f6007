//! A hash of several fields. Each field has a length prefix, so that different fields with the same
//! concatenation have different hashes.

use sha2::{Digest as _, Sha256};

/// A SHA-256 hasher for a sequence of fields, which distinguishes `ab`, `c` from `a`, `bc`.
pub(crate) struct FieldDigest(Sha256);

impl FieldDigest {
    /// Creates a digest without fields. Digests with different purposes differ, even if they have
    /// equal fields.
    pub(crate) fn new(purpose: &'static str) -> Self {
        let mut digest = Self(Sha256::new());
        digest.field(purpose.as_bytes());
        digest
    }

    /// Adds a number as eight bytes, such as the count of the fields that follow.
    pub(crate) fn number(&mut self, number: usize) {
        self.0.update((number as u64).to_be_bytes());
    }

    /// Adds a field, preceded by the length of the field, so that field boundaries change the hash.
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.update(bytes);
    }

    /// Returns the SHA-256 of the purpose and all fields and numbers.
    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// Writes bytes as lower-case hexadecimal digits.
pub(crate) fn write_hex(bytes: &[u8], f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
