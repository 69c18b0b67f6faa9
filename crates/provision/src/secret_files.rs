//! Files of the user that may contain secrets. They are written to the container's tmpfs and never to disk.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use coracle_client::SecretFile;
use coracle_types::{Command, ContainerPath, Exit, Secret};
use futures_util::future::join_all;

use crate::{ReportItem, StepContext};

/// Maximum size of a key or a configuration file.
const MAX_FILE: u64 = 64 << 10;

/// Maximum number of files in one directory.
const MAX_FILES: usize = 64;

/// Opening a FIFO must not block.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// Files of one directory of the host, in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFiles {
    /// Name and content.
    pub files: Vec<(String, Secret)>,
    /// Files that were wanted and cannot be forwarded, with the reason.
    pub left_out: Vec<(String, &'static str)>,
}

impl SecretFiles {
    /// Whether there is no file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Reads the wanted files of a directory, ordered by name. A link is followed only within the directory, since the
    /// caller means no other one.
    pub(crate) fn read(dir: &Path, wanted: impl Fn(&str) -> bool) -> Self {
        let mut found = Self::default();
        let Ok(dir) = Dir::open_ambient_dir(dir, ambient_authority()) else { return found };
        let names = dir.entries().into_iter().flatten().filter_map(|it| it.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|it| wanted(it)).collect();
        names.sort();
        for name in names {
            let content = if found.files.len() < MAX_FILES { content(&dir, &name) } else { Err("there are too many") };
            match content {
                Ok(content) => found.files.push((name, content)),
                Err(why) => found.left_out.push((name, why)),
            }
        }
        found
    }

    pub(crate) fn left_out_items(&self) -> impl Iterator<Item = ReportItem> {
        self.left_out.iter().map(|(name, why)| ReportItem::skipped(name).with("why", *why))
    }
}

fn content(dir: &Dir, name: &str) -> Result<Secret, &'static str> {
    if !name.bytes().all(|it| it.is_ascii_alphanumeric() || b"._-".contains(&it)) {
        return Err("its name has other characters than letters, digits, `.`, `_` and `-`");
    }
    let unreadable = |_| "it cannot be read, or is a link that leads elsewhere";
    let mut options = OpenOptions::new();
    let file = dir.open_with(name, options.read(true).custom_flags(NONBLOCK)).map_err(unreadable)?;
    let seen = file.metadata().map_err(unreadable)?;
    if !seen.is_file() {
        return Err("it is no regular file");
    }
    let mut bytes = Vec::with_capacity(usize::try_from(seen.len().min(MAX_FILE)).unwrap_or_default() + 1);
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let content = Secret::new(bytes);
    if content.len() as u64 > MAX_FILE { Err("it is longer than 64 KiB") } else { Ok(content) }
}

/// Writes files concurrently to a directory of the tmpfs, readable only by the exec user.
pub(crate) async fn put(context: &StepContext, dir: &str, files: &[(String, Secret)]) -> Vec<ReportItem> {
    let put = |(name, content): &(String, Secret)| {
        let file =
            SecretFile { name: format!("{dir}/{name}"), user: context.user, mode: 0o600, content: content.clone() };
        let name = name.clone();
        async move {
            match context.link.put_secret(file).await {
                Ok(_) => ReportItem::success(name),
                Err(err) => ReportItem::failed(name, err.to_string()),
            }
        }
    };
    join_all(files.iter().map(put)).await
}

/// Prints which of the given files are readable.
const READABLE: &str = r#"for it; do if [ -f "$it" ] && [ -r "$it" ]; then printf '%s\n' "$it"; fi; done"#;

/// Tests as the exec user which files of a directory are readable, and turns the others into failures. False if the
/// image has no shell.
pub(crate) async fn tried(
    context: &StepContext,
    dir: &ContainerPath,
    items: &mut [ReportItem],
) -> Result<bool, String> {
    let words = ["/bin/sh", "-c", READABLE, "coracle"].map(str::to_owned);
    let names = items.iter().filter(|it| it.error.is_none()).map(|it| it.name.clone());
    let command = Command::Argv(words.into_iter().chain(names).collect());
    let exec = context.exec(command, dir, Duration::from_secs(10));
    let output = match context.link.exec(exec).await {
        Ok(output) => output,
        Err(err) => return Err(err.to_string()),
    };
    match output.exit {
        Exit::Code(126 | 127) => return Ok(false),
        Exit::Code(0) => {}
        exit => return Err(format!("the probe did not end well ({exit:?})")),
    }
    let printed = output.stdout.text();
    for item in items.iter_mut().filter(|it| it.error.is_none()) {
        if !printed.lines().any(|it| it == item.name) {
            *item = ReportItem::failed(&item.name, "the exec user cannot read it");
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_short_files_of_the_directory_itself_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (keys, outside) = (dir.path().join(".ssh"), dir.path().join("outside"));
        fs::create_dir_all(keys.join("id_dir")).unwrap();
        fs::write(&outside, "outside").unwrap();
        fs::write(keys.join("id_a"), "a").unwrap();
        fs::write(keys.join("id_b.pub"), "b").unwrap();
        fs::write(keys.join("other"), "other").unwrap();
        fs::write(keys.join("id_x y"), "x").unwrap();
        fs::write(keys.join("id_longest"), vec![b'x'; 64 << 10]).unwrap();
        fs::write(keys.join("id_longer"), vec![b'x'; (64 << 10) + 1]).unwrap();
        symlink("id_a", keys.join("id_link")).unwrap();
        symlink(&outside, keys.join("id_out")).unwrap();
        symlink("../outside", keys.join("id_up")).unwrap();
        let pipe = keys.join("id_pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let found = SecretFiles::read(&keys, |it| it.starts_with("id_"));
        let names: Vec<_> = found.files.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(names, ["id_a", "id_b.pub", "id_link", "id_longest"]);
        assert_eq!(found.files[2].1.reveal(), b"a");
        let left_out: Vec<_> = found.left_out.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(left_out, ["id_dir", "id_longer", "id_out", "id_pipe", "id_up", "id_x y"]);
        assert_eq!(SecretFiles::read(&dir.path().join("none"), |_| true), SecretFiles::default());
    }
}
