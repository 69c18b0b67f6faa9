//! Turns a container's configuration into the steps of its first process. Pure, except for the descriptors that it
//! gets.

mod dev;
mod groups;
mod mounts;
mod process;
mod root;

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use coracle_types::Result;
use rustix::mount::MountAttrFlags;

use super::directory::ContainerDir;
use crate::cgroup::GroupMount;
use crate::config::{ContainerConfig, Init, NetworkMode};
use crate::ids::IdMap;
use crate::sys::{ChildPlan, Namespaces, Program, RootMount, Step};

pub(super) use mounts::{HostMounts, TreeError, c_path, c_text};
pub(super) use process::{init_arguments, limits};
pub(super) use root::{RootRequest, root_mount};

/// What the parent has opened for a container.
#[derive(Debug)]
pub(super) struct StartParts {
    pub(super) groups: Vec<OwnedFd>,
    /// The mounts of the groups that the container sees.
    pub(super) shown_groups: Vec<GroupMount>,
    pub(super) user_namespace: Option<OwnedFd>,
    pub(super) root: RootMount,
    /// One for each of `ContainerConfig::mounts` that binds a path of the host, in the same order.
    pub(super) binds: Vec<Step>,
    /// The file for PID 1's line of `/proc/PID/stat`.
    pub(super) process: OwnedFd,
    /// The file for PID 1's exit code.
    pub(super) exit: OwnedFd,
    /// The file for PID 1's output; `None` if it prints nothing.
    pub(super) log: Option<OwnedFd>,
    /// The guest's program, as the init of a command.
    pub(super) init: Option<PathBuf>,
    /// Standard input of that init, which waits until it reads a byte.
    pub(super) gate: Option<OwnedFd>,
    /// Files and directories whose owner becomes root inside.
    pub(super) given: Vec<OwnedFd>,
}

pub(super) fn child_plan(config: &ContainerConfig, dir: &ContainerDir, parts: StartParts) -> Result<ChildPlan> {
    let new_network = config.network.mode != NetworkMode::Host;
    let has_users = parts.user_namespace.is_some();
    let mut steps = vec![Step::RecordProcess(parts.process), Step::NewSession, Step::PrivateMounts];
    // Before the overlay is mounted, which copies the owner of its root.
    steps.extend(parts.given.into_iter().map(Step::GiveToRoot));
    steps.push(Step::AttachRoot { root: parts.root, at: mounts::c_path(&dir.root())? });
    if has_users {
        steps.push(Step::BecomeRoot);
    }
    steps.push(Step::NewCgroupNamespace);
    let last_group = config.ids.as_ref().map_or(u32::MAX >> 1, IdMap::last_group);
    steps.extend(dev::kernel_file_systems(new_network, last_group));
    steps.extend(dev::devices());
    steps.extend(parts.binds);
    if new_network {
        // Otherwise `/sys` is the host's, and its groups are masked.
        steps.extend(groups::control_groups(&parts.shown_groups));
        steps.extend(dev::settings(last_group));
    }
    steps.extend(dev::guards(dev::SharedWithHost { users: !has_users, network: !new_network }));
    if config.read_only {
        steps.push(Step::ReadOnlyRoot);
    }
    steps.push(Step::EnterRoot);
    steps.push(Step::Hostname(mounts::c_text(&config.hostname)?));
    if new_network {
        steps.push(Step::LoopbackUp);
    }
    let has_init = parts.init.is_some();
    let streams = process::streams(parts.gate, parts.log)?;
    steps.extend(process::last_steps(config, parts.exit, streams)?);
    let program = match &config.init {
        Init::Guest { lifeline, .. } => process::guest(*lifeline),
        Init::Command(words) => process::command(words, has_init),
    };
    let env = config.env.iter().map(|it| mounts::c_text(it)).collect::<Result<Vec<CString>>>()?;
    Ok(ChildPlan {
        groups: parts.groups,
        user_namespace: parts.user_namespace,
        namespaces: Namespaces::New { network: new_network },
        steps,
        program: Program { env, ..program? },
    })
}

/// The steps that a bundle is made from. An OCI runtime does the other steps itself.
pub(super) fn bundle_steps(config: &ContainerConfig, binds: Vec<Step>, has_users: bool) -> Vec<Step> {
    let new_network = config.network.mode != NetworkMode::Host;
    let last_group = config.ids.as_ref().filter(|_| has_users).map_or(u32::MAX >> 1, IdMap::last_group);
    let mut steps = dev::kernel_file_systems(new_network, last_group);
    steps.extend(binds);
    if new_network {
        steps.extend(dev::settings(last_group));
    }
    steps.extend(dev::guards(dev::SharedWithHost { users: !has_users, network: !new_network }));
    steps.extend(process::limits(config));
    steps
}

/// No set-user-id programs and no devices.
fn harmless() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV
}
