//! Forks: of trees, and of containers that run.

mod containers;
mod trees;
