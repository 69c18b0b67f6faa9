//! The image of most tests: the host's static busybox, imported once.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use coracle_runtime::{ContainerRuntime, EngineKind, ImageAct, ImageId, ImageRef, Result};
use tar::{Builder, EntryType, Header};

use super::variable;

/// Its name. The digit goes up when the content changes.
pub(crate) const IMAGE: &str = "localhost/coracle-test-busybox:1";

/// A variable of the image, hard to carry.
pub(crate) const FROM_IMAGE: (&str, &str) = ("FROM_IMAGE", r#"a "quoted" $value \ with ${braces}"#);

const APPLETS: &str = "sh awk base64 cat chmod cp cut date dd echo env expr false find grep head hostname httpd id kill ln \
    ls mkdir mv nc printf ps pwd rm sed seq setsid sleep sort stat tail test touch tr true uname wc wget which yes";

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n";

const GROUP: &str = "root:x:0:\nagent:x:1000:\n";

/// The image's id; imports it where it is missing. Tests are processes of their own, so a file is the lock.
///
/// Within one run of `cargo xtask test`, which `CORACLE_TEST_RUN` names, an image that was found once stays.
pub(super) async fn ensure(runtime: &dyn ContainerRuntime) -> Result<ImageId> {
    let (run, note) = (variable("CORACLE_TEST_RUN"), note_file(runtime));
    if let Some(id) = run.as_deref().and_then(|run| noted(run, &note)) {
        return Ok(id);
    }
    let id = import(runtime).await?;
    if let Some(run) = run.filter(|_| runtime.kind() != EngineKind::Fake && runtime.kind() != EngineKind::Container) {
        // Whole or not at all, for whoever reads it meanwhile.
        let mut file = tempfile::NamedTempFile::new_in(note.parent().unwrap()).unwrap();
        write!(file, "{run} {}", id.as_str()).unwrap();
        file.persist(&note).unwrap();
    }
    Ok(id)
}

/// The image that a test of this run found.
fn noted(run: &str, note: &Path) -> Option<ImageId> {
    let text = std::fs::read_to_string(note).ok()?;
    let id = text.strip_prefix(run)?.strip_prefix(' ')?;
    Some(ImageId::parse(id).unwrap())
}

fn note_file(runtime: &dyn ContainerRuntime) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("busybox-{}", runtime.kind()))
}

async fn import(runtime: &dyn ContainerRuntime) -> Result<ImageId> {
    let tag = ImageRef::parse(IMAGE).unwrap();
    let lock = File::create(lock_file(runtime)).unwrap();
    let _lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.unwrap().unwrap();
    let found = runtime.image(ImageAct::Find(vec![tag.clone()])).await?;
    let env = [("PATH", "/bin"), FROM_IMAGE].map(|(name, value)| (name.to_owned(), value.to_owned()));
    // One with another environment was left by a run whose import did not work.
    if let Some(image) = found.iter().find(|it| env.iter().all(|(n, v)| it.env.contains(&format!("{n}={v}")))) {
        return Ok(image.id.clone());
    }
    let made = runtime.image(ImageAct::Import { tar: tar(), tag, env: env.to_vec(), labels: vec![] }).await?;
    Ok(made[0].id.clone())
}

fn lock_file(runtime: &dyn ContainerRuntime) -> PathBuf {
    std::env::temp_dir().join(format!("coracle-test-busybox-{}.lock", runtime.kind()))
}

fn tar() -> File {
    busybox_with(PASSWD, |_| {})
}

/// The root of such an image, with other users and more files.
pub(crate) fn busybox_with(passwd: &str, more: impl FnOnce(&mut Builder<&mut File>)) -> File {
    let busybox = std::fs::read("/bin/busybox").expect("tests need /bin/busybox of the package busybox-static");
    tar_of(|tar| {
        for (dir, mode) in [("bin", 0o755), ("etc", 0o755), ("home/agent", 0o755), ("root", 0o700), ("tmp", 0o1777)] {
            append(tar, EntryType::Directory, mode, dir, &[]);
        }
        append(tar, EntryType::Regular, 0o755, "bin/busybox", &busybox);
        append(tar, EntryType::Regular, 0o644, "etc/passwd", passwd.as_bytes());
        append(tar, EntryType::Regular, 0o644, "etc/group", GROUP.as_bytes());
        for applet in APPLETS.split_whitespace() {
            let mut link = header(EntryType::Symlink, 0o777, 0);
            tar.append_link(&mut link, format!("bin/{applet}"), "busybox").unwrap();
        }
        more(tar);
    })
}

fn append(tar: &mut Builder<&mut File>, kind: EntryType, mode: u32, path: &str, bytes: &[u8]) {
    tar.append_data(&mut header(kind, mode, bytes.len()), path, bytes).unwrap();
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header
}

/// A tar in a file without a name, ready to be read.
pub(crate) fn tar_of(fill: impl FnOnce(&mut Builder<&mut File>)) -> File {
    let mut file = tempfile::tempfile().unwrap();
    let mut tar = Builder::new(&mut file);
    fill(&mut tar);
    tar.finish().unwrap();
    drop(tar);
    file.flush().unwrap();
    file.rewind().unwrap();
    file
}
