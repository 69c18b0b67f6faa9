//! Archives as GNU tar writes them.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;

use super::*;

/// A file with holes, in each of the forms that GNU tar writes.
#[test]
fn files_with_holes_keep_them() {
    let source = tempfile::tempdir().unwrap();
    let mut file = File::create(source.path().join("hole")).unwrap();
    file.set_len(300_000).unwrap();
    for at in [0, 100_000, 200_000] {
        use std::os::unix::fs::FileExt as _;
        file.write_all_at(b"content", at).unwrap();
    }
    file.flush().unwrap();
    let content = std::fs::read(source.path().join("hole")).unwrap();
    for format in [
        &["--format=gnu"][..],
        &["--format=pax", "--sparse-version=0.0"],
        &["--format=pax", "--sparse-version=0.1"],
        &["--format=pax", "--sparse-version=1.0"],
    ] {
        let tar = source.path().join("tar");
        let mut words: Vec<&str> =
            vec!["--sparse", "-C", source.path().to_str().unwrap(), "-cf", tar.to_str().unwrap()];
        words.extend(format);
        words.push("hole");
        run_tar(&words);
        let (dir, report) = unpack_bytes(&std::fs::read(&tar).unwrap(), OPTIONS);
        report.unwrap();
        assert!(std::fs::read(dir.path().join("hole")).unwrap() == content, "{format:?}");
        let blocks = dir.path().join("hole").metadata().unwrap().blocks();
        assert!(blocks * 512 < 100_000, "{format:?}: {blocks} blocks");
    }
}

#[test]
fn gnu_tar_s_long_names_are_read() {
    let source = tempfile::tempdir().unwrap();
    let name = format!("{}/{}", "d".repeat(150), "f".repeat(200));
    std::fs::create_dir(source.path().join("d".repeat(150))).unwrap();
    std::fs::write(source.path().join(&name), "long").unwrap();
    std::os::unix::fs::symlink("t".repeat(300), source.path().join("link")).unwrap();
    for format in ["--format=gnu", "--format=pax", "--format=posix"] {
        let tar = tempfile::NamedTempFile::new().unwrap();
        run_tar(&[format, "-C", source.path().to_str().unwrap(), "-cf", tar.path().to_str().unwrap(), "."]);
        let (dir, report) = unpack_bytes(&std::fs::read(tar.path()).unwrap(), OPTIONS);
        assert_eq!(report.unwrap().implied, Vec::<String>::new());
        assert_eq!(read(&dir, &name), "long");
        assert_eq!(std::fs::read_link(dir.path().join("link")).unwrap().as_os_str().len(), 300);
    }
}

#[expect(clippy::disallowed_methods, reason = "the test's own judge")]
fn run_tar(words: &[&str]) {
    let status = std::process::Command::new("tar").args(words).status().unwrap();
    assert!(status.success(), "{words:?}");
}
