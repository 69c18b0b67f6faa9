//! No command leaves a set-id file in a directory of the host, and the container's own files may be some.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use coracle_host::fs::HostPath;
use coracle_runtime::{Access, CreateSpec, Mount};
use coracle_types::{ContainerPath, EngineKind, Exec, Exit};
use rustix::fs::OFlags;
use tempfile::TempDir;
use tokio::time::Instant;

use super::{AGENT, add_perl, argv, perl, sh, until};
use crate::engines::{Case, Running, Way, with_real_engines};

#[cfg(target_arch = "x86_64")]
mod call {
    pub(super) const OPENAT: u32 = 257;
    pub(super) const MKNODAT: u32 = 259;
    pub(super) const FCHMODAT: u32 = 268;
}
#[cfg(target_arch = "aarch64")]
mod call {
    pub(super) const MKNODAT: u32 = 33;
    pub(super) const FCHMODAT: u32 = 53;
    pub(super) const OPENAT: u32 = 56;
}

/// The path of a writable directory of the host.
const BOUND: &str = "/bound";
/// A directory of the container's own.
const OWN: &str = "/own";

/// A container with both and with Perl, and its bound directory.
async fn bound(case: &Case) -> (Running<'_>, TempDir) {
    let host = tempfile::tempdir().unwrap();
    let mount = Mount {
        host: HostPath::open(host.path()).unwrap(),
        at: ContainerPath::parse(BOUND).unwrap(),
        access: Access::ReadWrite,
    };
    let spec = CreateSpec { mounts: vec![mount], ..case.spec("bound") };
    let running = case.run(Way::Socket, spec, &case.image).await;
    add_perl(&running).await;
    running.printed(sh(&format!("mkdir {OWN}; chmod 777 {OWN} {BOUND}; echo x > /tmp/s; chmod 6755 /tmp/s"))).await;
    (running, host)
}

/// Files with a set-id bit below a directory.
fn set_id(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path()) {
        let seen = path.symlink_metadata().unwrap();
        if !seen.is_symlink() && seen.permissions().mode() & 0o6000 != 0 {
            found.push(path.clone());
        }
        if seen.is_dir() {
            found.extend(set_id(&path));
        }
    }
    found
}

/// The mode of a file that a command made, or how the command failed.
async fn mode(running: &Running<'_>, file: &str, exec: Exec) -> String {
    let it = running.ran(exec).await;
    match it.exit {
        Exit::Code(0) => running.printed(argv(&["stat", "-c", "%a", file])).await.trim().to_owned(),
        _ => it.stderr.text().trim().to_owned(),
    }
}

/// Each command creates a file `f` with set-id bits. Has the mode of `f` among the container's own files, and in a bind.
const WAYS: [(&str, &str, &str); 10] = [
    ("echo x > f; chmod u+s f", "4644", "644"),
    ("echo x > f; chmod g+s f", "2644", "644"),
    ("echo x > f; chmod 6755 $PWD/f", "6755", "755"),
    ("echo x > f; ln -s f link; chmod 6755 link", "6755", "755"),
    ("echo x > f; exec 5< f; chmod 6755 /proc/self/fd/5", "6755", "755"),
    ("cat /tmp/s > f; busybox chown 1000:1000 f; chmod 6755 f", "6755", "755"),
    // What `install`, `cp -p` and `dpkg` do.
    ("umask 77; cat /tmp/s > f; chmod 4755 f", "4755", "755"),
    ("busybox tar -c -C /tmp -f t.tar s && busybox tar -xpf t.tar && mv s f", "6755", "755"),
    ("(cd /tmp; echo s | busybox cpio -o -H newc) > t && busybox cpio -i < t && mv s f", "6755", "755"),
    ("mkdir f; chmod g+s f", "2755", "755"),
];

#[tokio::test]
async fn no_call_leaves_a_set_id_bit_on_the_host_and_all_work_on_the_containers_own_files() {
    with_real_engines(async |case| {
        let (running, host) = bound(case).await;
        for (way, own, hosts) in WAYS {
            for (dir, expected) in [(OWN, own), (BOUND, hosts)] {
                let script = format!("cd {dir}; rm -rf f s t t.tar link; {way}");
                assert_eq!(mode(&running, &format!("{dir}/f"), sh(&script)).await, expected, "{script}");
            }
            assert_eq!(set_id(host.path()), Vec::<PathBuf>::new(), "{way}");
        }
        // In the link's directory too, and in files that every engine binds.
        let script = "cd /.coracle/link; echo x > f; chmod 6755 f; chmod u+s sock; stat -c %a f sock; chmod u+s /etc/hosts; \
                      stat -c %a /etc/hosts";
        assert_eq!(running.printed(sh(script)).await, "755\n600\n644\n");
        assert_eq!(set_id(&running.socket.dir), Vec::<PathBuf>::new());
    })
    .await;
}

/// Makes a call with Perl's `syscall` in a directory with a new file `f`. An empty answer is a success.
fn calls(dir: &str, program: &str) -> Exec {
    let nameless = (OFlags::TMPFILE | OFlags::RDWR).bits();
    let numbers =
        [("OPENAT", call::OPENAT), ("MKNODAT", call::MKNODAT), ("FCHMODAT", call::FCHMODAT), ("TMPFILE", nameless)];
    let program = numbers.iter().fold(program.to_owned(), |it, (name, number)| it.replace(name, &number.to_string()));
    let program = format!(
        "chdir '{dir}'; unlink 'f', 'g'; open T, '>', 'f'; close T; my ($f, $g, $here, $how) = ('f', 'g', '.', pack('Q3', 0, 0, 0)); umask 2; \
         ({program}) >= 0 or print $! + 0"
    );
    perl(&program)
}

/// A call, its answer, and the modes of `f` or `g` among the container's own files and in a bind.
const CALLS: [(&str, &str, [&str; 2]); 14] = [
    ("syscall(FCHMODAT, -100, $f, 06755)", "", ["6755", "755"]),
    ("opendir(D, '.'), syscall(FCHMODAT, fileno(D), $f, 06755)", "", ["6755", "755"]),
    ("open(F, '<', 'f'), chmod(06755, *F) - 1", "", ["6755", "755"]),
    // Created in one call with `O_CREAT` and `O_EXCL`, as when Alpine's packages are unpacked.
    ("unlink($f), syscall(OPENAT, -100, $g, 0301, 06777)", "", ["6775", "775"]),
    (
        "unlink($f), open(G, '>&=', $h = syscall(OPENAT, -100, $g, 0302, 04700)) && 0 + syswrite(G, 'x')",
        "",
        ["4700", "700"],
    ),
    ("syscall(OPENAT, -100, $f, 0301, 06777)", "17", ["644", "644"]),
    // Created in other ways: refused.
    ("syscall(OPENAT, -100, $g, 0101, 04755)", "1", ["644", "644"]),
    ("syscall(OPENAT, -100, $here, TMPFILE, 04755)", "1", ["644", "644"]),
    ("syscall(MKNODAT, -100, $g, 0104755, 0)", "1", ["644", "644"]),
    // `openat2` and `fchmodat2`.
    ("syscall(437, -100, $f, $how, 24)", "38", ["644", "644"]),
    ("syscall(452, -100, $f, 04755, 0)", "38", ["644", "644"]),
    // The kernel's own answer.
    ("syscall(FCHMODAT, -100, $g, 06755)", "2", ["644", "644"]),
    ("syscall(FCHMODAT, 99, $f, 06755)", "9", ["644", "644"]),
    ("syscall(FCHMODAT, -100, 1, 06755)", "14", ["644", "644"]),
];

#[tokio::test]
async fn a_call_with_a_set_id_mode_answers_like_the_kernel_or_is_refused() {
    with_real_engines(async |case| {
        let (running, host) = bound(case).await;
        for (program, expected, modes) in CALLS {
            for (dir, mode) in [OWN, BOUND].into_iter().zip(modes) {
                assert_eq!(running.printed(calls(dir, program)).await, expected, "{dir}: {program}");
                let seen = format!("cd {dir}; stat -c %a f 2>&- || stat -c %a g");
                // In a user namespace the kernel takes the bit from a written file, for every writer.
                let is_written = case.engine() == EngineKind::Embedded && program.contains("syswrite");
                let mode = if is_written { mode.trim_start_matches('4') } else { mode };
                assert_eq!(running.printed(sh(&seen)).await.trim(), mode, "{dir}: {program}");
            }
        }
        assert_eq!(set_id(host.path()), Vec::<PathBuf>::new());
    })
    .await;
}

#[tokio::test]
async fn a_mode_is_changed_as_who_asks() {
    with_real_engines(async |case| {
        let (running, _host) = bound(case).await;
        for (dir, expected) in [(OWN, "4755"), (BOUND, "755")] {
            let roots = format!("{dir}/roots");
            running.printed(sh(&format!("echo x > {roots}; mkdir -m 700 {dir}/closed; echo x > {dir}/closed/f"))).await;
            for (file, message) in [("roots", "Operation not permitted"), ("closed/f", "Permission denied")] {
                let it = running.ran(Exec { user: AGENT, ..argv(&["chmod", "4755", &format!("{dir}/{file}")]) }).await;
                assert!(it.exit != Exit::Code(0) && it.stderr.text().contains(message), "{dir}/{file}: {it:?}");
            }
            let mine = Exec { user: AGENT, ..sh(&format!("cd {dir}; echo x > mine; chmod 4755 mine")) };
            assert_eq!(mode(&running, &format!("{dir}/mine"), mine).await, expected);
            // Root without the capability to act for owners is refused another's file.
            let theirs = "my $hdr = pack('LL', 0x20080522, 0); my $none = pack('L6', 0, 0, 0, 0, 0, 0); \
                          syscall(CAPSET, $hdr, $none) == 0 or die; chmod(04755, 'DIR/mine') and die; print $! + 0";
            let capset = if cfg!(target_arch = "aarch64") { "91" } else { "126" };
            let theirs = perl(&theirs.replace("CAPSET", capset).replace("DIR", dir));
            assert_eq!(running.printed(theirs).await, "1", "{dir}");
        }
    })
    .await;
}

/// A path to one of the guest's open files leads nowhere.
#[tokio::test]
async fn a_path_through_proc_is_never_the_guests() {
    with_real_engines(async |case| {
        let (running, _host) = bound(case).await;
        let script = "cd /own; for n in 0 1 2 3 4 5 6 7 8 9 10 11 12; do ln -sfn /proc/self/fd/$n link; \
                      chmod 4755 link 2>&- && echo changed $n; done; chmod 4755 /proc/self/exe 2>&- && echo changed; \
                      ln -sfn /proc/self/root/own/f link; echo x > f; chmod 4755 link 2>&- && echo changed; stat -c %a f";
        assert_eq!(running.printed(sh(script)).await, "644\n");
    })
    .await;
}

/// Many concurrent calls are answered one after the other while commands run.
#[tokio::test]
async fn many_set_id_calls_do_not_block_other_calls() {
    with_real_engines(async |case| {
        let (running, host) = bound(case).await;
        let flood = "chdir '/bound'; fork; fork; fork; open T, '>', $$; my $n = 0; \
                     while (!-e 'stop') { chmod(06755, $$) or die $!; $n++ } print \"$n\n\"; 1 while wait > 0";
        let floods = running.exec(perl(flood));
        let others = async {
            until("eight flood", async || std::fs::read_dir(host.path()).unwrap().count() == 8).await;
            let begun = Instant::now();
            for _ in 0..20 {
                assert_eq!(running.printed(argv(&["echo", "a word"])).await, "a word\n");
            }
            std::fs::write(host.path().join("stop"), "").unwrap();
            begun.elapsed()
        };
        let (flooded, took) = tokio::join!(floods, others);
        let flooded = flooded.unwrap();
        assert_eq!((flooded.exit, flooded.stderr.text().as_str()), (Exit::Code(0), ""), "{flooded:?}");
        let made: u32 = flooded.stdout.text().lines().map(|it| it.parse::<u32>().unwrap()).sum();
        assert!(made > 20 && took.as_secs() < 5, "{made} calls; 20 commands took {took:?}");
        assert_eq!(set_id(host.path()), Vec::<PathBuf>::new());
    })
    .await;
}
