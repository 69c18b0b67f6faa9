//! Repairs networks after a process died in the middle of an operation.

use std::io;
use std::path::Path;

use coracle_types::{Error, ProcessId, Result};

use super::record::NetworkRecords;
use super::{helper_process, link, rules};
use crate::directories::remove_unfinished_files;

impl NetworkRecords {
    /// Removes members that ended without being detached, from the records and the hosts files of other members. Also removes
    /// what an interrupted creation or removal of a network left.
    ///
    /// # Errors
    /// If the records cannot be read or written.
    pub(crate) async fn repair(&self) -> Result<()> {
        let _lock = self.lock().await?;
        self.repair_locked().map_err(|source| Error::Host { what: "cannot repair networks".into(), source })
    }

    /// Reinstalls rules of the packet filter that another program removed, if a container has a link or a device forwards.
    /// (Devices still forward after the last container ended.)
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn restore_rules(&self) -> Result<()> {
        let failed = |source| Error::Host { what: "cannot restore the rules of networks".into(), source };
        if !link::exists().map_err(failed)? && !rules::host_forwards().map_err(failed)? {
            return Ok(());
        }
        self.ensure_rules().map_err(failed)
    }

    /// Installs missing rules, including those of all networks.
    pub(super) fn ensure_rules(&self) -> io::Result<()> {
        let groups = self.connected_groups().unwrap_or_else(|err| {
            // The rules then do not know the networks' numbers, so their members cannot reach each other.
            tracing::warn!(%err, "cannot read the networks' records");
            Vec::new()
        });
        rules::ensure(&groups)
    }

    fn repair_locked(&self) -> io::Result<()> {
        remove_unfinished_files(self.dir())?;
        let records = self.records()?;
        for network in &records {
            let members = self.members(&network.id);
            if members.has_dead()? && network.members_connected {
                members.announce()?;
            }
        }
        for id in self.ids_of_members()? {
            if records.iter().all(|it| it.id != id) {
                self.members(&id).remove()?;
            }
        }
        Ok(())
    }
}

/// Ends a user-mode stack that was started but not recorded with the network. It is identified by `pid_file`, or by the PID
/// 1 that it serves.
pub(crate) fn end_stack(pid_file: &Path, served: Option<u32>) -> io::Result<()> {
    if let Some(process) = recorded(pid_file) {
        helper_process::end(&process)?;
    }
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|it| it.parse().ok()) else { continue };
        let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let words: Vec<_> = line.split(|it| *it == 0).map(String::from_utf8_lossy).collect();
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        if serves(&words, pid_file, served)
            && let Some(process) = ProcessId::from_pid(pid)
        {
            helper_process::end(&process)?;
        }
    }
    match std::fs::remove_file(pid_file) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Reads the process that the engine recorded for `slirp4netns`. `pasta` writes only its number, so it is identified by its
/// arguments.
fn recorded(pid_file: &Path) -> Option<ProcessId> {
    serde_json::from_slice(&std::fs::read(pid_file).ok()?).ok()
}

/// Whether a stack with these arguments serves the container. `pasta` gets the file as an argument, `slirp4netns` the process.
fn serves(words: &[&str], pid_file: &Path, served: Option<u32>) -> bool {
    let Some(program) = words.first().and_then(|it| it.rsplit('/').next()) else { return false };
    if program.starts_with("pasta") {
        return words.windows(2).any(|it| it[0] == "--pid" && Path::new(it[1]) == pid_file);
    }
    let pid = served.map(|it| it.to_string());
    program == "slirp4netns" && pid.is_some_and(|pid| words.windows(2).any(|it| it == [pid.as_str(), link::INSIDE]))
}

#[cfg(test)]
mod tests {
    use coracle_host::process::{Invocation, spawn_detached};

    use super::super::user_mode;
    use super::*;

    #[tokio::test]
    async fn a_stack_that_was_recorded_is_ended_without_the_process_that_it_served() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("network.pid");
        let sleep = Invocation::new("/bin/sleep", ["60"]);
        let pid = spawn_detached(&sleep, std::fs::File::open("/dev/null").unwrap()).unwrap();
        let process = ProcessId::from_pid(pid).unwrap();
        user_mode::record(&process, &file).unwrap();
        end_stack(&file, None).unwrap();
        assert!(!process.alive() && !file.exists());
        // `pasta` wrote it.
        std::fs::write(&file, format!("{}\n", std::process::id())).unwrap();
        assert_eq!(recorded(&file), None);
    }

    #[test]
    fn a_stack_is_known_by_the_file_or_the_process_that_it_was_given() {
        let file = Path::new("/data/containers/a/network.pid");
        let served = |line: &str| serves(&line.split(' ').collect::<Vec<_>>(), file, Some(7));
        assert!(served("/usr/bin/pasta.avx2 --quiet --pid /data/containers/a/network.pid --netns /proc/7/ns/net"));
        assert!(served("slirp4netns --ready-fd=0 7 eth0"));
        for line in [
            "pasta --pid /data/containers/b/network.pid",
            "cat --pid /data/containers/a/network.pid",
            "slirp4netns --ready-fd=0 8 eth0",
            "slirp4netns --ready-fd=7 8 eth0",
            "vi 7 eth0",
            "",
        ] {
            assert!(!served(line), "{line}");
        }
        assert!(!serves(&["slirp4netns", "7", "eth0"], file, None));
    }
}
