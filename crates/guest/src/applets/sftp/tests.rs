use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use super::*;

const READ: u32 = 1;
const WRITE: u32 = 2;
const APPEND: u32 = 4;
const CREATE: u32 = 8;
const TRUNCATE: u32 = 16;
const EXCLUSIVE: u32 = 32;

/// A client that waits for each answer.
struct SftpClient(SftpServer);

/// The kind of a reply, and its fields.
type Reply = (u8, Vec<u8>);

fn text(text: &[u8]) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat()
}

fn path(path: &Path) -> Vec<u8> {
    text(path.as_os_str().as_bytes())
}

fn number(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

impl SftpClient {
    fn new() -> Self {
        let mut server = SftpServer::default();
        let greeting = server.handle(&[1, 0, 0, 0, 3]).unwrap().finish();
        assert_eq!(greeting[4..9], [2, 0, 0, 0, 3]);
        Self(server)
    }

    fn send(&mut self, kind: u8, fields: &[&[u8]]) -> Reply {
        let packet = [&[kind, 0, 0, 0, 7], fields.concat().as_slice()].concat();
        let reply = self.0.handle(&packet).unwrap().finish();
        assert_eq!(reply[5..9], [0, 0, 0, 7], "the id of the request");
        (reply[4], reply[9..].to_vec())
    }

    fn status(&mut self, kind: u8, fields: &[&[u8]]) -> u32 {
        let (kind, fields) = self.send(kind, fields);
        assert_eq!(kind, 101, "{fields:?}");
        u32::from_be_bytes(fields[..4].try_into().unwrap())
    }

    fn extended(&mut self, name: &str, fields: &[&[u8]]) -> Reply {
        self.send(200, &[&text(name.as_bytes()), &fields.concat()])
    }

    fn try_open(&mut self, at: &Path, flags: u32) -> Result<Vec<u8>, u32> {
        let (kind, fields) = self.send(3, &[&path(at), &flags.to_be_bytes(), &[0; 4]]);
        if kind == 102 { Ok(fields) } else { Err(u32::from_be_bytes(fields[..4].try_into().unwrap())) }
    }

    fn open(&mut self, at: &Path, flags: u32) -> Vec<u8> {
        self.try_open(at, flags).unwrap()
    }

    /// The bytes, or the status.
    fn read(&mut self, handle: &[u8], offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        let (kind, fields) = self.send(5, &[handle, &number(offset), &length.to_be_bytes()]);
        if kind == 103 { Ok(fields[4..].to_vec()) } else { Err(u32::from_be_bytes(fields[..4].try_into().unwrap())) }
    }

    fn write(&mut self, handle: &[u8], offset: u64, bytes: &[u8]) -> u32 {
        self.status(6, &[handle, &number(offset), &text(bytes)])
    }
}

#[test]
fn a_file_open_for_reading_and_writing_returns_the_written_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut client, file) = (SftpClient::new(), dir.path().join("file"));
    let handle = client.open(&file, READ | WRITE | CREATE | TRUNCATE);
    assert_eq!(client.write(&handle, 6, b"world"), 0);
    assert_eq!(client.write(&handle, 0, b"hello "), 0);
    assert_eq!(client.read(&handle, 0, 100).unwrap(), b"hello world");
    assert_eq!(client.read(&handle, 11, 1), Err(1), "the end of the file");
    // Removed from its directory, but still open.
    assert_eq!(client.status(13, &[&path(&file)]), 0);
    assert_eq!(client.write(&handle, 3, b"p!"), 0);
    assert_eq!(client.read(&handle, 0, 6).unwrap(), b"help! ");
    assert_eq!(client.status(4, &[&handle]), 0);
    assert_eq!(client.read(&handle, 0, 6), Err(2), "the handle is closed");
    assert!(!file.exists());
}

#[test]
fn open_obeys_its_flags() {
    let dir = tempfile::tempdir().unwrap();
    let (mut client, file) = (SftpClient::new(), dir.path().join("file"));
    // Each case starts with the file `old`, or without one, and writes `n` at offset 0.
    for (exists, flags, written, read, after) in [
        (true, READ, 2, Ok("old"), Some("old")),
        (true, WRITE, 0, Err(2), Some("nld")),
        (true, READ | WRITE, 0, Ok("nld"), Some("nld")),
        (true, READ | WRITE | CREATE, 0, Ok("nld"), Some("nld")),
        (true, READ | WRITE | TRUNCATE, 0, Ok("n"), Some("n")),
        (true, WRITE | CREATE | TRUNCATE, 0, Err(2), Some("n")),
        (true, READ | WRITE | APPEND, 0, Ok("oldn"), Some("oldn")),
        (true, WRITE | APPEND | CREATE, 0, Err(2), Some("oldn")),
        (true, APPEND, 0, Err(2), Some("oldn")),
        (false, READ | WRITE | CREATE, 0, Ok("n"), Some("n")),
        (false, READ | WRITE | CREATE | EXCLUSIVE, 0, Ok("n"), Some("n")),
        (false, WRITE | APPEND | CREATE, 0, Err(2), Some("n")),
    ] {
        if exists {
            fs::write(&file, "old").unwrap();
        } else {
            fs::remove_file(&file).unwrap();
        }
        let handle = client.open(&file, flags);
        assert_eq!(client.write(&handle, 0, b"n"), written, "{flags}");
        let read_back = client.read(&handle, 0, 100).map(|it| String::from_utf8(it).unwrap());
        assert_eq!(read_back, read.map(str::to_owned), "{flags}");
        assert_eq!(client.status(4, &[&handle]), 0);
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), after, "{flags}");
    }
    assert_eq!(client.try_open(&file, WRITE | CREATE | EXCLUSIVE), Err(4));
    assert_eq!(client.try_open(&dir.path().join("none"), READ | WRITE), Err(2));
    assert_eq!(client.try_open(dir.path(), READ | WRITE), Err(4), "a directory");
}

#[test]
fn a_failed_read_is_an_error_and_not_the_end_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = SftpClient::new();
    let handle = client.open(dir.path(), READ);
    assert_eq!(client.read(&handle, 0, 100), Err(4), "a directory cannot be read");
}

#[test]
fn extensions_behave_like_the_system_calls() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut client = SftpClient::new();
    fs::write(at("one"), "one two").unwrap();
    fs::write(at("other"), "other").unwrap();
    assert_eq!(client.extended("hardlink@openssh.com", &[&path(&at("one")), &path(&at("hard"))]).1[..4], [0; 4]);
    assert_eq!(fs::metadata(at("one")).unwrap().ino(), fs::metadata(at("hard")).unwrap().ino());
    // Only the extension replaces an existing file.
    assert_eq!(client.status(18, &[&path(&at("hard")), &path(&at("other"))]), 4);
    let renamed = client.extended("posix-rename@openssh.com", &[&path(&at("hard")), &path(&at("other"))]);
    assert_eq!((&renamed.1[..4], fs::read_to_string(at("other")).unwrap().as_str()), (&[0; 4][..], "one two"));
    assert_eq!(client.status(18, &[&path(&at("other")), &path(&at("new"))]), 0);

    let (from, to) = (client.open(&at("one"), READ), client.open(&at("copy"), READ | WRITE | CREATE));
    let copied = client.extended("copy-data", &[&from, &number(4), &number(0), &to, &number(1)]);
    assert_eq!((&copied.1[..4], client.read(&to, 0, 9).unwrap()), (&[0; 4][..], b"\0two".to_vec()));
    let copied = client.extended("copy-data", &[&from, &number(0), &number(2), &to, &number(2)]);
    assert_eq!((&copied.1[..4], client.read(&to, 0, 9).unwrap()), (&[0; 4][..], b"\0ton".to_vec()));
    assert_eq!(client.extended("fsync@openssh.com", &[&to]).1[..4], [0; 4]);

    let (kind, blocks) = client.extended("statvfs@openssh.com", &[&path(dir.path())]);
    let expected = rustix::fs::statvfs(dir.path()).unwrap();
    assert_eq!((kind, blocks.len()), (201, 11 * 8));
    assert_eq!(blocks[..24], [expected.f_bsize, expected.f_frsize, expected.f_blocks].map(u64::to_be_bytes).concat());
    assert_eq!(client.extended("fstatvfs@openssh.com", &[&to]).0, 201);
    assert_eq!(client.extended("users-groups-by-id@openssh.com", &[&text(&[0; 4]), &text(&[0; 4])]).1, {
        [text(&text(b"root")), text(&text(b"root"))].concat()
    });
    assert_eq!(client.extended("no-such@example.org", &[]).1[..4], [0, 0, 0, 8]);
}

#[test]
fn attributes_are_set_one_by_one_and_lsetstat_sets_those_of_the_link() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    fs::write(&file, "content").unwrap();
    symlink("file", &link).unwrap();
    let mut client = SftpClient::new();
    let sized = [&[0, 0, 0, 1][..], &number(3)].concat();
    let dated = [0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 9];
    assert_eq!(client.status(9, &[&path(&link), &sized]), 0);
    assert_eq!(client.extended("lsetstat@openssh.com", &[&path(&link), &dated]).1[..4], [0; 4]);
    let dates = [fs::metadata(&file), fs::symlink_metadata(&link)].map(|it| it.unwrap().mtime());
    assert!(dates[0] > 9 && dates[1] == 9, "{dates:?}");
    let handle = client.open(&file, READ | WRITE);
    assert_eq!(client.status(10, &[&handle, &[0, 0, 0, 12, 0, 0, 0o1, 0o240, 0, 0, 0, 5, 0, 0, 0, 9]]), 0);
    let stat = fs::metadata(&file).unwrap();
    assert_eq!((stat.len(), stat.mode() & 0o777, stat.atime(), stat.mtime()), (3, 0o640, 5, 9));
    let (kind, shown) = client.send(17, &[&path(&link)]);
    assert_eq!(
        (kind, &shown[..12], &shown[20..]),
        (105, &[0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 3][..], { &[0u8, 0, 0o201, 0o240, 0, 0, 0, 5, 0, 0, 0, 9][..] })
    );
}

#[test]
fn a_directory_is_listed_completely_even_with_odd_names() {
    let dir = tempfile::tempdir().unwrap();
    let unusual = std::ffi::OsStr::from_bytes(b"\xff\n");
    fs::write(dir.path().join(unusual), "").unwrap();
    for number in 0..250 {
        fs::write(dir.path().join(number.to_string()), "").unwrap();
    }
    let mut client = SftpClient::new();
    let (_, handle) = client.send(11, &[&path(dir.path())]);
    let (mut count, mut found) = (0, false);
    loop {
        let (kind, fields) = client.send(12, &[&handle]);
        if kind == 101 {
            assert_eq!(fields[..4], [0, 0, 0, 1]);
            break;
        }
        count += u32::from_be_bytes(fields[..4].try_into().unwrap());
        found |= fields.windows(6).any(|it| it == text(b"\xff\n"));
    }
    assert_eq!((count, found), (253, true), "250 files, the odd one, `.` and `..`");
}

#[test]
fn truncated_and_unknown_requests_get_an_error_reply() {
    let mut client = SftpClient::new();
    assert_eq!(client.status(3, &[&text(b"/x")]), 5);
    assert_eq!(client.status(6, &[&[0, 0, 0, 9, 1]]), 5);
    assert_eq!(client.status(99, &[]), 8);
    assert_eq!(client.status(5, &[&text(b"no handle"), &[0; 12]]), 2);
    let mut out = Vec::new();
    assert!(serve_on(&[0xff, 0xff, 0xff, 0xff, 1][..], &mut out).is_err(), "a length alone must not allocate memory");
    serve_on(&[0, 0, 0, 5, 1, 0, 0, 0, 3, 0, 0, 0, 5, 99, 0, 0, 0, 1][..], &mut out).unwrap();
    assert!(out.len() > 100, "both replies are flushed when the input ends");
}
