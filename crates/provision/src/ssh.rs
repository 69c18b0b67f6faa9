//! Keys for ssh (containers.md 5.8).
