//! Both ends of a connection against each other, and each against a peer that violates the rules.

#[path = "mux/ends.rs"]
mod ends;

use proptest::prelude::*;

proptest! {
    #[test]
    fn two_ends_that_obey_the_rules_never_report_each_other(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        ends::play(&bytes);
    }

    #[test]
    fn a_peer_that_violates_the_rules_cannot_exceed_the_limits_of_an_end(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        ends::attack(&bytes);
    }
}
