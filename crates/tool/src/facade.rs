//! Containers for Rust programs, without a second process: [`Client`], [`Container`] and their typed answers.
//!
//! Every method is a call of an operation, by the same path as that of every other front end. What has no method here is
//! reached by [`Client::call`].

mod answers;
mod client;
mod container;

pub use self::answers::{CallFields, CommandResult};
pub use self::client::Client;
pub use self::container::{ClientContainer as Container, ContainerOptions};
