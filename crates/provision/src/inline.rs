//! Dotfiles given as text (containers.md 5.9).
