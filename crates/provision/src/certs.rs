//! The host's own certificate authorities (containers.md 5.14).
