//! Both ends of a connection: against each other, and against a peer that keeps to nothing.
#![no_main]

#[path = "../../crates/protocol/tests/mux/ends.rs"]
mod ends;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ends::play(bytes);
    ends::attack(bytes);
});
