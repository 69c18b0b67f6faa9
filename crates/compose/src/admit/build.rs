//! Images that a stack builds, if the configuration allows it.

use std::path::Path;

use coracle_host::fs::HostPath;
use coracle_runtime::stack_model::Build;
use serde_json::Value;

use super::Admission;
use super::keys::Keys;
use crate::diagnostics::Violation;

/// Keys that are copied unchanged.
const COPIED: &[&str] =
    &["args", "dockerfile_inline", "no_cache", "platforms", "pull", "target", "shm_size", "network"];

impl Admission<'_> {
    pub(super) fn build(&mut self, keys: &Keys<'_>, file: Value) -> Build {
        let location = keys.location;
        if !self.rules.allow_build {
            let violation = Violation::new("build", "").unless("compose.allow_build");
            self.refuse(location, violation, "is not granted: name an `image`");
        }
        let mut keys = Keys::within(location, "build", self.parse(keys, "build", file).unwrap_or_default());
        let mut build: Build = self.copy(&mut keys, COPIED);
        let ceiling = self.rules.policy.memory_max;
        build.shm_size = build.shm_size.map(|size| size.min(ceiling));
        if let Some(refused) = build.network.as_deref().filter(|it| !["default", "none"].contains(it)) {
            let violation = Violation::within("build", "build.network", refused);
            self.refuse(location, violation, "is not allowed in a stack");
        }
        let context: String = self.take(&mut keys, "context");
        build.context = self.build_path(&keys, "build.context", &context, Path::new(&context));
        let dockerfile: Option<String> = self.take(&mut keys, "dockerfile");
        build.dockerfile = dockerfile.and_then(|text| {
            let path = Path::new(&context).join(&text);
            // The default Dockerfile need not exist: the file may contain it inline.
            match text == "Dockerfile" && !path.exists() {
                true => Some(text),
                false => self.build_path(&keys, "build.dockerfile", &text, &path),
            }
        });
        for (name, context) in self.named::<String>(&mut keys, "additional_contexts") {
            let of_service = context.strip_prefix("service:").is_some_and(|it| self.has_service(it));
            let part = match of_service {
                true => Some(context),
                false => self.build_path(&keys, "build.additional_contexts", &context, Path::new(&context)),
            };
            build.additional_contexts.extend(part.map(|it| (name, it)));
        }
        build.extra_hosts = self.extra_hosts(&mut keys);
        build.labels = self.labels(&mut keys);
        self.refuse_rest(keys, "is not allowed in a stack");
        build
    }

    fn build_path(&mut self, keys: &Keys<'_>, key: &str, text: &str, path: &Path) -> Option<String> {
        let violation = Violation::within("build", key, text);
        if !path.is_absolute() {
            self.refuse(keys.location, violation, "is not a path of a file or directory on this host");
            return None;
        }
        let opened = self.diagnostics.host_path(keys.location, violation, path, self.rules.policy)?;
        let real = opened.real().display().to_string();
        self.contexts.extend(Some(opened).filter(HostPath::is_dir));
        Some(real)
    }
}
