//! HTTP requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lock_fuzz::check("request", bytes));
