//! Commands and their output.

pub(crate) mod job;
pub(crate) mod log;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod wait;
