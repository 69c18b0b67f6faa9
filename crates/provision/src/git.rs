//! The person's git configuration (containers.md 5.6).
