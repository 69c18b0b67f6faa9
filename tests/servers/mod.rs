//! Servers for sandboxes on the loopback of this host, and clients.

pub(crate) mod anthropic;
pub(crate) mod mcp_load;
pub(crate) mod model;
pub(crate) mod registry;
pub(crate) mod websocket;
