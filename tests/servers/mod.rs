//! Servers that sandboxes talk to, played on the loopback of this host.

pub(crate) mod model;
