//! Unusual images: containers are created even if an image has files at unusual paths, or lacks files.

use std::fs::File;
use std::io::{Read as _, Seek as _};

use coracle_types::EngineKind;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::start_adopt::says;
use super::{Tool, with_rootful_engine};
use crate::engines::{busybox_with, tar_of};

/// An image of a busybox with one oddity.
struct UnusualImage {
    name: &'static str,
    /// Entries of its second layer: path, kind, and content or target.
    files: Vec<(&'static str, EntryType, &'static str)>,
    /// Fields of its configuration in place of the usual ones.
    config: Value,
    /// What is checked inside.
    probe: &'static str,
    /// The expected result, or an error code if the image cannot be used.
    expected: &'static str,
}

const FILE: EntryType = EntryType::Regular;
const LINK: EntryType = EntryType::Symlink;
const DIR: EntryType = EntryType::Directory;

/// Checks that the files that an engine mounts exist.
const NETWORK: &str = "for f in resolv.conf hosts hostname; do test -s /etc/$f && echo $f; done";
const HAS_NETWORK: &str = "resolv.conf hosts hostname";

fn images() -> Vec<UnusualImage> {
    let unusual = |name, files: &[_], config, probe, expected| UnusualImage {
        name,
        files: files.to_vec(),
        config,
        probe,
        expected,
    };
    let of_files = |name, files: &[_], probe, expected| unusual(name, files, json!({}), probe, expected);
    let of_config = |name, config, probe, expected| unusual(name, &[], json!({ "config": config }), probe, expected);
    let of_image = |name, fields, probe, expected| unusual(name, &[], fields, probe, expected);
    vec![
        of_files("resolv-dangling", &[("etc/resolv.conf", LINK, "../run/none")], NETWORK, HAS_NETWORK),
        of_files("resolv-absolute", &[("etc/resolv.conf", LINK, "/run/systemd/resolve/stub")], NETWORK, HAS_NETWORK),
        of_files("hosts-dangling", &[("etc/hosts", LINK, "../var/none/hosts")], NETWORK, HAS_NETWORK),
        of_files("hostname-dangling", &[("etc/hostname", LINK, "/none")], NETWORK, HAS_NETWORK),
        of_files("resolv-upwards", &[("etc/resolv.conf", LINK, "../../../../etc/none")], NETWORK, HAS_NETWORK),
        of_files("hosts-executable", &[("etc/hosts", FILE, "1.2.3.4 x")], "grep -c 1.2.3.4 /etc/hosts", "0"),
        of_files("tmp-link", &[("var/tmp", DIR, ""), ("tmp", LINK, "var/tmp")], "touch /tmp/a && ls /var/tmp", "a"),
        of_files("run-dangling", &[("var/run", LINK, "/run")], "readlink /var/run", "/run"),
        of_files("no-root-home", &[(".wh.root", FILE, "")], "cd; echo $?", "0"),
        of_files("no-passwd", &[("etc/.wh.passwd", FILE, "")], "id -u", "0"),
        of_files("no-group", &[("etc/.wh.group", FILE, "")], "id -g", "0"),
        of_files("no-etc", &[(".wh.etc", FILE, "")], NETWORK, HAS_NETWORK),
        of_files(
            "passwd-garbage",
            &[("etc/passwd", FILE, "\n#x\nroot:x:0:0\n:::\nagent:x:1000:1000::/:/bin/sh")],
            "echo ran",
            "ran",
        ),
        of_files("passwd-dangling", &[("etc/passwd", LINK, "none")], "id -u", "0"),
        of_files("opaque", &[("srv", DIR, ""), ("srv/.wh..wh..opq", FILE, ""), ("srv/b", FILE, "b")], "ls /srv", "b"),
        of_files("null-as-file", &[("dev/null", FILE, "x")], "test -c /dev/null && echo device", "device"),
        of_files("fifo", &[("srv/f", EntryType::Fifo, "")], "test -p /srv/f && echo fifo", "fifo"),
        of_files("names", &[("srv/a\nb", FILE, "x"), ("srv/é ü", FILE, "y")], "cat /srv/*", "xx y"),
        of_files("hard-link", &[("srv/a", FILE, "x"), ("srv/b", EntryType::Link, "srv/a")], "stat -c %h /srv/b", "2"),
        of_files("file-for-directory", &[("home", FILE, "x")], "cat /home", "x"),
        of_files("dot-names", &[("./srv/./a", FILE, "x")], "cat /srv/a", "x"),
        of_config("no-path", json!({ "Env": null }), "cat /etc/group | head -n 1", "root:x:0:"),
        of_config("no-env", json!({ "Env": [] }), "echo ${HOME:+home}", "home"),
        of_config("odd-env", json!({ "Env": ["PATH=/bin", "A=", "B=x=y", "C=1\n2"] }), "echo \"$A$B$C\"", "x=y1 2"),
        of_config("path-twice", json!({ "Env": ["PATH=/none", "PATH=/bin"] }), "echo $PATH", "/root/.local/bin:/bin"),
        of_config(
            "lower-case-path",
            json!({ "Env": ["path=/none", "PATH=/bin"] }),
            "echo $PATH",
            "/root/.local/bin:/bin",
        ),
        // Commands run as root where the call names no user.
        of_config("user-number", json!({ "User": "1234:5678" }), "id -u; id -g", "0 0"),
        of_config("user-without-entry", json!({ "User": "4321" }), "id -u", "0"),
        of_config("user-and-group", json!({ "User": "agent:agent" }), "id -u; id -g", "0 0"),
        of_config("workdir-missing", json!({ "WorkingDir": "/a/b/c" }), "echo ran", "ran"),
        of_config("entrypoint-missing", json!({ "Entrypoint": ["/none"], "Cmd": ["x"] }), "echo ran", "ran"),
        of_config("entrypoint-ends", json!({ "Entrypoint": ["/bin/false"] }), "echo ran", "ran"),
        of_config("no-command", json!({ "Entrypoint": null, "Cmd": null }), "echo ran", "ran"),
        of_config("volume", json!({ "Volumes": { "/home/agent": {} } }), "ls -d /home/agent", "/home/agent"),
        of_config(
            "ports",
            json!({ "ExposedPorts": { "80": {}, "53/udp": {}, "8000-8010/tcp": {} } }),
            "echo ran",
            "ran",
        ),
        of_config("labels", json!({ "Labels": { "a b": "ü\n\"", "e": "" } }), "echo ran", "ran"),
        of_config(
            "health",
            json!({ "Healthcheck": { "Test": ["CMD-SHELL", "exit 1"], "Interval": 1_000_000_000_u64 } }),
            "echo ran",
            "ran",
        ),
        of_config("stop-signal", json!({ "StopSignal": "SIGRTMIN+3" }), "echo ran", "ran"),
        of_config("shell", json!({ "Shell": ["/none"], "OnBuild": ["RUN false"] }), "echo ran", "ran"),
        of_config("unknown-field", json!({ "Later": { "a": [1] }, "ArgsEscaped": true }), "echo ran", "ran"),
        of_image("no-created", json!({ "created": null }), "echo ran", "ran"),
        of_image("created-zero", json!({ "created": "0001-01-01T00:00:00Z" }), "echo ran", "ran"),
        of_image("created-later", json!({ "created": "2999-12-31T23:59:59.999999999+14:00" }), "echo ran", "ran"),
        of_image("no-history", json!({ "history": null }), "echo ran", "ran"),
        of_image("author", json!({ "author": "ü <a@b>", "variant": "v8", "os.version": "1" }), "echo ran", "ran"),
    ]
}

/// A layer, whole.
fn bytes(mut layer: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    layer.rewind().unwrap();
    layer.read_to_end(&mut bytes).unwrap();
    bytes
}

fn layer(files: &[(&str, EntryType, &str)]) -> Vec<u8> {
    bytes(tar_of(|tar| {
        for (path, kind, content) in files {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(if *kind == DIR { 0o755 } else { 0o644 });
            // Names as they are: the crate would refuse or tidy some.
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
            if is_link {
                header.as_mut_bytes()[157..157 + content.len()].copy_from_slice(content.as_bytes());
            }
            let content = if is_link { "" } else { content };
            header.set_size(content.len() as u64);
            header.set_cksum();
            tar.append(&header, content.as_bytes()).unwrap();
        }
    }))
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|it| format!("{it:02x}")).collect()
}

/// All of them in one archive as `docker save` writes it.
fn archive(images: &[(String, &UnusualImage)]) -> File {
    let passwd = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n";
    let base = bytes(busybox_with(passwd, |tar| {
        tar.append_data(&mut file_header(2), "srv/from-base", &b"x\n"[..]).unwrap();
    }));
    tar_of(|tar| {
        let add = |tar: &mut Builder<&mut File>, name: &str, bytes: &[u8]| {
            tar.append_data(&mut file_header(bytes.len()), name, bytes).unwrap();
        };
        let base_name = format!("{}/layer.tar", digest(&base));
        add(tar, &base_name, &base);
        let mut manifest = Vec::new();
        for (tag, unusual) in images {
            let second = layer(&unusual.files);
            let name = format!("{}/layer.tar", digest(&[&second, tag.as_bytes()].concat()));
            add(tar, &name, &second);
            let layers = [&base, &second].map(|it| format!("sha256:{}", digest(it)));
            let mut config = json!({ "architecture": architecture(), "os": "linux", "created": "2026-01-01T00:00:00Z",
                "config": { "Env": ["PATH=/bin"], "Cmd": ["/bin/sh"] },
                "rootfs": { "type": "layers", "diff_ids": layers },
                "history": [{ "created_by": "base" }, { "created_by": unusual.name }] });
            for (key, value) in unusual.config.as_object().unwrap() {
                match (key.as_str(), value) {
                    ("config", fields) => {
                        config["config"].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
                    }
                    (_, Value::Null) => drop(config.as_object_mut().unwrap().remove(key)),
                    _ => config[key] = value.clone(),
                }
            }
            let config = config.to_string();
            let config_name = format!("{}.json", digest(config.as_bytes()));
            add(tar, &config_name, config.as_bytes());
            manifest.push(json!({ "Config": config_name, "RepoTags": [tag], "Layers": [base_name, name] }));
        }
        add(tar, "manifest.json", Value::Array(manifest).to_string().as_bytes());
    })
}

fn file_header(size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(size as u64);
    header
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// Containers at once.
const AT_ONCE: usize = 4;

/// Problems of a container of such an image.
async fn fault(tool: &Tool<'_>, tag: &str, unusual: &UnusualImage) -> Option<String> {
    let created = tool.create(json!({ "image": tag, "pull": "never" })).await;
    let found = match created["container"].as_str() {
        None => format!("{}: {}", created["code"], created["message"]),
        Some(container) => {
            let answer = tool.exec(container, unusual.probe).await;
            tool.call(json!({ "operation": "destroy", "container": container })).await;
            let text = format!(
                "{}{}",
                answer["stdout"].as_str().unwrap_or_default(),
                answer["stderr"].as_str().unwrap_or("?")
            );
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    };
    (found != unusual.expected).then(|| format!("{}: {found:?} in place of {:?}", unusual.name, unusual.expected))
}

#[tokio::test]
async fn containers_are_created_from_unusual_images_too() {
    with_rootful_engine("", async |tool| {
        let unusual_images = images();
        let tag = |unusual: &UnusualImage| tool.case.tag(&format!("odd-{}", unusual.name)).to_string();
        let named: Vec<(String, &UnusualImage)> =
            unusual_images.iter().map(|unusual| (tag(unusual), unusual)).collect();
        let file = tool.work().join("odd.tar");
        std::io::copy(&mut archive(&named), &mut File::create(&file).unwrap()).unwrap();
        if tool.case.engine() != EngineKind::Embedded {
            let (loaded, text) = tool.engine(&["load", "-i", file.to_str().unwrap()]).await;
            assert!(loaded, "{text}: {}", text.len());
        }
        let mut faults = Vec::new();
        if tool.case.engine() == EngineKind::Embedded {
            for (tag, unusual) in &named {
                let (loaded, _) = says(tool, &["images", "load", tag, "--from", "odd.tar"]).await;
                assert_eq!(loaded["success"], true, "{}: {loaded:#}", unusual.name);
            }
        }
        let mut found = stream::iter(&named).map(|(tag, unusual)| fault(tool, tag, unusual)).buffer_unordered(AT_ONCE);
        while let Some(fault) = found.next().await {
            faults.extend(fault);
        }
        for (tag, _) in &named {
            tool.engine(&["rmi", tag]).await;
        }
        assert!(faults.is_empty(), "on {}:\n{}", tool.case.engine(), faults.join("\n"));
    })
    .await;
}
