//! Directories that may have unsaved work.

use coracle_types::ContainerPath;
use jiff::Timestamp;

use crate::record::Record;

/// The directories that are searched, without bind mounts of the host.
#[derive(Debug)]
pub(super) struct Roots<'a> {
    record: &'a Record,
    pub(super) workdir: Option<ContainerPath>,
    /// The home, when it is a directory of its own and not the root.
    pub(super) home: Option<ContainerPath>,
    /// Repositories that were cloned elsewhere when it was made.
    pub(super) clones: Vec<ContainerPath>,
    /// When filling it ended.
    pub(super) since: Timestamp,
}

impl<'a> Roots<'a> {
    pub(super) fn from_record(record: &'a Record) -> Self {
        let roots = Self {
            record,
            workdir: None,
            home: None,
            clones: Vec::new(),
            since: record.filled.unwrap_or(record.created),
        };
        let own = |it: &ContainerPath| roots.own(it);
        let workdir = Some(record.workdir.clone()).filter(own);
        let beneath = |it: &ContainerPath, root: &Option<ContainerPath>| {
            root.as_ref().is_some_and(|root| it.is_beneath(root.as_str()))
        };
        let home = record.home.clone().filter(|it| own(it) && it.parent().is_some() && Some(it) != workdir.as_ref());
        let clones = clones(record).into_iter().filter(own);
        let clones = clones.filter(|it| !beneath(it, &workdir) && !beneath(it, &home)).collect();
        Self { workdir, home, clones, ..roots }
    }

    /// What is bound is the host's, and stays.
    pub(super) fn own(&self, path: &ContainerPath) -> bool {
        !self.record.mounts.iter().any(|it| path.is_beneath(it.container.as_str()))
    }
}

/// From the report of provisioning.
fn clones(record: &Record) -> Vec<ContainerPath> {
    let steps = record.provisioning_report.as_array().map(Vec::as_slice).unwrap_or_default();
    let items = steps.iter().filter(|it| it["name"] == "repos").filter_map(|it| it["items"].as_array()).flatten();
    items.filter_map(|it| it["path"].as_str()).filter_map(|it| ContainerPath::parse(it).ok()).collect()
}

#[cfg(test)]
mod tests {
    use coracle_runtime::Access;
    use serde_json::json;

    use super::*;
    use crate::RecordedMount;
    use crate::record::tests::record;

    fn path(text: &str) -> ContainerPath {
        ContainerPath::parse(text).unwrap()
    }

    #[test]
    fn what_is_bound_is_not_looked_at() {
        let mut it = record("web");
        it.home = Some(path("/home/agent"));
        it.provisioning_report =
            json!([{ "name": "repos", "items": [{ "path": "/opt/a" }, { "path": "/workspace/b" }, {}] }]);
        let roots = Roots::from_record(&it);
        assert_eq!(
            (roots.workdir, roots.home, roots.clones),
            (Some(path("/workspace")), Some(path("/home/agent")), vec![path("/opt/a")])
        );
        it.mounts =
            ["/workspace", "/opt"].map(|at| RecordedMount::new("/x".into(), path(at), Access::ReadWrite)).into();
        it.home = Some(ContainerPath::root());
        let roots = Roots::from_record(&it);
        assert_eq!((roots.workdir, roots.home, roots.clones), (None, None, vec![]));
    }
}
