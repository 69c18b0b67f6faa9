//! The image of most tests: the host's static busybox, imported once.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::PathBuf;

use coracle_runtime::{ContainerRuntime, ImageImport};
use coracle_types::{ImageId, ImageRef, Result};
use tar::{Builder, EntryType, Header};

/// Its name. Increase the digit when the content changes.
pub(crate) const IMAGE: &str = "localhost/coracle-test-busybox:2";

/// A variable of the image, hard to carry.
pub(crate) const FROM_IMAGE: (&str, &str) = ("FROM_IMAGE", r#"a "quoted" $value \ with ${braces}"#);

const APPLETS: &str = "sh awk base64 cat chmod cp cut date dd echo env expr false find grep head hostname httpd id kill ln \
    ls mkdir mv nc printf ps pwd rm sed seq setsid sleep sort stat tail test touch tr true truncate uname wc wget which yes";

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n";

const GROUP: &str = "root:x:0:\nagent:x:1000:\n";

/// The image's id; imports it where it is missing. Tests are processes of their own, so a file is the lock.
pub(super) async fn ensure(runtime: &dyn ContainerRuntime) -> Result<ImageId> {
    let tag = ImageRef::parse(IMAGE).unwrap();
    let lock = File::create(lock_file(runtime)).unwrap();
    let _lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.unwrap().unwrap();
    let found = runtime.find_images(std::slice::from_ref(&tag)).await?;
    let env = [("PATH", "/bin"), FROM_IMAGE].map(|(name, value)| (name.to_owned(), value.to_owned()));
    // An image with another environment is left from a run whose import failed.
    if let Some(image) = found.iter().find(|it| env.iter().all(|(n, v)| it.env.contains(&format!("{n}={v}")))) {
        return Ok(image.id.clone());
    }
    let made = runtime.import_image(ImageImport { tar: tar(), tag, env: env.to_vec(), labels: vec![] }).await?;
    Ok(made.id)
}

fn lock_file(runtime: &dyn ContainerRuntime) -> PathBuf {
    coracle_skips::of_account(&format!("busybox-{}.lock", runtime.kind()))
}

fn tar() -> File {
    busybox_with(PASSWD, |_| {})
}

/// The root file system of such an image, with other users and more files.
pub(crate) fn busybox_with(passwd: &str, more: impl FnOnce(&mut Builder<&mut File>)) -> File {
    let busybox = std::fs::read(coracle_skips::busybox()).unwrap();
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

pub(super) fn append(tar: &mut Builder<&mut File>, kind: EntryType, mode: u32, path: &str, bytes: &[u8]) {
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
