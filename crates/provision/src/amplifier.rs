//! Settings of Amplifier, which may hold keys (containers.md 5.13).
