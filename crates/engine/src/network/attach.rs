//! Connects a new network namespace.

use std::io;
use std::path::PathBuf;

use coracle_types::{Capability, ContainerId, ContainerName, Error, ProcessId, Result};

use super::files::BoundFile;
use super::hosts::HostsText;
use super::link::{self, Reach};
use super::members::Member;
use super::publish::{self, BoundPort};
use super::record::{NetworkRecord, NetworkRecords};
use super::routed::{self, RoutedLink, RoutedSpec};
use super::user_mode::{UserModeSpec, UserModeStack};
use super::{AttachmentRecord, detach};
use crate::blocking::blocking;
use crate::config::{HostLine, NetworkConfig, NetworkMode};
use crate::directories::Directories;
use crate::error::unsupported;
use crate::ids::Privileges;

/// A container to connect, while it builds its file system.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    pub(crate) config: NetworkConfig,
    pub(crate) id: ContainerId,
    pub(crate) name: ContainerName,
    pub(crate) hostname: String,
    pub(crate) hosts: Vec<HostLine>,
    /// Further names on its network.
    pub(crate) aliases: Vec<String>,
    /// A process in its network and user namespaces: its PID 1.
    pub(crate) pid: u32,
    /// Files of the container on the host, which are rewritten in place.
    pub(crate) hosts_file: BoundFile,
    pub(crate) resolv_conf_file: BoundFile,
    /// The file for the process of a user-mode stack.
    pub(crate) pid_file: PathBuf,
    /// The guest's program, which also forwards ports on the host.
    pub(crate) guest: Option<PathBuf>,
    pub(crate) directories: Directories,
    pub(crate) privileges: Privileges,
}

impl Attachment {
    /// Whether the container may reach the host: a line of its hosts file leads there.
    fn reaches_host(&self) -> bool {
        self.hosts.iter().any(|it| it.address.is_none())
    }
}

/// Connects a container. Packets flow when this returns.
///
/// # Errors
/// Those of `publish::bind`; `Unsupported` where a program is missing; `Engine` for an unknown network. Nothing is left then but what
/// ends with the container.
pub(crate) async fn attach(attachment: &Attachment) -> Result<AttachmentRecord> {
    if attachment.config.mode == NetworkMode::Host {
        return Ok(AttachmentRecord::default());
    }
    let ports = publish::bind(&attachment.config)?;
    let mut attached = match &attachment.config.mode {
        NetworkMode::None | NetworkMode::Host => AttachmentRecord::default(),
        NetworkMode::Outgoing => attach_outgoing(attachment).await?,
        NetworkMode::Named(id) => attach_named(attachment, id).await?,
    };
    match publish_ports(attachment, &mut attached, &ports).await {
        Ok(()) => Ok(attached),
        Err(err) => {
            // The first error is the one to report.
            let _ = detach(&attached, &attachment.id, &attachment.directories).await;
            Err(err)
        }
    }
}

async fn publish_ports(attachment: &Attachment, attached: &mut AttachmentRecord, ports: &[BoundPort]) -> Result<()> {
    if !ports.is_empty() {
        attached.helpers.push(publish::serve(attachment, attached.address, ports).await?);
        attached.ports = ports.iter().map(|it| it.port.clone()).collect();
    }
    Ok(())
}

async fn attach_outgoing(attachment: &Attachment) -> Result<AttachmentRecord> {
    if !attachment.privileges.is_root() {
        return attach_user_mode(attachment).await;
    }
    let subnet = routed::outgoing_subnet(&attachment.directories).await?;
    let reach = Reach { outward: true, host: attachment.reaches_host() };
    let spec = RoutedSpec { id: attachment.id.clone(), pid: attachment.pid, subnet, reach, group: 0 };
    match link(NetworkRecords::new(&attachment.directories), spec).await {
        Ok(routed) => {
            let attached = linked(routed);
            write_hosts(attachment, &attached).map_err(failed)?;
            Ok(attached)
        }
        Err(err) if is_unavailable(&err) && !link::exists().map_err(failed)? => {
            tracing::warn!(%err, "no network by the kernel; trying a user-mode stack");
            attach_user_mode(attachment).await
        }
        Err(err) => Err(err),
    }
}

/// Whether an error means that routed networks are impossible here: this process is root of an unprivileged container, or the
/// kernel has no packet filter. Only then is a user-mode stack used, since root's opens sockets of the host, which reach the
/// host.
fn is_unavailable(err: &Error) -> bool {
    let Error::Host { source, .. } = err else { return false };
    let lacks = [libc::EPERM, libc::EACCES, libc::EROFS, libc::EPROTONOSUPPORT, libc::EOPNOTSUPP, libc::EAFNOSUPPORT];
    source.raw_os_error().is_some_and(|it| lacks.contains(&it))
}

async fn attach_named(attachment: &Attachment, id: &str) -> Result<AttachmentRecord> {
    if !attachment.privileges.is_root() {
        return Err(unsupported(Capability::NamedNetwork));
    }
    let records = NetworkRecords::new(&attachment.directories);
    // Held until the member is recorded, so that the network is not removed meanwhile.
    let _lock = records.lock().await?;
    let record = records.required(id)?;
    let spec = RoutedSpec {
        id: attachment.id.clone(),
        pid: attachment.pid,
        subnet: record.subnet,
        reach: Reach { outward: !record.internal, host: attachment.reaches_host() },
        group: record.group(),
    };
    let routed = link(records.clone(), spec).await?;
    let member = member(attachment, &routed)?;
    let attached = AttachmentRecord { network: Some(record.id.clone()), ..linked(routed) };
    write_hosts(attachment, &attached).map_err(failed)?;
    join(&records, &record, &member).map_err(failed)?;
    Ok(attached)
}

async fn link(records: NetworkRecords, spec: RoutedSpec) -> Result<RoutedLink> {
    blocking("connect a container", move || routed::connect(&records, &spec).map_err(failed)).await
}

fn join(records: &NetworkRecords, record: &NetworkRecord, member: &Member) -> io::Result<()> {
    let members = records.members(&record.id);
    members.join(member)?;
    if record.members_connected { members.announce() } else { Ok(()) }
}

fn member(attachment: &Attachment, routed: &RoutedLink) -> Result<Member> {
    let ended = || failed(io::Error::other("the container ended"));
    let mut names = vec![attachment.name.to_string()];
    if attachment.hostname != names[0] {
        names.push(attachment.hostname.clone());
    }
    let further: Vec<_> = attachment.aliases.iter().filter(|it| !names.contains(it)).cloned().collect();
    names.extend(further);
    Ok(Member {
        id: attachment.id.clone(),
        process: ProcessId::from_pid(attachment.pid).ok_or_else(ended)?,
        names,
        address: routed.address,
        hosts_file: attachment.hosts_file.path.clone(),
    })
}

async fn attach_user_mode(attachment: &Attachment) -> Result<AttachmentRecord> {
    let spec = UserModeSpec {
        pid: attachment.pid,
        user_namespace: !attachment.privileges.is_root(),
        host: attachment.reaches_host(),
        pid_file: attachment.pid_file.clone(),
    };
    let stack = UserModeStack::find()?.start(&spec).await?;
    let attached = AttachmentRecord {
        address: stack.address,
        gateway: stack.host,
        helpers: vec![stack.process],
        ..AttachmentRecord::default()
    };
    let resolv_conf = stack.resolv_conf.map_or(Ok(()), |it| attachment.resolv_conf_file.replace(&it));
    if let Err(err) = resolv_conf.and_then(|()| write_hosts(attachment, &attached)) {
        // The first error is the one to report.
        let _ = detach(&attached, &attachment.id, &attachment.directories).await;
        return Err(failed(err));
    }
    Ok(attached)
}

fn linked(routed: RoutedLink) -> AttachmentRecord {
    AttachmentRecord {
        address: Some(routed.address.into()),
        gateway: Some(routed.gateway.into()),
        link: Some(routed.device),
        ..AttachmentRecord::default()
    }
}

fn write_hosts(attachment: &Attachment, attached: &AttachmentRecord) -> io::Result<()> {
    let text = HostsText {
        hostname: &attachment.hostname,
        address: attached.address,
        host: attached.gateway,
        lines: &attachment.hosts,
    };
    attachment.hosts_file.replace(&text.render())
}

fn failed(source: io::Error) -> Error {
    Error::Host { what: "cannot connect a container to its network".into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_without_networks_of_the_kernel_is_a_reason_for_a_user_mode_stack() {
        let is = |number| is_unavailable(&failed(io::Error::from_raw_os_error(number)));
        assert!([libc::EPERM, libc::EROFS, libc::EPROTONOSUPPORT, libc::EOPNOTSUPP].into_iter().all(is));
        assert!(![libc::EBUSY, libc::ENOBUFS, libc::EEXIST, libc::ERESTART, libc::ESRCH].into_iter().any(is));
        assert!(!is_unavailable(&failed(io::ErrorKind::AddrInUse.into())));
    }
}
