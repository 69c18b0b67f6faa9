//! Images with links where the engine mounts.

use coracle_host::fs::HostPath;
use coracle_runtime::{Access, CreateSpec, Mount, Tmpfs, VolumeCreate, VolumeMount};
use coracle_types::{ByteSize, VolumeName};

use super::{Canary, SECRET, dir, file, image, link, output_of, path, run_in, sh, try_run};
use crate::engines::{is_root, with_real_engines};

/// What escapes through a target with a link in it write.
const TOUCH: &str = "for at in /data /mem /deep/er /vol; do echo x > $at/escaped; done; true";

/// CVE-2021-30465, CVE-2023-27561, CVE-2024-1753: the target of a bind, a volume or a tmpfs is a link out of the root.
#[tokio::test]
async fn a_link_at_a_mount_target_leads_to_nothing_of_the_host() {
    with_real_engines(async |case| {
        let (canary, source) = (Canary::new(), tempfile::tempdir().unwrap());
        let up = format!("../../../../../../../..{}", canary.path().display());
        let image = image(case, |tar| {
            link(tar, "data", canary.path().to_str().unwrap());
            link(tar, "mem", &up);
            link(tar, "deep", &up);
            link(tar, "vol", &up);
        })
        .await;
        let name = VolumeName::parse(case.name("linked").as_str()).unwrap();
        let new = VolumeCreate { name: name.clone(), labels: vec![case.label()], size: None };
        case.runtime.create_volume(&new).await.unwrap();
        let host = HostPath::open(&source.path().canonicalize().unwrap()).unwrap();
        let bind = |at: &str| Mount { host: host.clone(), at: path(at), access: Access::ReadWrite };
        let spec = CreateSpec {
            mounts: vec![bind("/data"), bind("/deep/er")],
            volumes: vec![VolumeMount { name, at: path("/vol"), access: Access::ReadWrite }],
            tmpfs: vec![Tmpfs { at: path("/mem"), size: ByteSize::mib(1), mode: 0o777 }],
            ..case.spec("linked")
        };
        if let Ok(id) = try_run(case, spec, &image).await {
            let _ = run_in(case, &id, sh(TOUCH)).await;
        }
        canary.check();
    })
    .await;
}

/// CVE-2019-16884, CVE-2025-52881: `/proc` is a link or holds links, so that what the engine writes to `/proc` or checks
/// there is another file.
#[tokio::test]
async fn an_images_own_proc_and_sys_are_not_used() {
    with_real_engines(async |case| {
        for (name, of_image) in [("proc", "link"), ("sys", "link"), ("proc", "directory")] {
            let canary = Canary::new();
            let image = image(case, |tar| {
                if of_image == "link" {
                    return link(tar, name, canary.path().to_str().unwrap());
                }
                for at in ["proc", "proc/self", "proc/self/attr", "proc/1", "proc/sys", "proc/sys/kernel"] {
                    dir(tar, at);
                }
                for at in ["proc/self/attr/exec", "proc/self/status", "proc/kcore", "proc/sys/kernel/core_pattern"] {
                    file(tar, at, 0o666, "of the image");
                }
            })
            .await;
            if let Ok(id) = try_run(case, case.spec(&format!("{name}-{of_image}")), &image).await {
                let it = run_in(case, &id, sh("grep -c Seccomp: /proc/self/status; cat /proc/kcore | head -c 9"))
                    .await
                    .unwrap();
                assert!(it.stdout.text() == "1\n", "{name}, {of_image}: {it:?}");
            }
            canary.check();
        }
    })
    .await;
}

/// CVE-2025-31133: masks are binds of `/dev/null`, which an image replaces by a link to a file that it wants writable.
#[tokio::test]
async fn a_mask_is_not_what_an_image_has_at_dev_null() {
    with_real_engines(async |case| {
        let image = image(case, |tar| {
            dir(tar, "dev");
            link(tar, "dev/null", "/proc/sys/kernel/core_pattern");
            link(tar, "dev/zero", "/proc/sysrq-trigger");
        })
        .await;
        let Ok(id) = try_run(case, case.spec("null"), &image).await else { return };
        let script = "for at in /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do (: >> $at) 2>/dev/null && echo opened $at; done
            cat /proc/kcore /proc/keys /proc/timer_list 2>/dev/null | head -c 9; [ -c /dev/null ] && echo device";
        let it = run_in(case, &id, sh(script)).await.unwrap();
        assert_eq!(it.stdout.text(), "device\n", "{it:?}");
    })
    .await;
}

/// CVE-2025-52565: `/dev/console` and `/dev/pts` of the image are links when the engine mounts there.
#[tokio::test]
async fn a_link_at_a_terminal_device_leads_nowhere() {
    with_real_engines(async |case| {
        let canary = Canary::new();
        let image = image(case, |tar| {
            dir(tar, "dev");
            link(tar, "dev/console", "/proc/sysrq-trigger");
            link(tar, "dev/pts", canary.path().to_str().unwrap());
            link(tar, "dev/shm", canary.path().to_str().unwrap());
            link(tar, "dev/mqueue", canary.path().to_str().unwrap());
        })
        .await;
        if let Ok(id) = try_run(case, case.spec("console"), &image).await {
            let script =
                "(: >> /proc/sysrq-trigger) 2>&1; for at in pts shm mqueue; do echo x > /dev/$at/escaped; done";
            let it = run_in(case, &id, sh(script)).await.unwrap();
            assert!(!output_of(&it).is_empty(), "the trigger could be opened: {it:?}");
        }
        canary.check();
    })
    .await;
}

/// The files that an engine puts into `/etc` are links in the image: what is written or shown is the host's.
#[tokio::test]
async fn links_at_the_engines_own_files_do_not_show_or_change_the_hosts() {
    with_real_engines(async |case| {
        let canary = Canary::new();
        let secret = canary.secret();
        let image = image(case, |tar| {
            for name in ["hosts", "hostname", "resolv.conf", "mtab"] {
                link(tar, &format!("etc/{name}"), secret.to_str().unwrap());
            }
            link(tar, ".dockerenv", secret.to_str().unwrap());
            link(tar, "run", canary.path().to_str().unwrap());
            link(tar, ".coracle", canary.path().to_str().unwrap());
        })
        .await;
        if let Ok(id) = try_run(case, case.spec("etc"), &image).await {
            let it =
                run_in(case, &id, sh("cat /etc/hosts /etc/hostname /etc/resolv.conf /etc/mtab; echo x >> /etc/hosts"))
                    .await;
            assert!(!it.is_ok_and(|it| output_of(&it).contains(SECRET)));
        }
        canary.check();
    })
    .await;
}

/// CVE-2024-9407, CVE-2024-9675, CVE-2024-9676: the content of an image at a volume's path is copied into the volume, and is
/// a link, or has links in it.
#[tokio::test]
async fn a_volume_is_not_filled_from_the_hosts_files() {
    with_real_engines(async |case| {
        let canary = Canary::new();
        let image = image(case, |tar| {
            dir(tar, "vol");
            link(tar, "vol/leak", canary.secret().to_str().unwrap());
            link(tar, "vol/up", &format!("../../../../../../..{}", canary.path().display()));
            link(tar, "linked", canary.path().to_str().unwrap());
        })
        .await;
        let mut volumes = Vec::new();
        for at in ["/vol", "/linked"] {
            let name = VolumeName::parse(case.name(&format!("v{}", &at[1..])).as_str()).unwrap();
            let new = VolumeCreate { name: name.clone(), labels: vec![case.label()], size: None };
            case.runtime.create_volume(&new).await.unwrap();
            volumes.push(VolumeMount { name, at: path(at), access: Access::ReadWrite });
        }
        if let Ok(id) = try_run(case, CreateSpec { volumes, ..case.spec("volume") }, &image).await {
            let script =
                "cat /vol/leak /vol/up/secret /linked/secret; echo x > /vol/up/escaped; echo x > /linked/escaped";
            let it = run_in(case, &id, sh(script)).await;
            assert!(!it.is_ok_and(|it| output_of(&it).contains(SECRET)));
        }
        canary.check();
    })
    .await;
}

/// A layer has a device node of the host's disk; containers without a device filter read it.
#[tokio::test]
async fn a_device_node_of_an_image_has_no_device_behind_it() {
    with_real_engines(async |case| {
        if !is_root() {
            return case.left_out(); // without root, no engine unpacks nodes
        }
        use std::os::unix::fs::MetadataExt as _;
        let disk = std::fs::metadata("/").unwrap().dev();
        let image = image(case, |tar| {
            for (name, major, minor) in
                [("disk", rustix::fs::major(disk), rustix::fs::minor(disk)), ("first", 8, 0), ("virtual", 254, 0)]
            {
                let mut header = super::header(tar::EntryType::Block, 0o666, 0);
                header.set_device_major(major).unwrap();
                header.set_device_minor(minor).unwrap();
                tar.append_data(&mut header, name, &[][..]).unwrap();
            }
            let mut header = super::header(tar::EntryType::Char, 0o666, 0);
            header.set_device_major(1).unwrap();
            header.set_device_minor(1).unwrap();
            tar.append_data(&mut header, "memory", &[][..]).unwrap();
        })
        .await;
        let Ok(id) = try_run(case, case.spec("disk"), &image).await else { return };
        let script = "for at in /disk /first /virtual /memory; do head -c 1 $at 2>/dev/null | wc -c; done | sort -u";
        let it = run_in(case, &id, sh(script)).await.unwrap();
        assert_eq!(it.stdout.text().trim(), "0", "{it:?}");
    })
    .await;
}
