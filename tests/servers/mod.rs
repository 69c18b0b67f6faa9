//! Servers that sandboxes talk to, played on the loopback of this host, and clients of ours.

pub(crate) mod anthropic;
pub(crate) mod mcp_load;
pub(crate) mod model;
pub(crate) mod registry;
pub(crate) mod websocket;
