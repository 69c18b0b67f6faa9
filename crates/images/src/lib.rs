//! Images to create containers from: local, pulled, or built on this host if no registry answers.
//!
//! [`ensure`] gets a [`Base`]; a [`Bootstrap`] has the settings to build one without a registry: from packages that are
//! installed on the host, else from a Debian mirror. A [`profile`] is a base and a [`Recipe`] for it. [`ImageBuilder`]
//! gets the image of an [`ImageRequest`]: from the [`cache`], or by running the recipe in a container of
//! [`BuildContainers`], which is then committed. On a base that was built here, a [`stand_in`] installs the programs of
//! the registry's image and reports differences. The engine itself builds [`DockerfileImages`]. A [`snapshot`] stores
//! the files of a container.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::time::Duration;
//!
//! use coracle_images::{BaseRequest, FetchSettings, ImageOrigin, Pull, detect::detect, ensure, profile::resolve};
//! use coracle_runtime::FakeRuntime;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let detected = detect(["Cargo.toml", "src"]); // names in a repository's top directory
//!     let profile = resolve(&detected.purpose, &BTreeMap::new(), None)?;
//!     let engine = FakeRuntime::new(); // or any other engine
//!     engine.registry_has(&profile.image);
//!     let request = BaseRequest { image: &profile.image, explicit: false, pull: Pull::Missing };
//!     let (pull_timeout, probe_timeout) = (Duration::from_secs(300), Duration::ZERO);
//!     let settings = FetchSettings { proxy: false, pull_timeout, probe_timeout, fallback: None };
//!     let base = ensure(&engine, request, &settings, &|step| println!("{step}")).await?;
//!     assert_eq!((base.reference.as_str(), base.source), ("rust:1-slim", ImageOrigin::Pulled));
//!     Ok(())
//! }
//! ```
//!
//! **Invariant:** an image that the caller chose is never replaced by another.
//! **Invariant:** only the host's package files, public certificates and addresses of Debian mirrors enter a base:
//! no account, no changed configuration, no file of a user.
//! **Invariant:** an image with Coracle's name, but without its signature, is not used.
//! **Invariant:** no code in this crate reads the environment, the clock or the home directory.

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
