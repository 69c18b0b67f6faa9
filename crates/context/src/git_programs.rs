//! Files that the user's git runs or reads its configuration from, as configured on the host. They may be in a
//! directory that a container can write: `core.hooksPath = .githooks`, `include.path = ../team.gitconfig`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use coracle_host::git::ConfigError;

use crate::context::Context;
use crate::host_identity::user_git;

/// Keys whose value is a command line; `*` stands for the middle parts.
const COMMANDS: &[&str] = &[
    "core.fsmonitor",
    "core.sshcommand",
    "core.editor",
    "core.pager",
    "core.askpass",
    "core.gitproxy",
    "core.alternaterefscommand",
    "sequence.editor",
    "pager.*",
    "interactive.difffilter",
    "diff.external",
    "diff.*.command",
    "diff.*.textconv",
    "difftool.*.cmd",
    "difftool.*.path",
    "filter.*.clean",
    "filter.*.smudge",
    "filter.*.process",
    "merge.*.driver",
    "mergetool.*.cmd",
    "mergetool.*.path",
    "gpg.program",
    "gpg.*.program",
    "gpg.ssh.defaultkeycommand",
    "credential.helper",
    "credential.*.helper",
    "browser.*.cmd",
    "browser.*.path",
    "man.*.cmd",
    "man.*.path",
    "gc.recentobjectshook",
    "trailer.*.command",
    "trailer.*.cmd",
    "remote.*.uploadpack",
    "remote.*.receivepack",
    "submodule.*.update",
    "tar.*.command",
    "uploadpack.packobjectshook",
    "sendemail.smtpserver",
    "sendemail.tocmd",
    "sendemail.cccmd",
    "hook.*.command",
];

/// Keys whose value is a directory of programs.
const DIRECTORIES: &[&str] = &["core.hookspath", "init.templatedir"];

/// Returns the protected paths of the configuration, and what git runs or reads below these host directories, as
/// absolute paths; a directory ends in `/`.
pub async fn protected<'a>(cx: &Context, dirs: impl IntoIterator<Item = &'a Path>) -> Vec<String> {
    let mut all = cx.config.workspace.protected.clone();
    if !all.iter().any(|name| name.starts_with(".git")) {
        return all; // the user protects nothing of git's
    }
    let tops: BTreeSet<PathBuf> = dirs.into_iter().map(top_level).collect();
    let git = user_git(cx).await;
    for top in tops {
        match git.effective_config(&top, &cx.host.home, Some(&cx.host.config_home)).await {
            Ok(config) => all.extend(paths(&config, &top, &cx.host.home)),
            Err(ConfigError::NoGit | ConfigError::Empty) => {}
            Err(err) => tracing::warn!(dir = %top.display(), %err, "cannot find the programs that git runs in it"),
        }
    }
    all
}

/// Returns the work tree around a directory, or the directory itself.
fn top_level(dir: &Path) -> PathBuf {
    let is_top = |dir: &&Path| dir.join(".git").symlink_metadata().is_ok();
    dir.ancestors().find(is_top).unwrap_or(dir).to_owned()
}

/// Returns the paths in the output of `git config --list`.
fn paths(config: &[u8], top: &Path, home: &Path) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut fields = config.split(|byte| *byte == 0);
    while let (Some(origin), Some(entry)) = (fields.next(), fields.next()) {
        let (key, value) = match entry.iter().position(|byte| *byte == b'\n') {
            Some(end) => (&entry[..end], &entry[end + 1..]),
            None => (entry, &[][..]),
        };
        let (key, value) = (String::from_utf8_lossy(key).to_lowercase(), text(value));
        let file = origin.strip_prefix(b"file:").map(|name| top.join(text(name)));
        let beside = file.as_deref().and_then(Path::parent).unwrap_or(top).to_owned();
        let at = |base: &Path| match value.strip_prefix("~") {
            Ok(rest) => home.join(rest),
            Err(_) => base.join(&value),
        };
        if let Some(file) = file {
            add(&mut found, &file, "");
        }
        if key == "include.path" || key.starts_with("includeif.") {
            add(&mut found, &at(&beside), "");
        } else if key == "core.attributesfile" {
            add(&mut found, &at(top), "");
        } else if DIRECTORIES.contains(&key.as_str()) {
            add(&mut found, &at(top), "/");
        } else if COMMANDS.iter().any(|pattern| is_key(&key, pattern)) {
            for program in programs(&value.to_string_lossy(), top, home) {
                add(&mut found, &program, "");
            }
        }
    }
    found.into_iter().collect()
}

fn text(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

/// Adds a path as written, which may be a link, and its real path.
fn add(found: &mut BTreeSet<String>, path: &Path, ending: &str) {
    let real = path.canonicalize().ok();
    for path in [Some(plain(path)), real].into_iter().flatten() {
        found.extend(path.to_str().map(|it| format!("{}{ending}", it.trim_end_matches('/'))));
    }
}

/// Removes `.` and `..` by the text. [`add`] resolves the path, so that links are followed too.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

fn is_key(key: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        Some((first, last)) => key.len() > pattern.len() - 1 && key.starts_with(first) && key.ends_with(last),
        None => key == pattern,
    }
}

/// Finds regular files among the arguments of a command line.
fn programs(command: &str, top: &Path, home: &Path) -> Vec<PathBuf> {
    let words = shlex::split(command).unwrap_or_else(|| command.split_whitespace().map(str::to_owned).collect());
    let path = |word: &String| {
        let word = word.trim_start_matches('!');
        let in_home = word.strip_prefix("~/").or_else(|| word.strip_prefix("$HOME/"));
        in_home.map_or_else(|| top.join(word), |rest| home.join(rest))
    };
    words.iter().map(path).filter(|path| path.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_paths_are_resolved_as_git_does() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for file in ["tools/watch.sh", "clean.py", "README"] {
            std::fs::create_dir_all(top.join(file).parent().unwrap()).unwrap();
            std::fs::write(top.join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("tools", top.join("link")).unwrap();
        let named = |origin: &str, entry: &str| {
            let list = format!("file:{origin}\0{entry}\0");
            let of_origin = top.join(origin).display().to_string();
            let all = paths(list.as_bytes(), &top, Path::new("/home/u"));
            let inside = |it: String| it.strip_prefix(&format!("{}/", top.display())).map_or(it.clone(), str::to_owned);
            all.into_iter().filter(|it| *it != of_origin).map(inside).collect::<Vec<_>>()
        };
        for (entry, expected) in [
            ("core.hookspath\n.githooks", &[".githooks/"][..]),
            ("core.hookspath\nlink/hooks", &["link/hooks/"]),
            ("core.hookspath\nlink", &["link/", "tools/"]),
            ("core.hookspath\n~/hooks", &["/home/u/hooks/"]),
            ("include.path\n../team.gitconfig", &["team.gitconfig"]),
            ("includeif.gitdir:~/work/.path\n/etc/none", &["/etc/none"]),
            ("core.fsmonitor\n./tools/watch.sh", &["tools/watch.sh"]),
            ("core.fsmonitor\ntrue", &[]),
            ("filter.mine.clean\npython3 clean.py --in %f", &["clean.py"]),
            ("filter.mine.required\nREADME", &[]),
            ("alias.r\n!cat README", &[]),
            ("core.bare", &[]),
        ] {
            assert_eq!(named(".git/config", entry), expected, "{entry}");
        }
        let origin = paths(b"file:team.gitconfig\0user.name\nx\0", &top, Path::new("/home/u"));
        assert_eq!(origin, [top.join("team.gitconfig").display().to_string()], "files that are read are listed");
    }
}
