//! Secrets given as texts: files in memory on the host that services mount read-only. Compose would copy such a text
//! into the writable layer of each service, from where it gets into images, and engines store it on disk.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use coracle_runtime::stack_model::{FileMount, StackModel, StoredFile};

use super::AdmittedStack;
use super::resources::secret_of_config;

/// The default mode of such a file in a service. On the host, the directory above is private.
const READABLE: u32 = 0o444;

impl AdmittedStack {
    /// Whether one of its secrets is a text.
    #[must_use]
    pub fn has_secret_texts(&self) -> bool {
        self.model.configs.keys().any(|name| secret_of_config(name).is_some())
    }

    /// Writes the texts of secrets into an empty directory of this process alone, and mounts these files in the
    /// services.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn with_secret_files(mut self, dir: &Path) -> io::Result<Self> {
        let StackModel { services, configs, secrets, .. } = &mut self.model;
        let mut texts = BTreeMap::new();
        configs.retain(|name, config| match config {
            StoredFile::Content(text) if secret_of_config(name).is_some() => {
                texts.insert(name.clone(), std::mem::take(text));
                false
            }
            _ => true,
        });
        let mut written = 0;
        for service in services.values_mut() {
            for mount in std::mem::take(&mut service.configs) {
                let Some(content) = texts.get(&mount.source) else {
                    service.configs.push(mount);
                    continue;
                };
                // One file per service, since each service sets owner and mode.
                let name = format!("text{written}");
                written += 1;
                let path = dir.join(&name);
                write(&path, content, &mount)?;
                let target = mount.target;
                service.secrets.push(FileMount { source: name.clone(), target, uid: None, gid: None, mode: None });
                secrets.insert(name, StoredFile::File(path));
            }
        }
        Ok(self)
    }
}

fn write(path: &Path, content: &str, mount: &FileMount) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())?;
    let number = |text: &Option<String>| text.as_ref()?.parse().ok();
    let (uid, gid) = (number(&mount.uid), number(&mount.gid));
    // Without root the file belongs to the user, and has to be readable for any account of the service.
    let given = (uid, gid) == (None, None) || fchown(&file, uid, gid).is_ok();
    let mode = mount.mode.filter(|_| given).unwrap_or(READABLE);
    file.set_permissions(Permissions::from_mode(mode & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_types::ProjectName;
    use serde_json::json;

    #[test]
    fn texts_of_secrets_leave_the_model_and_other_parts_stay() {
        let model = json!({
            "services": {
                "db": { "configs": [{ "source": "secret.key", "target": "/run/secrets/key", "mode": 256 },
                    { "source": "plain", "target": "/plain" }] },
                "web": { "configs": [{ "source": "secret.key", "target": "/other" }],
                    "secrets": [{ "source": "bound", "target": "/bound" }] },
            },
            "configs": { "secret.key": { "content": "hidden$text" }, "plain": { "content": "shown" } },
            "secrets": { "bound": { "file": "/f" } },
        });
        let (images, moved, binds, contexts) = Default::default();
        let project = ProjectName::parse("p").unwrap();
        let model = serde_json::from_value(model).unwrap();
        let stack = AdmittedStack { project, model, images, moved, binds, contexts, gpu: false };
        assert!(stack.has_secret_texts());
        let dir = tempfile::tempdir().unwrap();
        let stack = stack.with_secret_files(dir.path()).unwrap();
        assert!(
            !stack.has_secret_texts() && !format!("{:?}", stack.model()).contains("hidden"),
            "{:#?}",
            stack.model()
        );
        let file = |name: &str| dir.path().join(name);
        assert_eq!(
            serde_json::to_value(stack.model()).unwrap(),
            json!({
                "services": {
                    "db": { "configs": [{ "source": "plain", "target": "/plain" }],
                        "secrets": [{ "source": "text0", "target": "/run/secrets/key" }] },
                    "web": { "secrets": [{ "source": "bound", "target": "/bound" }, { "source": "text1", "target": "/other" }] },
                },
                "configs": { "plain": { "content": "shown" } },
                "secrets": { "bound": { "file": "/f" }, "text0": { "file": file("text0") }, "text1": { "file": file("text1") } },
            })
        );
        let mode = |name: &str| file(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("text0"), mode("text1")), (0o400, 0o444));
        assert_eq!(std::fs::read_to_string(file("text1")).unwrap(), "hidden$text");
    }
}
