//! Maps users of containers to users of the host, and runs work as a container's root.

mod map;
mod record;
mod subordinate;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use coracle_types::ContainerId;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use self::map::{IdMap, IdRange};
pub(crate) use self::subordinate::{LEAST as LEAST_SUBORDINATE, names_of, ranges};
use crate::sys::{ChildPlace, Step, create_user_namespace, run_in_child, while_dumpable};

/// What the engine's user may do.
#[derive(Clone, Debug)]
pub(crate) enum Privileges {
    /// Root: layers are stored with the ids of the image, and mounts are mapped to each container's range.
    Root,
    /// Another user: layers are stored with ids mapped by this mapping, which all containers share.
    Rootless(Rootless),
}

/// A user other than root.
#[derive(Clone, Debug)]
pub(crate) struct Rootless {
    pub(crate) map: IdMap,
    /// The programs that write maps of several ranges. Without them, only one id is mapped.
    pub(crate) programs: Option<subordinate::MapPrograms>,
}

impl Privileges {
    /// The privileges of this process.
    pub(crate) fn detect() -> Self {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        if uid.is_root() {
            return Self::Root;
        }
        let (uid, gid) = (uid.as_raw(), gid.as_raw());
        Self::Rootless(match subordinate::ranges_of_user(uid) {
            Ok(found) => {
                let map = IdMap::keeping((uid, gid), found.uids, found.gids);
                Rootless { map, programs: Some(found.programs) }
            }
            Err(_) => Rootless { map: IdMap::single(uid, gid), programs: None },
        })
    }

    pub(crate) fn is_root(&self) -> bool {
        matches!(self, Self::Root)
    }

    /// Whether root is the only user of a container.
    pub(crate) fn has_single_user(&self) -> bool {
        matches!(self, Self::Rootless(Rootless { programs: None, .. }))
    }

    /// The mapping that all containers share, and that files of the data directory are stored with.
    fn shared_map(&self) -> Option<IdMap> {
        match self {
            Self::Root => None,
            Self::Rootless(it) => Some(it.map.clone()),
        }
    }

    /// The mapping of a container's user namespace. With root, each container has its own range, so that no user of one
    /// container owns files of another.
    pub(crate) fn map_for(&self, id: &ContainerId) -> IdMap {
        match self {
            Self::Root => IdMap::of_range_for(id),
            Self::Rootless(it) => it.map.clone(),
        }
    }

    /// Creates a user namespace with a mapping. Blocks.
    pub(crate) fn create_namespace(&self, map: &IdMap) -> io::Result<OwnedFd> {
        let Self::Rootless(rootless) = self else { return create_user_namespace(|pid| map.write(pid)) };
        while_dumpable(|| {
            create_user_namespace(|pid| match &rootless.programs {
                Some(programs) => programs.write(pid, map),
                None => {
                    std::fs::write(format!("/proc/{}/setgroups", pid.as_raw_nonzero()), "deny")?;
                    map.write(pid)
                }
            })
        })
    }

    /// Runs `work` as the owner of the store's files. With root, it runs in this process; without, as root of a child
    /// process in a user namespace with the mapping. The child is a fork of this process, so `work` must not use
    /// threads, locks that other threads may hold, or tokio. The result returns through a pipe.
    pub(crate) fn run_as_owner<T: Serialize + DeserializeOwned>(
        &self,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let Self::Rootless(rootless) = self else { return work() };
        let namespace = self.create_namespace(&rootless.map)?;
        let namespaces = vec![(namespace.as_fd(), libc::CLONE_NEWUSER)];
        run_in_child(&ChildPlace { namespaces, steps: vec![Step::BecomeRoot], ..ChildPlace::default() }, work)
    }
}
