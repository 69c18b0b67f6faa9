//! Repositories (containers.md 5.10).
