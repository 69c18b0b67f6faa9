//! The rules that hold across files: layers, places for dangerous calls, nothing forgotten. Each is a pure function,
//! tried on the project and on a planted violation that it has to find.

mod forgotten;
mod homely;
mod inside;
mod layers;
mod locks;
mod macos;
mod named_paths;
mod places;
mod project;
mod promises;
mod reveals;
mod structure;
