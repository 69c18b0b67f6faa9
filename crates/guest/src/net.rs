//! Network connections into and out of the container.

pub(crate) mod address;
pub(crate) mod probe;
pub(crate) mod proxy_ports;
pub(crate) mod tunnel;
