//! Estimates an import without reading content.

use std::collections::BTreeSet;

use super::plan::{Trees, plan};
use super::{HostMount, ImportError};

/// The files that an import would copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportEstimate {
    /// Files.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// The first names in it, those of directories with a `/` at the end, sorted.
    pub names: Vec<String>,
    /// Number of further names.
    pub more_names: usize,
}

/// Estimates an import from names and sizes. Blocks.
///
/// # Errors
/// [`ImportError`], as the copy would end.
pub fn estimate(mount: &HostMount) -> Result<ImportEstimate, ImportError> {
    let plan = plan(mount, &Trees::open(mount)?)?;
    let inner = plan.files.iter().map(|it| it.at.strip_prefix(&mount.at).unwrap_or(&it.at));
    Ok(ImportEstimate::from_files(inner, plan.bytes))
}

impl ImportEstimate {
    /// Limit of reported names.
    const MAX_NAMES: usize = 20;

    /// Estimates files by their paths from the directory.
    pub fn from_files<'a>(files: impl Iterator<Item = &'a str>, bytes: u64) -> Self {
        let (mut count, mut names) = (0, BTreeSet::new());
        for path in files {
            count += 1;
            names.insert(match path.trim_start_matches('/').split_once('/') {
                Some((dir, _)) => format!("{dir}/"),
                None => path.trim_start_matches('/').to_owned(),
            });
        }
        let more_names = names.len().saturating_sub(Self::MAX_NAMES);
        Self { files: count, bytes, names: names.into_iter().take(Self::MAX_NAMES).collect(), more_names }
    }
}
