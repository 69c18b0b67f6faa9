//! What a host may receive.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_fuzz::responses(bytes));
