//! What a guest may receive.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_fuzz::requests(bytes));
