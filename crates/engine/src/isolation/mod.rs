//! isolation
