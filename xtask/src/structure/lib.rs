//! The structure of the project's crates, read from their sources: modules, what they use of each other, and their sizes.
//!
//! [`load::workspace`] parses every crate once, into plain data that can be shared between threads. Rules that a test holds
//! (`xtask/tests/tidy`) and the reports of `cargo xtask modules` and `cargo xtask size` are computed from that.
//!
//! A dependency is what a name shows: an import, or a path in an expression, a type, a pattern, an attribute or a macro's
//! arguments. What is deliberately absent: types. A method that is called on a value whose type is never named is not seen.
//!
//! **Invariant:** tests are no part of it. What `cfg(test)` keeps out of the library counts as test lines and nothing else.

pub mod cycles;
pub mod dependencies;
pub mod facts;
pub mod load;
pub mod report;
pub mod rules;
pub mod sources;
pub mod text;
pub mod tokens;

mod conditions;
mod extract;
mod resolve;
mod uses;
