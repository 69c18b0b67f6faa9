//! Pulls images from registries by the distribution protocol of OCI and Docker.
//!
//! `oci-client` 0.18 would replace `client`, `authorization` and `challenge`, but it is not used. It adds 28 crates,
//! including `reqwest`, and reads manifests, tokens and errors without a limit. `reqwest`'s defaults decide about
//! redirects and the resolution of names, so private addresses cannot be refused, and credentials may go to other
//! hosts.
//!
//! | module | content |
//! |---|---|
//! | `name` | which registry and repository an image's name stands for |
//! | `repository` | a repository as a source of an image |
//! | `download` | downloads blobs, and resumes interrupted transfers |
//! | `client` | requests with redirects and authorization |
//! | `authorization`, `challenge` | what a registry requires, and tokens |
//! | `http`, `connector` | connections: proxies, certificates, forbidden addresses |
//!
//! **Invariant:** credentials go only to the registry and to the token service that it names, over TLS or within this
//! machine. They are not sent to another origin after a redirect.
//! **Invariant:** a registry with public addresses can redirect only to public addresses.
//! **Invariant:** each response has a limit of bytes, and a time limit between two parts.

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
