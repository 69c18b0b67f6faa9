//! Programs that attack a command that enters the container, and descriptors that a command brings along.

use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::Duration;

use coracle_types::{ContainerPath, Exec, ExecLimits, Ids};
use rustix::io::FdFlags;
use sha2::{Digest as _, Sha256};

use super::{Canary, SECRET, argv, file, image, link, output_of, path, run_in, sh, try_run};
use crate::engines::{Way, guest_program, is_root, tar_of, with_a_real_guest, with_real_engines};

/// Runs `commands` while a script runs in the same container, and returns the script's output.
async fn watched(running: &crate::engines::Running<'_>, script: &str, commands: impl Future<Output = ()>) -> String {
    let limits = ExecLimits { total: Some(Duration::from_secs(20)), ..ExecLimits::default() };
    let watching = running.ran(Exec { limits, ..sh(script) });
    tokio::join!(watching, commands).0.stdout.text()
}

/// CVE-2019-5736: `/proc/PID/exe` of a command that enters is the engine's own program, which root inside overwrites.
/// The embedded engine has a file in memory there, which may be changed, since only one command uses it.
#[tokio::test]
async fn the_engines_program_cannot_be_opened_for_writing() {
    let programs = ["/usr/bin/runc", "/usr/sbin/runc", "/usr/bin/crun", "/usr/bin/conmon", "/usr/bin/docker-init"];
    let programs = programs.map(PathBuf::from).into_iter().filter(|it| it.exists());
    let programs: Vec<_> = programs.chain([std::env::current_exe().unwrap(), guest_program()]).collect();
    let state = || {
        let state = |it: &PathBuf| std::fs::metadata(it).map(|it| (it.len(), it.modified().unwrap())).unwrap();
        programs.iter().map(state).collect::<Vec<_>>()
    };
    let before = state();
    // While this test runs, its own program cannot be opened for writing. Without root it would be open to root inside
    // afterwards, so it may not run there at all. As root it belongs to no user of the container.
    let own = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let own = if is_root() { String::new() } else { format!("*/{own}*) echo ran $exe;;") };
    with_real_engines(async |case| {
        let image = image(case, |tar| {
            file(tar, "bin/again", 0o755, "#!/proc/self/exe\n");
            link(tar, "bin/itself", "/proc/self/exe");
        })
        .await;
        let running = case.run(Way::Plain, case.spec("exe"), &image.id).await;
        let script = format!(
            "until [ -e /stop ]; do for at in /proc/[0-9]*; do
            exe=$(readlink $at/exe) || continue; case $exe in {own} /bin/busybox*) continue;;
            /memfd:coracle-exec*) chmod 0 $at/exe 2>/dev/null; continue;; esac
            (: >> $at/exe) 2>/dev/null && echo opened $exe; done; done"
        );
        let opened = watched(&running, &script, async {
            for _ in 0..15 {
                let _ = running.exec(argv(&["/bin/again"])).await;
                let _ = running.exec(argv(&["/bin/itself"])).await;
                let _ = running.exec(argv(&["true"])).await;
            }
            // Not by a command: the script may change the program of that one too, so that it fails.
            case.runtime
                .upload(&running.id, &ContainerPath::root(), tar_of(|tar| file(tar, "stop", 0o644, "")))
                .await
                .unwrap();
        })
        .await;
        assert_eq!(opened, "");
    })
    .await;
    assert_eq!(before, state(), "a program of the host was changed");
}

/// The same for the guest, which is bound into containers.
#[tokio::test]
async fn the_guests_program_cannot_be_changed_from_inside() {
    let before = Sha256::digest(std::fs::read(guest_program()).unwrap());
    with_a_real_guest(async |running| {
        let script = "for at in /.coracle/guest /proc/1/exe; do (: >> $at) 2>/dev/null && echo opened $at; rm -f $at; done; true";
        assert_eq!(running.ran(sh(script)).await.stdout.text(), "");
    })
    .await;
    assert!(before == Sha256::digest(std::fs::read(guest_program()).unwrap()));
}

/// CVE-2016-9962: a command that enters is traced, and its descriptors are used, before it is confined.
#[tokio::test]
async fn a_command_that_enters_shows_nothing_of_the_host() {
    with_real_engines(async |case| {
        let (canary, running) = (Canary::new(), case.runs(Way::Plain).await);
        let secret = canary.secret();
        let script = format!(
            "until [ -e /stop ]; do for at in /proc/[0-9]*; do for way in $at/root $at/cwd $at/fd/*; do
            [ -d $way ] || continue; cat $way{0} $way/..{0} $way/../../../../../..{0} 2>/dev/null; done; done; done",
            secret.display()
        );
        let shown = watched(&running, &script, async {
            for _ in 0..15 {
                let _ = running.exec(argv(&["true"])).await;
            }
            running.ran(sh("touch /stop")).await;
        })
        .await;
        assert_eq!(shown, "");
    })
    .await;
}

/// CVE-2024-21626: the working directory of a command is a descriptor that the engine left open.
#[tokio::test]
async fn the_directory_of_a_command_leads_nowhere_outside() {
    with_real_engines(async |case| {
        let canary = Canary::new();
        for way in [Way::Plain, Way::Socket] {
            let running = case.runs(way).await;
            let secret = canary.secret();
            let ups: String = (0..8)
                .map(|it| format!("cat {}{} 2>/dev/null;", "./..".to_owned() + &"/..".repeat(it), secret.display()))
                .collect();
            let script = format!("cat .{} 2>/dev/null; {ups} true", secret.display());
            for descriptor in 3..16 {
                let workdir = path(&format!("/proc/self/fd/{descriptor}"));
                let it = running.exec(Exec { workdir, ..sh(&script) }).await;
                assert!(!it.is_ok_and(|it| output_of(&it).contains(SECRET)), "{way}: {descriptor}");
            }
        }
        canary.check();
    })
    .await;
}

/// CVE-2024-21626, CVE-2019-19921: descriptors of the engine, or of its caller, are open in the container.
#[tokio::test]
async fn no_descriptor_of_the_caller_is_open_inside() {
    let (canary, dir) = (Canary::new(), std::fs::File::open("/").unwrap());
    let file = std::fs::File::open(canary.secret()).unwrap();
    for it in [&dir, &file] {
        rustix::io::fcntl_setfd(it, FdFlags::empty()).unwrap(); // inherited by every program that this process starts
    }
    with_real_engines(async |case| {
        for way in [Way::Plain, Way::Socket] {
            let running = case.runs(way).await;
            for user in [Ids::ROOT, Ids { uid: 1000, gid: 1000 }] {
                let script = "cd /proc/self/fd; for n in *; do [ $n -gt 2 ] && readlink $n; done; cat /proc/1/fd/[3-9]* 2>/dev/null; true";
                let it = running.ran(Exec { user, ..sh(script) }).await;
                let shown = it.stdout.text();
                // The shell's own: the directory that it lists.
                let foreign: Vec<_> = shown.lines().filter(|it| !it.starts_with("/proc/")).collect();
                assert_eq!(foreign, [] as [&str; 0], "{way}, {user}");
            }
        }
    })
    .await;
    assert!(dir.as_raw_fd() > 2 && file.as_raw_fd() > 2);
}

/// CVE-2022-24769: processes begin with inheritable capabilities, which a program with file capabilities turns into its own.
#[tokio::test]
async fn no_process_has_inheritable_or_ambient_capabilities() {
    with_real_engines(async |case| {
        let running = case.runs(Way::Plain).await;
        for user in [Ids::ROOT, Ids { uid: 1000, gid: 1000 }] {
            let script =
                "cat /proc/1/status /proc/self/status | grep -E 'CapInh|CapAmb' | sort -u | cut -f 2 | sort -u";
            assert_eq!(running.printed(Exec { user, ..sh(script) }).await.trim(), "0000000000000000", "{user}");
        }
    })
    .await;
}

/// CVE-2022-1708: a command prints endlessly, and the process that collects its output runs out of memory or disk.
#[tokio::test]
async fn endless_output_uses_only_the_retained_bytes() {
    with_real_engines(async |case| {
        let running = case.runs(Way::Plain).await;
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap().to_owned();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let before = resident();
        let it = running.ran(Exec { keep_bytes: 64 << 10, ..sh("yes | head -c 300000000") }).await;
        assert!(
            it.stdout.total_bytes() == 300_000_000 && it.stdout.bytes().len() <= 65 << 10,
            "{}",
            it.stdout.total_bytes()
        );
        assert!(resident() < before + (64 << 10), "{before} became {} kB", resident());
    })
    .await;
}

/// A program of the container at the path of a program that the engine runs.
#[tokio::test]
async fn a_malicious_shell_of_the_image_is_confined_like_any_program() {
    with_real_engines(async |case| {
        let canary = Canary::new();
        let text = format!(
            "#!/bin/busybox sh\ncat {0}; echo x > {1}/escaped\n",
            canary.secret().display(),
            canary.path().display()
        );
        let image = image(case, |tar| {
            for at in ["usr/bin/env", "usr/bin/setsid", "usr/bin/nsenter"] {
                file(tar, at, 0o755, &text);
            }
        })
        .await;
        let id = try_run(case, case.spec("liar"), &image).await.unwrap();
        for words in [&["/usr/bin/env"][..], &["/usr/bin/nsenter"]] {
            let it = run_in(case, &id, argv(words)).await;
            assert!(!it.is_ok_and(|it| output_of(&it).contains(SECRET)));
        }
        canary.check();
    })
    .await;
}
