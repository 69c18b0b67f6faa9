//! Which variables of the host go in (containers.md 6).
