//! Tests that create users in images of all kinds.

use super::*;

fn image(passwd: Option<&str>) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
    if let Some(passwd) = passwd {
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/passwd"), passwd).unwrap();
        fs::set_permissions(root.path().join("etc/passwd"), PermissionsExt::from_mode(0o640)).unwrap();
    }
    root
}

/// The user of the tests: an unknown one where root can create it, else the caller.
fn guest() -> (u32, u32) {
    if geteuid().is_root() { (61_234, 61_235) } else { (geteuid().as_raw(), getegid().as_raw()) }
}

fn request(workdir: &str) -> EnsureUser {
    let (uid, gid) = guest();
    EnsureUser { uid, gid, workdir: workdir.into(), bound: vec![] }
}

#[tokio::test]
async fn a_user_is_created_in_an_empty_image() {
    let root = image(None);
    let container = container_at(root.path());
    let (uid, gid) = guest();
    let expected = UserInfo {
        name: "agent".into(),
        home: "/home/agent".into(),
        shell: "/bin/sh".into(),
        uid,
        gid,
        readable: true,
        writable: true,
    };
    for _ in 0..2 {
        assert_eq!(container.ensure_user(request("/work/here")).await.unwrap(), expected);
    }
    let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
    assert_eq!(read("etc/passwd"), format!("agent:x:{uid}:{gid}::/home/agent:/bin/sh\n"));
    assert_eq!(read("etc/group"), format!("agent:x:{gid}:\n"));
    let of = |path: &str| fs::metadata(root.path().join(path)).map(|it| (it.uid(), it.mode() & 0o7777)).unwrap();
    assert_eq!((of("home/agent"), of("work/here")), ((uid, 0o700), (uid, 0o755)));
    assert_eq!((of("home"), of("etc/passwd")), ((geteuid().as_raw(), 0o755), (geteuid().as_raw(), 0o644)));
    assert_eq!(fs::read_dir(root.path().join("etc")).unwrap().count(), 2);
}

#[tokio::test]
async fn an_entry_is_reused_but_its_nologin_shell_is_replaced() {
    let (uid, _) = guest();
    let line = format!("node:x:{uid}:7::/srv/node:/usr/sbin/nologin");
    let root = image(Some(&line));
    fs::create_dir_all(root.path().join("bin")).unwrap();
    fs::write(root.path().join("bin/zsh"), "").unwrap();
    fs::set_permissions(root.path().join("bin/zsh"), PermissionsExt::from_mode(0o755)).unwrap();
    let user = container_at(root.path()).ensure_user(request("/")).await.unwrap();
    assert_eq!((&*user.name, &*user.home, &*user.shell), ("node", "/srv/node", "/bin/zsh"));
    assert_eq!(fs::read_to_string(root.path().join("etc/passwd")).unwrap(), line);
}

#[tokio::test]
async fn a_table_retains_its_lines_its_mode_and_its_link() {
    let root = image(Some("root:x:0:0::/root:/bin/sh"));
    fs::write(root.path().join("etc/real"), "agent:x:1:").unwrap();
    symlink("/etc/real", root.path().join("etc/group")).unwrap();
    container_at(root.path()).ensure_user(request("/")).await.unwrap();
    let (uid, gid) = guest();
    let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
    assert_eq!(read("etc/passwd"), format!("root:x:0:0::/root:/bin/sh\nagent:x:{uid}:{gid}::/home/agent:/bin/sh\n"));
    assert_eq!(fs::metadata(root.path().join("etc/passwd")).unwrap().mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(root.path().join("etc/group")).unwrap().is_symlink());
    assert_eq!(read("etc/real"), format!("agent:x:1:\nagent2:x:{gid}:\n"));
}

#[tokio::test]
async fn a_bind_mount_retains_its_owner_and_is_checked_as_the_user() {
    let root = image(None);
    for (name, mode) in [("closed", 0o700), ("readable", 0o755), ("open", 0o777)] {
        fs::create_dir(root.path().join(name)).unwrap();
        fs::set_permissions(root.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    symlink("/readable", root.path().join("link")).unwrap();
    let own = !is_root();
    let container = container_at(root.path());
    for (workdir, readable, writable) in
        [("/closed", own, own), ("/readable", true, own), ("/link", true, own), ("/open", true, true)]
    {
        let bound = vec![workdir.to_owned()];
        let user = container.ensure_user(EnsureUser { bound, ..request(workdir) }).await.unwrap();
        assert_eq!((user.readable, user.writable), (readable, writable), "{workdir}");
        assert_eq!(fs::symlink_metadata(root.path().join(&workdir[1..])).unwrap().uid(), geteuid().as_raw());
    }
}

#[tokio::test]
async fn a_work_directory_of_root_is_given_to_the_user_unless_all_may_write() {
    if !is_root() {
        return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
    }
    let root = image(None);
    for (name, mode) in [("closed", 0o700), ("open", 0o1777)] {
        fs::create_dir(root.path().join(name)).unwrap();
        fs::set_permissions(root.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    fs::write(root.path().join("closed/file"), "").unwrap();
    let owner = |path: &str| fs::metadata(root.path().join(path)).unwrap().uid();
    for workdir in ["/closed", "/open"] {
        assert!(container_at(root.path()).ensure_user(request(workdir)).await.unwrap().writable, "{workdir}");
    }
    assert_eq!([owner("closed"), owner("closed/file"), owner("open")], [guest().0, 0, 0]);
}

#[tokio::test]
async fn directories_and_users_that_cannot_exist_are_errors() {
    let root = image(None);
    fs::write(root.path().join("file"), "").unwrap();
    symlink("/nowhere", root.path().join("dangling")).unwrap();
    for workdir in ["/file/x", "/file", "/dangling", "relative"] {
        let fault = container_at(root.path()).ensure_user(request(workdir)).await.unwrap_err();
        assert!([ErrorCode::NoDirectory, ErrorCode::Invalid].contains(&fault.code), "{workdir}: {fault:?}");
    }
    let fault = container_at(root.path()).ids(&UserSpec::Name("nobody".into())).unwrap_err();
    assert_eq!(fault.code, ErrorCode::NoUser);
    let fault = container_at(root.path()).ids(&UserSpec::Ids { uid: 0, gid: Some(u32::MAX) }).unwrap_err();
    assert_eq!(fault.code, ErrorCode::NoUser);
}

#[tokio::test]
async fn a_table_that_is_a_pipe_does_not_block() {
    let root = image(None);
    fs::create_dir(root.path().join("etc")).unwrap();
    let pipe = root.path().join("etc/passwd");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let container = container_at(root.path());
    assert_eq!(container.ids(&myself()).unwrap().uid, geteuid().as_raw());
    assert_eq!(container.ensure_user(request("/")).await.unwrap_err().code, ErrorCode::Io);
}
