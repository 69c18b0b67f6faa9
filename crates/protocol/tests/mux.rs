//! Both ends of a connection against each other, and each against a peer that keeps to nothing.

#[path = "mux/ends.rs"]
mod ends;

use proptest::prelude::*;

proptest! {
    #[test]
    fn two_ends_that_keep_to_the_rules_never_report_each_other(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        ends::play(&bytes);
    }

    #[test]
    fn a_peer_that_keeps_to_nothing_makes_no_end_hold_more_than_it_may(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        ends::attack(&bytes);
    }
}
