//! GitHub's token (containers.md 5.7).
