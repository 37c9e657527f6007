//! Messages on a node's channel.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lock_fuzz::check("message", bytes));
