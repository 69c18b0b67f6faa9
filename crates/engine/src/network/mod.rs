//! Networks of containers: loopback, user-mode stacks, routed networks of the kernel, published ports and names.
//!
//! | mode | as root | as another user |
//! |---|---|---|
//! | none | loopback | loopback |
//! | host | the host's namespace | the host's namespace |
//! | outgoing | a link to the host (`link`), which forwards and masquerades (`rules`) | `pasta` or `slirp4netns` (`user_mode`) |
//! | a named network | the same link, with a group number whose members reach each other | unsupported |
//!
//! In each mode, a helper process publishes ports (`publish`): it listens on the host, and connects to the port inside. No
//! network needs a daemon: links, addresses and routes disappear with the network namespace, and the kernel's tables show
//! which addresses are taken.

mod attach;
mod attached;
mod files;
mod helper_process;
mod host_addresses;
mod hosts;
mod link;
mod members;
mod netlink;
mod publish;
mod record;
mod repair;
mod resolver;
mod routed;
mod rules;
mod settings;
mod subnet;
#[cfg(test)]
mod tests;
mod user_mode;

pub(crate) use attach::{Attachment, attach};
pub(crate) use attached::{AttachmentRecord, detach};
pub(crate) use files::{BoundFile, NetworkFilesRequest, network_files};
pub(crate) use record::NetworkRecords;
pub(crate) use repair::end_stack;
