//! Images to make containers from: found on the engine, pulled, or made where no registry answers.
//!
//! [`ensure`] takes a [`Want`] and gives a [`Base`]; a [`Bootstrap`] says how one is made without a registry: from the
//! packages that are installed on this host, else from a Debian mirror. A [`profile`] puts a [`Recipe`] on a base:
//! [`cook`] runs it in a container, and the [`cache`] keeps what came of it and finds it again. On a base that was made here
//! a [`stand_in`] brings what the registry's image would have brought, and names what differs. A [`snapshot`] keeps the
//! files of a container that somebody worked in.
//!
//! **Invariant:** an image that the caller named is never replaced by another.
//! **Invariant:** nothing of the host but what its packages brought gets into a base, save public certificates and the
//! addresses of Debian mirrors: no account, no changed configuration, no file of a person.
//! **Invariant:** an image of our name without our signature is not used.
//! **Invariant:** nothing in this crate reads the environment, the clock or the home directory.

#![warn(missing_docs)]

mod base;
mod base_image;
pub mod cache;
pub mod cook;
pub mod detect;
mod digest;
mod ensure;
mod error;
pub mod key;
mod lock;
pub mod packages;
pub mod pin;
pub mod profile;
mod progress;
mod recipe;
mod registry;
pub mod snapshot;
pub mod stand_in;
mod validate;

pub use base::Bootstrap;
pub use base_image::{Base, Source, find};
pub use ensure::{Fallback, Pull, Want, ensure};
pub use error::{BuildError, Error, Stage};
pub use progress::Progress;
pub use recipe::{Owned, Recipe, Setup};
