//! Networks of containers: loopback, user-mode stacks, routed networks of the kernel, published ports and names.

mod attach;
mod attached;
mod files;

pub(crate) use attach::{Attachment, attach};
pub(crate) use attached::{Attached, detach, sweep};
pub(crate) use files::{NetworkFiles, NetworkFilesRequest, network_files};
