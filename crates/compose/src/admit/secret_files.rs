//! Texts of secrets, as files in memory of this host that services see read-only. Compose would copy such a text into the
//! writable layer of each service, from where it gets into images, and engines keep it on a disk.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::AdmittedStack;
use super::resources::secret_of_config;

/// Who may read such a file in a service, unless its file says otherwise. On the host the directory above is closed.
const READABLE: u32 = 0o444;

impl AdmittedStack {
    /// Whether a secret of it is a text.
    #[must_use]
    pub fn has_secret_texts(&self) -> bool {
        let configs = self.model.get("configs").and_then(Value::as_object);
        configs.is_some_and(|configs| configs.keys().any(|name| secret_of_config(name).is_some()))
    }

    /// Writes the texts of secrets into an empty directory of this process alone, and has the services see these files.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn with_secret_files(mut self, dir: &Path) -> io::Result<Self> {
        let Some(configs) = self.model.get_mut("configs").and_then(Value::as_object_mut) else { return Ok(self) };
        let names: Vec<_> = configs.keys().filter(|name| secret_of_config(name).is_some()).cloned().collect();
        let texts: Map<String, Value> = names.into_iter().filter_map(|name| configs.remove_entry(&name)).collect();
        let mut files = Map::new();
        for service in self.model["services"].as_object_mut().into_iter().flat_map(|services| services.values_mut()) {
            let Some(service) = service.as_object_mut() else { continue };
            let entries = service.remove("configs").unwrap_or_default();
            let (mut configs, mut secrets) = (Vec::new(), Vec::new());
            for entry in entries.as_array().into_iter().flatten() {
                let source = entry["source"].as_str().unwrap_or_default();
                let Some(content) = texts.get(source).and_then(|text| text["content"].as_str()) else {
                    configs.push(entry.clone());
                    continue;
                };
                // One for each service: it says who may read it there.
                let name = format!("text{}", files.len());
                let path = dir.join(&name);
                write(&path, content, entry)?;
                secrets.push(json!({ "source": name, "target": entry["target"] }));
                files.insert(name, json!({ "file": path.display().to_string() }));
            }
            if !configs.is_empty() {
                service.insert("configs".into(), configs.into());
            }
            if let Some(Value::Array(others)) = service.get_mut("secrets") {
                others.extend(secrets);
            } else if !secrets.is_empty() {
                service.insert("secrets".into(), secrets.into());
            }
        }
        let model = self.model.as_object_mut().expect("admission writes a mapping");
        if model["configs"].as_object().is_some_and(Map::is_empty) {
            model.remove("configs");
        }
        let all = model.entry("secrets").or_insert_with(|| json!({}));
        all.as_object_mut().expect("admission writes mappings").extend(files);
        Ok(self)
    }
}

fn write(path: &Path, content: &str, entry: &Value) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())?;
    let number = |key: &str| entry[key].as_str().and_then(|text| text.parse().ok());
    let (uid, gid) = (number("uid"), number("gid"));
    let mode = entry["mode"].as_u64().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(READABLE);
    // Without root the file stays the user's, and the service may run as any account that has to read it.
    let given = (uid, gid) == (None, None) || fchown(&file, uid, gid).is_ok();
    file.set_permissions(Permissions::from_mode(if given { mode & 0o777 } else { READABLE }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_runtime::ProjectName;

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
        let stack = AdmittedStack { project, model, images, moved, binds, contexts, gpu: false };
        assert!(stack.has_secret_texts());
        let dir = tempfile::tempdir().unwrap();
        let stack = stack.with_secret_files(dir.path()).unwrap();
        assert!(!stack.has_secret_texts() && !stack.model().to_string().contains("hidden"), "{:#}", stack.model());
        let file = |name: &str| dir.path().join(name);
        assert_eq!(
            *stack.model(),
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
