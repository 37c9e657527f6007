//! Bytes of a server, on our own connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lock_fuzz::check("answers", bytes));
