//! Known escapes from containers, replayed by their mechanism: each attempt fails on every engine it is run on.
//!
//! By default these containers have no guest, since the guest's own filter is not part of the isolation. No attempt would
//! harm the machine if it succeeded: files of the host are opened and not written, but for a canary of the test's own.
//!
//! | file | mechanisms |
//! |---|---|
//! | `mounts` | images with links where the engine mounts |
//! | `copies` | archives and trees that lead copies out of the container |
//! | `entering` | programs that catch a command which enters the container |
//! | `kernel` | system calls and files that reach the host's kernel |

mod copies;
mod entering;
mod kernel;
mod mounts;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use coracle_runtime::{CreateSpec, ExecTarget, Image, NetworkAttachment, Policy, admit};
use coracle_types::{Command, ContainerId, ContainerPath, Exec, ExecOutput, Ids, Result, random_hex};
use tar::{Builder, EntryType, Header};

use crate::conformance::import;
use crate::engines::{Case, busybox_with};

/// The text of a file of the host that no container may read.
const SECRET: &str = "of the host alone";

/// A directory of the host with a file. A container that escapes reads the file, changes it, or adds another.
#[derive(Debug)]
struct Canary {
    dir: tempfile::TempDir,
}

impl Canary {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::Builder::new().prefix("coracle-canary-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(dir.path().join("secret"), SECRET).unwrap();
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn secret(&self) -> PathBuf {
        self.path().join("secret")
    }

    /// Nothing was added, changed or mounted.
    fn check(&self) {
        let names: Vec<_> = fs::read_dir(self.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"], "a container reached the host's files");
        assert_eq!(fs::read_to_string(self.secret()).unwrap(), SECRET);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.path().to_str().unwrap()), "something is mounted at the host's path");
    }
}

fn sh(script: &str) -> Exec {
    Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root())
}

fn argv(words: &[&str]) -> Exec {
    let words = words.iter().copied().map(str::to_owned).collect();
    Exec::new(Command::Argv(words), Ids::ROOT, ContainerPath::root())
}

fn path(text: &str) -> ContainerPath {
    ContainerPath::parse(text).unwrap()
}

/// Everything that a command printed.
fn output_of(it: &ExecOutput) -> String {
    it.stdout.text() + &it.stderr.text()
}

fn link(tar: &mut Builder<&mut File>, at: &str, target: &str) {
    let mut header = header(EntryType::Symlink, 0o777, 0);
    tar.append_link(&mut header, at, target).unwrap();
}

fn file(tar: &mut Builder<&mut File>, at: &str, mode: u32, text: &str) {
    tar.append_data(&mut header(EntryType::Regular, mode, text.len()), at, text.as_bytes()).unwrap();
}

fn dir(tar: &mut Builder<&mut File>, at: &str) {
    tar.append_data(&mut header(EntryType::Directory, 0o755, 0), at, &[][..]).unwrap();
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size as u64);
    header
}

/// A busybox image with more files in it.
async fn image(case: &Case, more: impl FnOnce(&mut Builder<&mut File>)) -> Image {
    let tag = case.tag(&format!("escape-{}", random_hex::<4>()));
    let passwd = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n";
    import(case, &tag, busybox_with(passwd, more)).await
}

/// Creates and starts a container of that image; an engine may refuse either.
async fn try_run(case: &Case, spec: CreateSpec, image: &Image) -> Result<ContainerId> {
    let placed = admit(spec, &Policy::everything()).unwrap().with_image(image.id.clone(), NetworkAttachment::None);
    let id = case.runtime.create(&placed).await?;
    case.runtime.start(&id).await?;
    Ok(id)
}

/// Runs a command in it, if it runs.
async fn run_in(case: &Case, id: &ContainerId, exec: Exec) -> Result<ExecOutput> {
    ExecTarget::Plain(case.runtime.clone(), id.clone()).exec(exec).await
}
