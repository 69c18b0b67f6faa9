//! Running members of a network, and their names in each other's hosts files.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use coracle_types::{ContainerId, ProcessId, StoredFileError, parse_stored};
use serde::{Deserialize, Serialize};

use super::hosts::{self, MemberLine};

/// A container on a network, while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) id: ContainerId,
    /// Its PID 1.
    pub(super) process: ProcessId,
    pub(super) names: Vec<String>,
    pub(super) address: Ipv4Addr,
    /// Its hosts file, on the host.
    pub(super) hosts_file: PathBuf,
}

/// The members of one network. Callers hold the lock of the networks.
#[derive(Clone, Debug)]
pub(super) struct Members {
    dir: PathBuf,
}

impl Members {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Lists the members that still run, and removes the records of others.
    ///
    /// # Errors
    /// If a newer version recorded a member: its address is unknown, and not free.
    pub(super) fn live(&self) -> io::Result<Vec<Member>> {
        let mut live = Vec::new();
        let entries = match std::fs::read_dir(&self.dir) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(live),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            match parse_stored::<Member>(&path, &std::fs::read(&path)?) {
                Ok(member) if member.process.alive() => live.push(member),
                Err(err @ StoredFileError::Newer(_)) => return Err(err.into()),
                // Records are not synced to the disk, so a power loss may have truncated them.
                Ok(_) | Err(StoredFileError::Damaged { .. }) => std::fs::remove_file(&path)?,
            }
        }
        live.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
        Ok(live)
    }

    /// Whether there are records of members that ended.
    pub(super) fn has_dead(&self) -> io::Result<bool> {
        let count = match std::fs::read_dir(&self.dir) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(false),
            entries => entries?.count(),
        };
        Ok(self.live()?.len() < count)
    }

    /// Adds a member.
    pub(super) fn join(&self, member: &Member) -> io::Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        let (file, aside) = (self.file(&member.id), self.dir.join(format!("{}.new", member.id)));
        // Not synced to the disk, since it is only valid until the next boot.
        std::fs::write(&aside, serde_json::to_vec(member)?)?;
        std::fs::rename(&aside, &file)
    }

    /// Removes a member; a missing one is no error.
    pub(super) fn release(&self, id: &ContainerId) -> io::Result<()> {
        match std::fs::remove_file(self.file(id)) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Removes all records.
    pub(super) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.dir) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Writes the names of all members into the hosts file of each. For networks whose members may reach each other.
    pub(super) fn announce(&self) -> io::Result<()> {
        let members = self.live()?;
        for member in &members {
            let others = members.iter().filter(|it| it.id != member.id);
            let lines: Vec<_> =
                others.map(|it| MemberLine { address: it.address.into(), names: it.names.clone() }).collect();
            // Failures are ignored: a member may be about to be removed, and the others still need their names.
            if let Err(err) = hosts::update_members(&member.hosts_file, &lines) {
                tracing::debug!(%err, container = %member.id, "cannot update the hosts file");
            }
        }
        Ok(())
    }

    fn file(&self, id: &ContainerId) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }
}
