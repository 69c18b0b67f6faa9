//! The user of a service, by the tables of its image.

use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use coracle_types::{Ids, ImageId};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use crate::engine::Engine;

/// A table beyond this size is not read.
const MAX_TABLE: u64 = 1 << 20;

/// A user, with its home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceUser {
    pub(super) ids: Ids,
    pub(super) home: String,
}

/// `USER[:GROUP]` by names or numbers; nothing is root.
pub(super) fn resolve(engine: &Engine, image: &ImageId, spec: &str) -> Result<ServiceUser, String> {
    let unreadable = |what: &str| format!("cannot be looked up in the image: {what}");
    let layers = engine.store.layer_dirs(image).map_err(|err| unreadable(&err.to_string()))?.unwrap_or_default();
    let table = |name| read(&layers, name).map_err(|err| unreadable(&err.to_string()));
    find(spec, &table("etc/passwd")?, &table("etc/group")?)
}

fn find(spec: &str, passwd: &str, group: &str) -> Result<ServiceUser, String> {
    let (user, given) = spec.split_once(':').map_or((spec, None), |(user, group)| (user, Some(group)));
    let user = if user.is_empty() { "0" } else { user };
    let number = |it: &str| it.parse::<u32>().ok().filter(|it| *it != u32::MAX);
    let rows = || passwd.lines().map(|it| it.split(':').collect::<Vec<_>>()).filter(|it| it.len() >= 6);
    let row = rows().find(|it| it[0] == user || number(user).is_some() && number(it[2]) == number(user));
    let uid = row.as_ref().and_then(|it| number(it[2])).or_else(|| number(user));
    let uid = uid.ok_or_else(|| format!("has no `{user}` in the image's /etc/passwd"))?;
    let gid = match given {
        None => row.as_ref().and_then(|it| number(it[3])).unwrap_or(if uid == 0 { 0 } else { uid }),
        Some(wanted) => {
            let rows = group.lines().map(|it| it.split(':').collect::<Vec<_>>()).filter(|it| it.len() >= 3);
            let named = rows.into_iter().find(|it| it[0] == wanted).and_then(|it| number(it[2]));
            let gid = named.or_else(|| number(wanted));
            gid.ok_or_else(|| format!("has no `{wanted}` in the image's /etc/group"))?
        }
    };
    let home = row.map(|it| it[5].to_owned()).filter(|it| it.starts_with('/')).unwrap_or_else(|| "/".into());
    Ok(ServiceUser { ids: Ids { uid, gid }, home })
}

/// A regular file of the topmost layer that has the path. Layers hold what strangers packed: no link is followed, and what
/// has the path is opened once it is known to be a file: to open a device is to use it.
fn read(layers: &[PathBuf], path: &str) -> std::io::Result<String> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for layer in layers {
        let root = rustix::fs::open(layer, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let found = match openat2(&root, path, flags, Mode::empty(), resolve) {
            Err(Errno::NOENT) => continue,
            Err(Errno::LOOP | Errno::XDEV | Errno::NOTDIR | Errno::ACCESS) => break,
            found => found?,
        };
        // A removed file is a device.
        if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
            break;
        }
        let again = format!("/proc/self/fd/{}", found.as_raw_fd());
        let file = match rustix::fs::open(again, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::ACCESS) => break,
            opened => opened?,
        };
        let mut bytes = Vec::new();
        std::fs::File::from(file).take(MAX_TABLE).read_to_end(&mut bytes)?;
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\nshort:x\n";
    const GROUP: &str = "root:x:0:\nnode:x:1001:\nwww:x:33:\n";

    #[test]
    fn users_are_found_by_name_and_number() {
        for (spec, ids, home) in [
            ("", "0:0", "/root"),
            ("node", "1000:1001", "/home/node"),
            ("1000", "1000:1001", "/home/node"),
            ("node:www", "1000:33", "/home/node"),
            ("7:8", "7:8", "/"),
            ("0:node", "0:1001", "/root"),
        ] {
            let found = find(spec, PASSWD, GROUP).unwrap();
            assert_eq!((found.ids.to_string().as_str(), found.home.as_str()), (ids, home), "{spec}");
        }
        for bad in ["nobody", "node:nobody", "short", "4294967295"] {
            assert!(find(bad, PASSWD, GROUP).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_table_is_that_of_the_topmost_layer_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let layers: Vec<_> = ["top", "below"].map(|it| dir.path().join(it)).into();
        for layer in &layers {
            std::fs::create_dir_all(layer.join("etc")).unwrap();
        }
        std::fs::write(layers[1].join("etc/passwd"), "below").unwrap();
        assert_eq!(read(&layers, "etc/passwd").unwrap(), "below");
        std::os::unix::fs::symlink("/etc/passwd", layers[0].join("etc/passwd")).unwrap();
        assert_eq!(read(&layers, "etc/passwd").unwrap(), "");
        std::fs::remove_file(layers[0].join("etc/passwd")).unwrap();
        std::fs::write(layers[0].join("etc/passwd"), "top").unwrap();
        assert_eq!(read(&layers, "etc/passwd").unwrap(), "top");
    }

    #[tokio::test]
    async fn what_is_no_file_is_not_opened() {
        use std::time::Duration;
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("etc/passwd");
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        // It waits until the other end is opened.
        let at = pipe.clone();
        let mut writer = tokio::task::spawn_blocking(move || std::fs::File::options().write(true).open(at).map(drop));
        assert!(tokio::time::timeout(Duration::from_millis(100), &mut writer).await.is_err());
        assert_eq!(read(&[dir.path().to_owned()], "etc/passwd").unwrap(), "");
        let opened = tokio::time::timeout(Duration::from_millis(100), &mut writer).await.is_ok();
        let _reader = rustix::fs::open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        assert!(!opened);
        writer.await.unwrap().unwrap();
    }
}
