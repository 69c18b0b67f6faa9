//! Mounts of a service: binds, volumes, directories in memory, and files of configs and secrets.

use std::path::{Path, PathBuf};

use coracle_runtime::stack_model::{self as model, FileMount, Mount, MountKind};
use coracle_types::{ContainerId, ContainerPath, Ids, InvalidPath, Result};

use super::config::ServiceContainer;
use crate::config::MountConfig;
use crate::engine::Engine;

/// The size of a directory in memory if neither the file sets one nor the service has a memory limit.
const TMPFS_BYTES: u64 = 1 << 30;

/// The mounts of a container, and files that some of them need.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceMounts {
    pub(super) configs: Vec<MountConfig>,
    /// Files to write before the container is published.
    pub(super) files: Vec<StoredFile>,
    /// Anonymous volumes, which belong to this container.
    pub(super) anonymous: Vec<String>,
}

/// A text that is mounted as a file.
#[derive(Clone, Debug)]
pub(super) struct StoredFile {
    /// In the directory of the container's own files.
    pub(super) name: String,
    pub(super) content: String,
    pub(super) mode: u32,
    pub(super) owner: Ids,
}

pub(super) fn of_service(service: &ServiceContainer<'_>, id: &ContainerId, engine: &Engine) -> Result<ServiceMounts> {
    let mut mounts = ServiceMounts::default();
    let model = service.model();
    let usual_size = model.mem_limit.map_or(TMPFS_BYTES, |it| it.0);
    for entry in &model.volumes {
        mounts.add(service, entry, usual_size)?;
    }
    for line in &model.tmpfs {
        let mount = tmpfs(line, usual_size).ok_or_else(|| service.refused("tmpfs", &format!("has `{line}`")))?;
        mounts.configs.push(mount);
    }
    if let Some(bytes) = model.shm_size {
        mounts.configs.push(memory("/dev/shm", bytes.0, 0o1777));
    }
    // Where the container's own files lie: see `ContainerDir::files`.
    let dir = engine.directories.containers().join(id.as_str()).join("files");
    let parts = &service.stack.model;
    for (key, files, parts) in
        [("configs", &model.configs, &parts.configs), ("secrets", &model.secrets, &parts.secrets)]
    {
        for file in files {
            let part = parts.get(&file.source);
            let part = part.ok_or_else(|| service.refused(key, &format!("has no `{}`", file.source)))?;
            let target = file_target(key, &file.target).map_err(|why| service.refused(key, &why))?;
            let source = match part {
                model::StoredFile::File(path) => path.clone(),
                model::StoredFile::Content(content) => dir.join(mounts.keep(key, file, content)),
            };
            mounts.configs.push(MountConfig::Bind { source, target, writable: false });
        }
    }
    Ok(mounts)
}

impl ServiceMounts {
    fn add(&mut self, service: &ServiceContainer<'_>, entry: &Mount, usual_size: u64) -> Result<()> {
        let target = container_path(&entry.target).map_err(|why| service.refused("volumes", &why))?;
        let writable = !entry.read_only;
        self.configs.push(match entry.kind {
            MountKind::Bind => {
                let source = entry.source.as_ref().map(PathBuf::from);
                let source = source.ok_or_else(|| service.refused("volumes", "has an entry without `source`"))?;
                MountConfig::Bind { source, target, writable }
            }
            MountKind::Volume => {
                let name = match &entry.source {
                    Some(source) => {
                        let volume = service.stack.model.volumes.get(source).cloned().unwrap_or_default();
                        volume.engine_name(&service.stack.project, source)
                    }
                    None => coracle_types::random_hex::<32>(),
                };
                if entry.source.is_none() {
                    self.anonymous.push(name.clone());
                }
                let as_in_image = !entry.volume.as_ref().is_some_and(|volume| volume.nocopy);
                MountConfig::Volume { name, target, writable, as_in_image }
            }
            MountKind::Tmpfs => {
                let options = entry.tmpfs.clone().unwrap_or_default();
                memory(&target, options.size.map_or(usual_size, |it| it.0), options.mode.unwrap_or(0o1777))
            }
        });
        Ok(())
    }

    /// Adds a text as a file of the container, and returns its name.
    fn keep(&mut self, key: &str, mount: &FileMount, content: &str) -> String {
        let name = format!("{key}-{}", self.files.len());
        let number = |text: &Option<String>| text.as_ref().and_then(|it| it.parse().ok()).unwrap_or(0);
        let owner = Ids { uid: number(&mount.uid), gid: number(&mount.gid) };
        let mode = mount.mode.unwrap_or(0o444);
        self.files.push(StoredFile { name: name.clone(), content: content.to_owned(), mode, owner });
        name
    }
}

impl StoredFile {
    /// Writes the file. Only root can set its owner; otherwise it belongs to this user.
    pub(super) fn write(&self, dir: &Path, is_root: bool) -> std::io::Result<()> {
        use std::io::Write as _;
        use std::os::unix::fs::{PermissionsExt as _, fchown};
        let mut file = std::fs::File::create(dir.join(&self.name))?;
        file.write_all(self.content.as_bytes())?;
        if is_root {
            fchown(&file, Some(self.owner.uid), Some(self.owner.gid))?;
        }
        file.set_permissions(std::fs::Permissions::from_mode(self.mode))?;
        file.sync_all()
    }
}

/// Parses the target of a mount, which must be a path inside a container.
fn container_path(target: &str) -> std::result::Result<String, String> {
    ContainerPath::parse(target).map(Into::into).map_err(|err| refused_target(&err))
}

/// Returns the target of a config or a secret. As in Docker Compose, a relative one is a name in the usual directory.
fn file_target(key: &str, target: &str) -> std::result::Result<String, String> {
    let usual = if key == "secrets" { ContainerPath::parse("/run/secrets") } else { Ok(ContainerPath::root()) };
    usual.and_then(|it| it.join(target)).map(Into::into).map_err(|err| refused_target(&err))
}

fn refused_target(err: &InvalidPath) -> String {
    format!("has a target that is refused: {err}")
}

fn memory(target: &str, bytes: u64, mode: u32) -> MountConfig {
    MountConfig::Tmpfs { target: target.to_owned(), bytes, mode, owner: Ids::ROOT, exec: false }
}

/// Parses `PATH:OPTION,…`. `None` for an unknown option.
fn tmpfs(line: &str, usual_size: u64) -> Option<MountConfig> {
    let (target, options) = line.split_once(':').unwrap_or((line, ""));
    let (mut bytes, mut mode, mut owner, mut exec) = (usual_size, 0o1777, Ids::ROOT, false);
    for option in options.split(',').filter(|it| !it.is_empty()) {
        match option.split_once('=') {
            Some(("size", value)) => bytes = short_size(value)?,
            Some(("mode", value)) => mode = u32::from_str_radix(value, 8).ok()?,
            Some(("uid", value)) => owner.uid = value.parse().ok()?,
            Some(("gid", value)) => owner.gid = value.parse().ok()?,
            None if option == "exec" => exec = true,
            None if ["rw", "noexec", "nosuid", "nodev"].contains(&option) => {}
            _ => return None,
        }
    }
    Some(MountConfig::Tmpfs { target: container_path(target).ok()?, bytes, mode, owner, exec })
}

/// As the kernel reads it: `64m`.
fn short_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_paths_inside_the_container() {
        assert_eq!(container_path("/srv//data/").as_deref(), Ok("/srv/data"));
        for target in ["/srv/../..", "srv", "../x", "", "/a\n"] {
            assert!(container_path(target).is_err(), "{target}");
            assert!(tmpfs(target, 7).is_none(), "{target}");
        }
        assert_eq!(file_target("secrets", "key").as_deref(), Ok("/run/secrets/key"));
        assert_eq!(file_target("configs", "app.conf").as_deref(), Ok("/app.conf"));
        assert_eq!(file_target("configs", "/etc/app.conf").as_deref(), Ok("/etc/app.conf"));
        assert!(file_target("secrets", "../../x").is_err());
    }

    #[test]
    fn options_of_a_directory_in_memory_are_read_or_refused() {
        let of = |line: &str| match tmpfs(line, 7)? {
            MountConfig::Tmpfs { target, bytes, mode, owner, exec } => {
                Some(format!("{target} {bytes} {mode:o} {owner} {exec}"))
            }
            _ => None,
        };
        assert_eq!(of("/t").as_deref(), Some("/t 7 1777 0:0 false"));
        assert_eq!(of("/t:size=16m,mode=700,uid=5,exec,rw").as_deref(), Some("/t 16777216 700 5:0 true"));
        assert_eq!([of("/t:ro"), of("/t:size=x"), of("/t:huge=1")], [None, None, None]);
    }
}
