//! The person's dotfiles (containers.md 5.9).
