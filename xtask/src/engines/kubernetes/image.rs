//! Images with busybox alone, made without an engine: archives that `ctr` imports.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context as _, Result};

use super::layout::{CONTROL_PLANE_ADDRESS, Layout, NODES, Node, REGISTRY_PORT};
use super::{network, settings};
use crate::sh::{Sh, sh, which};

/// In the registry: a shell, `tar`, `head`, `cat` and all else that busybox has. Without a registry's name it is found too.
pub(super) const BUSYBOX: &str = "library/busybox:1";

/// Imports the pause image into a node.
pub(super) fn import_pause(layout: &Layout, node: Node) -> Result<()> {
    let archive = archive(layout, settings::PAUSE, &["/bin/sleep", "infinity"])?;
    ctr(layout, node, &["images", "import", &archive]).read().map(|_| ())
}

/// Puts the busybox image into the registry, by way of the first node, unless it is there.
pub(super) fn push_busybox(layout: &Layout) -> Result<()> {
    if layout.cluster("registry/docker/registry/v2/repositories/library/busybox/_manifests/tags/1").exists() {
        return Ok(());
    }
    let (node, name) = (NODES[0], format!("{CONTROL_PLANE_ADDRESS}:{REGISTRY_PORT}/{BUSYBOX}"));
    let archive = archive(layout, &name, &["/bin/sh"])?;
    ctr(layout, node, &["images", "import", &archive]).read()?;
    ctr(layout, node, &["images", "push", "--plain-http", &name]).read()?;
    ctr(layout, node, &["images", "remove", "--sync", &name]).read().map(|_| ())
}

/// containerd's client in a node's namespace, where the registry is.
fn ctr(layout: &Layout, node: Node, words: &[&str]) -> Sh {
    let socket = layout.of_node(node, "containerd.sock");
    let words = ["--address", &socket, "--namespace", "k8s.io"].into_iter().chain(words.iter().copied());
    network::inside(&node.namespace(), Path::new("ctr"), &words.map(str::to_owned).collect::<Vec<_>>())
}

/// An archive as `docker save` writes it, with one layer.
fn archive(layout: &Layout, name: &str, entrypoint: &[&str]) -> Result<String> {
    let dir = layout.cluster("image");
    let _ = fs::remove_dir_all(&dir); // of the image before
    let programs = dir.join("root/bin");
    fs::create_dir_all(&programs).with_context(|| format!("create {}", programs.display()))?;
    let busybox = which("busybox").context("there is no busybox")?;
    fs::copy(&busybox, programs.join("busybox")).context("copy busybox")?;
    for applet in sh(&busybox, ["--list"]).read()?.lines().filter(|it| *it != "busybox") {
        symlink("busybox", programs.join(applet)).with_context(|| format!("link {applet}"))?;
    }
    for inner in ["tmp", "etc", "root"] {
        fs::create_dir_all(dir.join("root").join(inner))?;
    }
    fs::set_permissions(dir.join("root/tmp"), fs::Permissions::from_mode(0o1777))?;
    fs::write(
        dir.join("root/etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    )?;
    fs::write(dir.join("root/etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    let owner = ["--owner=0", "--group=0", "--mtime=@0", "--sort=name", "--create"];
    let layer = ["--file=layer.tar", "--directory=root", "bin", "etc", "root", "tmp"];
    sh("tar", owner.iter().chain(&layer)).dir(&dir).read()?;
    let sum = sh("sha256sum", ["layer.tar"]).dir(&dir).read()?;
    let digest = sum.split_whitespace().next().context("sha256sum printed no sum")?;
    fs::write(dir.join("config.json"), config(digest, entrypoint).to_string())?;
    let manifest = serde_json::json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    fs::write(dir.join("manifest.json"), manifest.to_string())?;
    let parts = ["--create", "--file=image.tar", "manifest.json", "config.json", "layer.tar"];
    sh("tar", parts).dir(&dir).read()?;
    Ok(layout.text("image/image.tar"))
}

/// An image's configuration. A path to search is needed even for an entry point that has none to search.
fn config(digest: &str, entrypoint: &[&str]) -> serde_json::Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    serde_json::json!({
        "architecture": architecture,
        "os": "linux",
        "config": { "Entrypoint": entrypoint, "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "coracle" }],
    })
}
