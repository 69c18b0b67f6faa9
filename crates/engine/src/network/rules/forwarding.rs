//! Decides which devices forward packets.
//!
//! With `net.ipv4.ip_forward`, the host routes between all its devices, for every machine of its networks, even after the
//! last container ended. So if it is off, it stays off. Only the links of containers forward, and the devices that lead to
//! other machines. From those, the rules let no new connection go to any other device.
//!
//! The value 2 instead of 1 means that this engine switched a device. A program that needs a router sets `ip_forward`, as
//! Docker does. That sets all devices to 1, and they are that program's.

use std::io;

use super::super::link::PREFIX;
use super::super::{settings, subnet};

const FORWARDING: &str = "forwarding";
const OFF: &str = "0";
const ON: &str = "1";
const ON_BY_US: &str = "2";

/// Devices that forward for containers alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForwardingDevices {
    /// Devices that this engine has switched, and those to switch.
    pub(super) guarded: Vec<String>,
    pending: Vec<String>,
    /// Links that do not forward because another program cleared `ip_forward`, and with it all devices.
    stopped_links: Vec<String>,
}

impl ForwardingDevices {
    /// Reads the current state, and plans the changes.
    pub(super) fn plan(routes: &str) -> io::Result<Self> {
        let mut plan = Self::default();
        let is_router = settings::read_global("ip_forward")? != OFF;
        for device in settings::devices()? {
            match settings::read(&device, FORWARDING)?.as_deref() {
                Some(OFF) if device.starts_with(PREFIX) => plan.stopped_links.push(device),
                _ if device.starts_with(PREFIX) => {}
                Some(ON_BY_US) => plan.guarded.push(device),
                Some(OFF) if !is_router && leads_to_others(&device, routes) => {
                    plan.guarded.push(device.clone());
                    plan.pending.push(device);
                }
                _ => {}
            }
        }
        plan.guarded.sort();
        Ok(plan)
    }

    /// Switches the devices. The rules must be installed already.
    pub(super) fn apply(&self) -> io::Result<()> {
        for device in &self.pending {
            tracing::info!(device, "it forwards packets of containers now");
            settings::write(device, FORWARDING, ON_BY_US)?;
        }
        for link in &self.stopped_links {
            settings::write(link, FORWARDING, ON)?;
        }
        Ok(())
    }
}

/// Whether this engine has switched a device. The rules guard such a device until it is switched back or removed.
pub(in crate::network) fn host_forwards() -> io::Result<bool> {
    for device in settings::devices()? {
        if settings::read(&device, FORWARDING)?.as_deref() == Some(ON_BY_US) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a device leads to other machines. A bridge is another engine's network, unless a default route uses it.
fn leads_to_others(device: &str, routes: &str) -> bool {
    subnet::default_devices(routes).contains(&device)
        || (subnet::devices(routes).contains(&device) && !settings::is_bridge(device))
}
