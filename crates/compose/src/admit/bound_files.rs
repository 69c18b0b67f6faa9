//! Binds files of the host to services under names that code inside cannot replace.
//!
//! An engine resolves the source of a bind at each start, also if it restarts a service by itself. Code that can write
//! the directory of a file could have put a link in its place by then, and an open handle does not help: editors
//! replace files. So services bind a second name of the same file, in a directory that no container mounts.

use std::collections::BTreeMap;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use coracle_host::fs::HostPath;
use coracle_runtime::stack_model::{MountKind, StackModel, StoredFile};
use coracle_runtime::{Access, Mount, PolicyRefusal, Problem};
use coracle_types::Error;

use super::AdmittedStack;
use crate::diagnostics::short;

/// Maximum size of a file that is copied.
const MAX_COPY: u64 = 16 << 20;

/// Why a file cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BoundFileError {
    /// It can be neither linked nor copied.
    #[error(transparent)]
    Refused(#[from] PolicyRefusal),
    /// It was replaced since it was checked, or an I/O error occurred.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl AdmittedStack {
    /// Whether a service binds a file.
    #[must_use]
    pub fn binds_files(&self) -> bool {
        self.binds.iter().any(|(_, bind)| !bind.host.is_dir())
    }

    /// Makes the services bind second names of their files: hard links in an empty directory of this process alone.
    /// Writes are then visible on both sides. A file on another file system is copied if no service may write it.
    ///
    /// # Errors
    /// [`BoundFileError::Refused`] for a writable file that cannot be linked, and for one that is too long to copy.
    pub fn with_bound_files(mut self, dir: &Path) -> Result<Self, BoundFileError> {
        let mut named: BTreeMap<String, HostPath> = BTreeMap::new();
        for (_, bind) in &self.binds {
            let path = bind.host.real().display().to_string();
            if named.contains_key(&path) {
                continue;
            }
            let host = match bind.host.is_dir() {
                true => bind.host.clone(),
                false => self.name(bind, &dir.join(format!("file{}", named.len())))?,
            };
            named.insert(path, host);
        }
        let StackModel { services, configs, secrets, .. } = &mut self.model;
        let volumes = services.values_mut().flat_map(|service| &mut service.volumes);
        for mount in volumes.filter(|mount| mount.kind == MountKind::Bind) {
            let renamed = mount.source.as_ref().and_then(|source| named.get(source));
            mount.source = renamed.map(|host| host.real().display().to_string());
        }
        for parts in [configs, secrets] {
            // A file without a second name is bound by no service, or was replaced while it was checked.
            parts.retain(|_, part| match part {
                StoredFile::Content(_) => true,
                StoredFile::File(path) => match named.get(&path.display().to_string()) {
                    Some(host) => {
                        host.real().clone_into(path);
                        true
                    }
                    None => false,
                },
            });
        }
        for (_, bind) in &mut self.binds {
            bind.host.clone_from(&named[&bind.host.real().display().to_string()]);
        }
        Ok(self)
    }

    /// Links a file to a second name, or copies it.
    fn name(&self, file: &Mount, name: &Path) -> Result<HostPath, BoundFileError> {
        let path = file.host.real();
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => Error::MountChanged { targets: vec![path.display().to_string()] },
            _ => Error::Host { what: format!("cannot keep `{}` for the services", path.display()), source },
        };
        let why = match file.host.hard_link(name) {
            Ok(linked) => return Ok(linked),
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Err(failed(err).into()),
            Err(err) => err,
        };
        tracing::debug!(path = %path.display(), %why, "a file of a stack is copied, since it cannot be linked");
        let is_written = |(_, bind): &(String, Mount)| bind.host.real() == path && bind.access == Access::ReadWrite;
        if let Some((service, _)) = self.binds.iter().find(|it| is_written(it)) {
            return Err(refused(path, &format!("cannot be written by service `{service}`: {why}")).into());
        }
        match copy(&file.host, name).map_err(failed)? {
            true => HostPath::open(name).map_err(|err| failed(io::Error::other(err)).into()),
            false => {
                Err(refused(path, &format!("is longer than {MAX_COPY} bytes, and cannot be linked: {why}")).into())
            }
        }
    }
}

/// Builds the refusal of a file that can be neither linked nor copied.
fn refused(path: &Path, why: &str) -> PolicyRefusal {
    let value = short(&path.display().to_string());
    let message = format!(
        "the file `{value}` {why}; bind the directory that it is in, bind it with `:ro`, or have the state directory on \
         its file system"
    );
    PolicyRefusal { problems: vec![Problem { rule: "compose.volumes", setting: None, value, message }] }
}

/// Copies a file with its owner and mode; without root the copy belongs to this user. `false` if it is too long.
fn copy(from: &HostPath, name: &Path) -> io::Result<bool> {
    let from = from.file()?;
    let found = from.metadata()?;
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(name)?;
    if io::copy(&mut from.take(MAX_COPY + 1), &mut to)? > MAX_COPY {
        return Ok(false);
    }
    if let Err(err) = fchown(&to, Some(found.uid()), Some(found.gid())) {
        tracing::debug!(%err, "the copy of a file of a stack has another owner");
    }
    to.set_permissions(Permissions::from_mode(found.mode() & 0o777))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use serde_json::json;

    use super::*;
    use crate::fixtures::Person;

    /// A stack whose services bind files in several ways.
    fn stack(person: &Person) -> AdmittedStack {
        let work = person.work();
        for name in ["conf", "data", "key", "unused"] {
            std::fs::write(work.join(name), name).unwrap();
        }
        std::fs::create_dir_all(work.join("dir")).unwrap();
        let bind = |source: &str, read_only: bool| {
            let target = format!("/{source}");
            json!({ "type": "bind", "source": work.join(source), "target": target, "read_only": read_only })
        };
        let web = json!({ "image": "x", "user": "1000", "volumes": [bind("conf", true), bind("dir", true), bind("data", false)],
            "secrets": [{ "source": "key", "target": "/key" }] });
        let db = json!({ "image": "x", "user": "1000", "volumes": [bind("data", true)] });
        let secrets = json!({ "key": { "file": work.join("key") }, "unused": { "file": work.join("unused") } });
        person.admit(&json!({ "services": { "web": web, "db": db }, "secrets": secrets })).unwrap()
    }

    #[test]
    fn services_bind_second_names_of_files_and_directories_unchanged() {
        let (person, dir) = (Person::new(), tempfile::tempdir().unwrap());
        let named = dir.path().canonicalize().unwrap();
        let (work, stack) = (person.work(), stack(&person).with_bound_files(&named).unwrap());
        assert!(stack.binds_files());
        let source = |service: &str, index: usize| {
            std::path::PathBuf::from(stack.model().services[service].volumes[index].source.as_ref().unwrap())
        };
        let conf = source("web", 0);
        assert!(conf.starts_with(&named), "{}", conf.display());
        assert_eq!((source("web", 1), source("web", 2)), (work.join("dir"), source("db", 0)));
        assert_eq!(stack.model().secrets.len(), 1, "a secret that no service uses is not linked");
        // Writes to the file are visible on both sides, but not a file that replaces it at its path.
        std::fs::write(work.join("conf"), "changed").unwrap();
        assert_eq!(std::fs::read_to_string(&conf).unwrap(), "changed");
        std::fs::remove_file(work.join("conf")).unwrap();
        std::os::unix::fs::symlink("/etc/shadow", work.join("conf")).unwrap();
        assert_eq!(std::fs::read_to_string(&conf).unwrap(), "changed");
        let outside = |(_, bind): &&(String, Mount)| !bind.host.is_dir() && !bind.host.real().starts_with(&named);
        assert_eq!(stack.binds().iter().filter(outside).count(), 0);
    }

    #[test]
    fn a_file_that_was_replaced_since_it_was_checked_is_not_bound() {
        let (person, dir) = (Person::new(), tempfile::tempdir().unwrap());
        let stack = stack(&person);
        std::fs::rename(person.work().join("conf"), person.work().join("moved")).unwrap();
        std::os::unix::fs::symlink("moved", person.work().join("conf")).unwrap();
        let err = stack.with_bound_files(dir.path()).unwrap_err();
        assert!(matches!(&err, BoundFileError::Failed(Error::MountChanged { .. })), "{err:?}");
    }

    /// On most hosts, a file system in memory differs from that of temporary files.
    #[test]
    #[cfg(target_os = "linux")]
    fn on_another_file_system_a_file_is_copied_unless_it_is_written_or_long() {
        let (person, dir) = (Person::new(), tempfile::tempdir_in("/dev/shm").unwrap());
        let device = |path: &Path| path.metadata().unwrap().dev();
        if device(&person.work()) == device(dir.path()) {
            return;
        }
        let err = stack(&person).with_bound_files(dir.path()).unwrap_err().to_string();
        assert!(err.contains("/data") && err.contains("service `web`") && err.contains("`:ro`"), "{err}");
        let bind = json!({ "type": "bind", "source": person.work().join("conf"), "target": "/c", "read_only": true });
        let model = json!({ "services": { "web": { "image": "x", "user": "1000", "volumes": [bind] } } });
        let fresh = || tempfile::tempdir_in("/dev/shm").unwrap();
        let (copies, conf) = (fresh(), person.work().join("conf"));
        std::fs::set_permissions(&conf, Permissions::from_mode(0o640)).unwrap();
        let stack = person.admit(&model).unwrap().with_bound_files(copies.path()).unwrap();
        let copy = stack.binds()[0].1.host.real();
        assert_eq!(
            (std::fs::read_to_string(copy).unwrap(), copy.metadata().unwrap().mode() & 0o7777),
            ("conf".into(), 0o640)
        );
        File::create(&conf).unwrap().set_len(MAX_COPY + 1).unwrap();
        let err = person.admit(&model).unwrap().with_bound_files(fresh().path()).unwrap_err().to_string();
        assert!(err.contains("longer"), "{err}");
    }
}
