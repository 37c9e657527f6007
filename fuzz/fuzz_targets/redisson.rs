//! Answers of the scripts of a queue that JVMs share.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lock_fuzz::check("redisson", bytes));
