//! Host directories that several containers share.

use std::path::Path;
use std::sync::Arc;

use coracle_runtime::{Access, Mount, PolicyRefusal, Problem};

use crate::record::Record;
use crate::{Result, Store};

impl Store {
    /// Refuses a path strictly beneath one that a container of ours has writable: what that one exchanges there would be
    /// followed.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) under the rule `mount.shared`.
    pub fn refuse_shared(&self, mounts: &[Mount]) -> Result<()> {
        match shared_problem(mounts, &self.records()?) {
            Some(refused) => Err(refused.into()),
            None => Ok(()),
        }
    }

    /// Whether a container of ours can write a directory, something in it, or something that it lies in. What is written
    /// there may be read by the person's own programs, so whoever runs them there asks first.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub fn is_written_inside(&self, real: &Path) -> Result<bool> {
        let touches = |it: &crate::RecordedMount| {
            it.mode == Access::ReadWrite && (real.starts_with(&it.host) || it.host.starts_with(real))
        };
        Ok(self.records()?.iter().flat_map(|it| &it.mounts).any(touches))
    }
}

/// A path strictly beneath one that another container of ours holds writable: that container could swap it for a link
/// while it is resolved. The same directory may be bound into any number of containers.
pub(crate) fn shared_problem(mounts: &[Mount], others: &[Arc<Record>]) -> Option<PolicyRefusal> {
    let held = |mount: &Mount| {
        let holder = others.iter().find(|record| {
            let beneath = |it: &crate::RecordedMount| {
                it.mode == Access::ReadWrite && mount.host.real() != it.host && mount.host.real().starts_with(&it.host)
            };
            record.mounts.iter().any(beneath)
        })?;
        let value = mount.host.real().display().to_string();
        let message = format!("`{value}` lies in a directory that container `{}` can write", holder.name);
        Some(Problem { rule: "mount.shared", setting: None, value, message })
    };
    let problems: Vec<_> = mounts.iter().filter_map(held).collect();
    (!problems.is_empty()).then_some(PolicyRefusal { problems })
}

#[cfg(test)]
mod tests {
    use coracle_runtime::ContainerPath;
    use coracle_runtime::host::fs::HostPath;

    use super::*;
    use crate::RecordedMount;
    use crate::record::tests::record;

    #[test]
    fn only_what_lies_beneath_a_writable_share_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("sub")).unwrap();
        let at = ContainerPath::parse("/w").unwrap();
        let mount = |path: &std::path::Path| {
            [Mount { host: HostPath::open(path).unwrap(), at: at.clone(), access: Access::ReadWrite }]
        };
        let holder = |mode| {
            let mut it = record("holder");
            it.mounts = vec![RecordedMount { host: root.clone(), container: at.clone(), mode }];
            [Arc::new(it)]
        };
        assert!(shared_problem(&mount(&root.join("sub")), &holder(Access::ReadWrite)).is_some());
        assert!(shared_problem(&mount(&root.join("sub")), &holder(Access::ReadOnly)).is_none());
        assert!(shared_problem(&mount(&root), &holder(Access::ReadWrite)).is_none());
    }
}
