//! Stored outcomes of idempotency keys.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lock_fuzz::check("record", bytes));
