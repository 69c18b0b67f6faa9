//! The project's files as text.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// A file of the project: its path from the root, and its text.
#[derive(Clone, Debug)]
pub struct Source {
    pub path: String,
    pub text: String,
}

/// The project's files with one of these endings, by path. What is built or fetched is not the project's.
pub fn sources(root: &Path, endings: &[&str]) -> Result<Vec<Source>> {
    let (mut found, mut folders) = (vec![], vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_symlink() || [".git", "target", "node_modules"].contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if endings.contains(&path.extension().unwrap_or_default().to_string_lossy().as_ref())
                && let Ok(text) = fs::read_to_string(&path)
            {
                let path = path.strip_prefix(root)?.to_string_lossy().into_owned();
                found.push(Source { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
