//! Mounts that would circumvent the protected paths.

use std::path::Path;

use coracle_context::failure::Failure;
use coracle_provision::ProtectedBinds;
use coracle_runtime::{Access, Mount, PolicyRefusal, Problem, leads_to_protected};
use coracle_types::ContainerPath;

use super::inside_path::PathInside;
use crate::requests::Content;

/// A protected path is mounted read-only over the writable directory that contains it. That does not help if the path,
/// or a directory that leads to it, is mounted once more by itself, or if another mount takes its place.
pub fn check(mounts: &[Mount], protected: &[String]) -> Result<(), Failure> {
    let problems = ways_around(mounts, protected);
    if !problems.is_empty() {
        return Err(PolicyRefusal { problems }.into());
    }
    match in_place_of(mounts, protected) {
        Some(message) => Err(Failure::invalid("mounts", message).hint("mount it somewhere else in the container")),
        None => Ok(()),
    }
}

/// Finds writable mounts of protected paths, or of directories that lead to one.
pub(crate) fn ways_around(mounts: &[Mount], protected: &[String]) -> Vec<Problem> {
    writable(mounts).filter_map(|it| around(it.host.real(), protected)).collect()
}

/// Finds a mount at a protected path of another one.
pub(crate) fn in_place_of(mounts: &[Mount], protected: &[String]) -> Option<String> {
    writable(mounts).find_map(|bind| {
        let on_it = |other: &&Mount| {
            let inside = Path::new(other.at.as_str()).strip_prefix(bind.at.as_str());
            other.at != bind.at && inside.is_ok_and(|it| protected.iter().any(|path| touches(it, Path::new(path))))
        };
        let other = mounts.iter().find(on_it)?;
        Some(format!("`{}` lies on a protected path of `{}`", other.at, bind.at))
    })
}

fn writable(mounts: &[Mount]) -> impl Iterator<Item = &Mount> {
    mounts.iter().filter(|it| it.access == Access::ReadWrite)
}

/// Fails for files at a protected path of a mount. Paths that are only known inside are checked there.
pub(super) fn files(
    files: &[(PathInside, Content)],
    mounts: &[Mount],
    workdir: &ContainerPath,
    names: &[String],
) -> Result<(), Failure> {
    let roots = mounts.iter().map(|it| it.at.clone()).collect();
    let protected = ProtectedBinds { roots, names: names.to_vec() };
    let path = |inside: &PathInside| match inside {
        PathInside::Absolute(path) => Some(path.clone()),
        PathInside::Workdir(rest) => workdir.join(rest).ok(),
        PathInside::Home(_) => None,
    };
    let problem = |path: ContainerPath| Problem {
        rule: "files.protected",
        setting: Some("workspace.protected"),
        value: path.to_string(),
        message: format!("`{path}` is a protected path of a directory of the host"),
    };
    let covered = files.iter().filter_map(|it| path(&it.0)).filter(|it| protected.covers(it));
    let problems: Vec<_> = covered.map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(PolicyRefusal { problems }.into()) }
}

/// Finds a host path that ends with the start of a protected path, or that is in one, wherever the tree begins.
fn around(real: &Path, protected: &[String]) -> Option<Problem> {
    let hit = leads_to_protected(real, protected);
    let value = real.display().to_string();
    let message = format!("`{value}` is, or leads to, a protected path: mount it read-only, or the directory above it");
    hit.then_some(Problem { rule: "files.protected", setting: Some("workspace.protected"), value, message })
}

fn touches(path: &Path, protected: &Path) -> bool {
    path.starts_with(protected) || protected.starts_with(path)
}

#[cfg(test)]
mod tests {
    use coracle_host::fs::HostPath;
    use coracle_types::ContainerPath;

    use super::*;

    fn rule(host: &str, at: &str, access: Access) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(host)).unwrap();
        let mount = |host: &Path, at: &str, access| Mount {
            host: HostPath::open(host).unwrap(),
            at: ContainerPath::parse(at).unwrap(),
            access,
        };
        let cwd = mount(dir.path(), "/workspace", Access::ReadWrite);
        let other = mount(&dir.path().join(host), at, access);
        let protected = [".git/hooks", ".git/config", ".envrc"].map(String::from);
        check(&[cwd, other], &protected).err().map(|it| it.code.word())
    }

    #[test]
    fn a_directory_that_leads_to_a_protected_path_is_not_mounted_writable() {
        use Access::{ReadOnly, ReadWrite};
        for host in [".git", "sub/.git", ".git/hooks", "sub/.git/hooks/deep"] {
            assert_eq!(rule(host, "/x", ReadWrite).as_deref(), Some("policy_denied"), "{host}");
            assert_eq!(rule(host, "/x", ReadOnly), None, "{host}");
        }
        assert_eq!(rule(".git/objects", "/x", ReadWrite), None);
        assert_eq!(rule("data", "/x", ReadWrite), None);
    }

    #[test]
    fn a_mount_at_a_protected_path_is_refused() {
        for at in ["/workspace/.git", "/workspace/.git/hooks", "/workspace/.git/hooks/x"] {
            assert_eq!(rule("data", at, Access::ReadOnly).as_deref(), Some("invalid_input"), "{at}");
        }
        assert_eq!(rule("data", "/workspace/data", Access::ReadWrite), None);
    }
}
