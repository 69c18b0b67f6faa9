//! A busybox with the host's git in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use coracle_types::ContainerPath;
use tokio::process::Command;

use crate::engines::{Case, Running, Way, git, tar_of};

/// A running container with a guest and with what git needs to clone over http: its programs and their libraries, where
/// they are on the host.
pub(crate) async fn with_git(case: &Case) -> Running<'_> {
    let dir = PathBuf::from(git(Path::new("/"), &["--exec-path"], "").await);
    let programs = ["git", "git-remote-http", "git-remote-https"].map(|it| dir.join(it));
    let mut files = BTreeSet::from(programs.clone());
    for program in programs {
        files.extend(libraries(&program).await);
    }
    let tar = tar_of(|tar| {
        tar.append_path_with_name(dir.join("git"), "bin/git").unwrap();
        for file in files {
            tar.append_path_with_name(&file, file.strip_prefix("/").unwrap()).unwrap();
        }
    });
    let running = case.runs_with_network(Way::Socket).await;
    case.runtime.upload(&running.id, &ContainerPath::root(), tar).await.unwrap();
    running
}

/// Libraries of a program, the loader among them.
#[expect(clippy::disallowed_methods, reason = "only the loader knows where it finds libraries")]
async fn libraries(program: &Path) -> Vec<PathBuf> {
    let printed = Command::new("ldd").arg(program).output().await.unwrap();
    let text = String::from_utf8(printed.stdout).unwrap();
    let paths = text.split_whitespace().filter(|it| it.starts_with('/')).map(PathBuf::from);
    paths.collect()
}
