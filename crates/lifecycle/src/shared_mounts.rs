//! Host directories that several containers share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use coracle_runtime::{Access, Mount, PolicyRefusal, Problem};

use crate::record::{Record, RecordedMount};
use crate::{Result, Store};

impl Store {
    /// Directories of the host that services of managed stacks bind.
    ///
    /// # Errors
    /// If the records cannot be read.
    pub fn bound_by_services(&self) -> Result<Vec<PathBuf>> {
        Ok(self.records()?.iter().flat_map(|it| &it.stack_mounts).map(|it| it.host.clone()).collect())
    }

    /// Whether a managed container or one of its services can write to a directory, to something in it, or to a
    /// directory above it. The user's own programs may read such files, so callers that run them check this first.
    ///
    /// # Errors
    /// If the records cannot be read.
    pub fn is_written_inside(&self, real: &Path) -> Result<bool> {
        let touches = |it: &crate::RecordedMount| {
            it.mode == Access::ReadWrite && (real.starts_with(&it.host) || it.host.starts_with(real))
        };
        Ok(self.records()?.iter().flat_map(|it| it.mounts.iter().chain(&it.stack_mounts)).any(touches))
    }
}

/// A path strictly below one that another container, or one of its services, can write to: it could replace the path
/// with a link while it is resolved. The same directory may be bound into any number of containers.
pub(crate) fn shared_problem(mounts: &[Mount], others: &[Arc<Record>]) -> Option<PolicyRefusal> {
    let held = |mount: &Mount| {
        let holder = others.iter().find(|record| can_exchange(mount.host.real(), record))?;
        let value = mount.host.real().display().to_string();
        let message = format!("`{value}` lies in a directory that container `{}` can write", holder.name);
        Some(Problem { rule: "mount.shared", setting: None, value, message })
    };
    let problems: Vec<_> = mounts.iter().filter_map(held).collect();
    (!problems.is_empty()).then_some(PolicyRefusal { problems })
}

/// The same the other way round: a directory of another's service that a service of this stack could swap. Those that were
/// known when the stack was admitted are mount points in its services.
pub(crate) fn stack_problem(stack: &Record, others: &[Arc<Record>]) -> Option<PolicyRefusal> {
    let bound = others.iter().flat_map(|record| record.stack_mounts.iter().map(move |mount| (record, mount)));
    // A file is bound by another name.
    let exposed = bound.filter(|(_, mount)| mount.host.is_dir() && services_can_exchange(&mount.host, stack));
    let problem = |(record, mount): (&Arc<Record>, &RecordedMount)| {
        let value = mount.host.display().to_string();
        let message = format!("a service of `{}` has `{value}`, which lies in a directory of this stack", record.name);
        Problem { rule: "mount.shared", setting: None, value, message }
    };
    let problems: Vec<_> = exposed.map(problem).collect();
    (!problems.is_empty()).then_some(PolicyRefusal { problems })
}

/// Whether a container or one of its services could replace a path.
fn can_exchange(path: &Path, record: &Record) -> bool {
    record.mounts.iter().any(|it| is_writable_above(it, path)) || services_can_exchange(path, record)
}

/// A service cannot exchange what is a mount point there.
fn services_can_exchange(path: &Path, record: &Record) -> bool {
    let is_held = |above: &RecordedMount| {
        let at = path.strip_prefix(&above.host).map(|beneath| Path::new(above.container.as_str()).join(beneath));
        record.stack_mounts.iter().any(|it| it.host == path && at.as_deref() == Ok(Path::new(it.container.as_str())))
    };
    record.stack_mounts.iter().any(|it| is_writable_above(it, path) && !is_held(it))
}

fn is_writable_above(mount: &RecordedMount, path: &Path) -> bool {
    mount.mode == Access::ReadWrite && path != mount.host && path.starts_with(&mount.host)
}

#[cfg(test)]
mod tests {
    use coracle_host::fs::HostPath;
    use coracle_runtime::FakeRuntime;
    use coracle_types::{ContainerPath, LabelNamespace};

    use super::*;
    use crate::reconcile::tests::draft;
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
            it.mounts = vec![RecordedMount::new(root.clone(), at.clone(), mode)];
            [Arc::new(it)]
        };
        assert!(shared_problem(&mount(&root.join("sub")), &holder(Access::ReadWrite)).is_some());
        assert!(shared_problem(&mount(&root.join("sub")), &holder(Access::ReadOnly)).is_none());
        assert!(shared_problem(&mount(&root), &holder(Access::ReadWrite)).is_none());
    }

    #[test]
    fn a_service_that_could_replace_another_ones_directory_is_refused_unless_it_is_a_mount_point() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let sub = root.join("sub");
        std::fs::create_dir(&sub).unwrap();
        let mount = |host: &Path, at: &str, mode| {
            let container = ContainerPath::parse(at).unwrap();
            RecordedMount::new(host.to_owned(), container, mode)
        };
        let stack = |mounts: &[RecordedMount]| {
            let mut it = record("stack");
            it.stack_mounts = mounts.to_vec();
            it
        };
        let bind = |path: &Path| {
            let at = ContainerPath::parse("/x").unwrap();
            [Mount { host: HostPath::open(path).unwrap(), at, access: Access::ReadOnly }]
        };
        let victim = [Arc::new(stack(&[mount(&sub, "/x", Access::ReadOnly)]))];
        let (above, held) = (mount(&root, "/w", Access::ReadWrite), mount(&sub, "/w/sub", Access::ReadWrite));
        let elsewhere = mount(&sub, "/w/other", Access::ReadWrite);
        for (mounts, could) in [
            (vec![above.clone()], true),
            (vec![above.clone(), held.clone()], false),
            (vec![above.clone(), elsewhere], true),
            (vec![above, mount(&root, "/v", Access::ReadWrite), held], true),
            (vec![mount(&root, "/w", Access::ReadOnly)], false),
        ] {
            let writer = stack(&mounts);
            assert_eq!(stack_problem(&writer, &victim).is_some(), could, "{mounts:?}");
            assert_eq!(shared_problem(&bind(&sub), &[Arc::new(writer)]).is_some(), could, "{mounts:?}");
        }
    }

    /// A container that could write above may be gone again by now.
    #[tokio::test]
    async fn paths_replaced_after_the_check_of_a_stack_are_not_bound() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let store = Store::open(&root.join("state"), LabelNamespace::parse("coracle").unwrap()).unwrap();
        let (fake, sub) = (FakeRuntime::new(), root.join("sub"));
        std::fs::create_dir(&sub).unwrap();
        let at = ContainerPath::parse("/x").unwrap();
        let bind = [Mount { host: HostPath::open(&sub).unwrap(), at, access: Access::ReadOnly }];
        let mut making = crate::Creation::begin(&fake, &store, draft()).await.unwrap();
        making.begin_stack(None, &bind).await.unwrap();
        std::fs::rename(&sub, root.join("moved")).unwrap();
        std::os::unix::fs::symlink("moved", &sub).unwrap();
        let err = making.begin_stack(None, &bind).await.unwrap_err();
        assert!(matches!(&err, crate::Error::Runtime(coracle_types::Error::MountChanged { .. })), "{err:?}");
    }
}
