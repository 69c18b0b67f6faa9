//! Images to create containers from: local, pulled, or made where no registry answers.
//!
//! [`ensure`] gets a [`Base`]; a [`Bootstrap`] says how one is made without a registry: from the packages that are
//! installed on this host, else from a Debian mirror. A [`profile`] is a base and a [`Recipe`] for it. [`ImageBuilder`] gets
//! the image of an [`ImageRequest`]: from the [`cache`], or by running the recipe in a container of [`BuildContainers`],
//! which is then committed. On a base that was made here a [`stand_in`] installs what the registry's image would have, and
//! names what differs. [`DockerfileImages`] are built by the engine itself. A [`snapshot`] keeps the files of a container.
//!
//! **Invariant:** an image that the caller named is never replaced by another.
//! **Invariant:** of the host, only package files, public certificates and the addresses of Debian mirrors get into a base:
//! no account, no changed configuration, no file of a person.
//! **Invariant:** an image with Coracle's name, but without its signature, is not used.
//! **Invariant:** nothing in this crate reads the environment, the clock or the home directory.

#![warn(missing_docs)]

#[macro_use]
mod checked_text;

mod base;
mod base_image;
mod build;
pub mod cache;
mod commit;
pub mod detect;
mod digest;
mod dockerfile;
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
mod relabel;
mod request;
pub mod snapshot;
pub mod stand_in;

pub use base::Bootstrap;
pub use base_image::{Base, ImageOrigin, digest as digest_of, find};
pub use build::{
    BuildContainer, BuildContainers, BuildFailure, BuildOutcome, BuildReport, CommandReport, ImageBuilder, run_recipe,
};
pub use dockerfile::{DockerfileBuild, DockerfileImages};
pub use ensure::{BaseRequest, FetchSettings, Pull, ensure};
pub use error::{BaseError, BaseStage, Error};
pub use progress::Progress;
pub use recipe::{BuildOptions, OnFailure, OwnedDirectory, Recipe, Setup};
pub use relabel::relabel;
pub use request::ImageRequest;
