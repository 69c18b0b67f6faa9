//! Images from registries, by the distribution protocol of OCI and Docker.
//!
//! `oci-client` 0.18 is not used: it adds 28 crates, `reqwest` among them, reads manifests, tokens and errors without a
//! limit, and leaves redirects and the resolution of names to `reqwest`'s defaults, so that neither private addresses nor
//! the way of credentials can be ruled out. Its use would save the files `client`, `authorization` and `challenge`.
//!
//! | module | content |
//! |---|---|
//! | `name` | which registry and repository an image's name stands for |
//! | `repository` | a repository as a source of an image |
//! | `download` | blobs, resumed where a transfer breaks off |
//! | `client` | requests with redirects and authorization |
//! | `authorization`, `challenge` | what a registry demands, and tokens |
//! | `http`, `connector` | connections: proxies, certificates, forbidden addresses |
//!
//! **Invariant:** credentials go to the registry, and to the token service that it names, by TLS or within this machine. A
//! redirect to another origin carries none.
//! **Invariant:** a registry with public addresses leads to public addresses only.
//! **Invariant:** each response is read within a limit, and silence ends it.

mod authorization;
mod challenge;
mod client;
mod connector;
mod download;
mod http;
mod name;
mod repository;

pub(crate) use http::Timeouts;
pub(crate) use repository::{RegistryAccess, RegistrySource};
