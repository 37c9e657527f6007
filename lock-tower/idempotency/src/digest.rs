//! A hash of several fields, each with a length prefix: different field lists cannot collide by
//! concatenation.

use sha2::{Digest as _, Sha256};

/// A SHA-256 over fields.
pub(crate) struct FieldDigest(Sha256);

impl FieldDigest {
    /// Creates an empty digest for this purpose: equal fields for two purposes have different
    /// digests.
    pub(crate) fn new(purpose: &'static str) -> Self {
        let mut digest = Self(Sha256::new());
        digest.field(purpose.as_bytes());
        digest
    }

    /// Adds a number, such as a field count.
    pub(crate) fn number(&mut self, number: usize) {
        self.0.update((number as u64).to_be_bytes());
    }

    /// Adds a field.
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// Writes bytes as lower-case hexadecimal digits.
pub(crate) fn write_hex(bytes: &[u8], f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
