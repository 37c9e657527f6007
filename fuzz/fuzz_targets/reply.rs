//! Answers of scripts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lock_fuzz::check("reply", bytes));
