//! Files that the caller wants somewhere (containers.md 5.11).
