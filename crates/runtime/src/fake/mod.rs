//! An engine in memory.
