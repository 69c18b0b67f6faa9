//! Acts by the arguments of calls.

mod compose;

use serde_json::{Value, json};

/// Places of the host that calls name, and a container.
pub(super) struct Places {
    /// The marked tree.
    pub(super) out: String,
    /// The state directory.
    pub(super) state: String,
    /// A file that a program on the host would leave.
    pub(super) mark: String,
    pub(super) container: String,
}

/// Arguments of `create`. Images, networks and services that do not exist are refused before they are looked
/// for elsewhere.
pub(super) fn creates(places: &Places) -> Vec<Value> {
    let mut all = mounts(places);
    all.extend(contents(places));
    all.extend(settings(places));
    all.extend(compose::stacks(places));
    all
}

fn mounts(places: &Places) -> Vec<Value> {
    let Places { out, state, .. } = places;
    let below = format!("{out}:/x");
    let read_only = format!("{out}:/x:ro");
    let private = format!("{out}/private:/x");
    let key = format!("{out}/.ssh:/x:ro");
    let of_state = format!("{state}:/x");
    let by_init = format!("/proc/1/root{out}:/x");
    let mut all: Vec<Value> = [
        &below,
        &read_only,
        &private,
        &key,
        &of_state,
        &by_init,
        "/:/x",
        "/etc:/x:ro",
        "/dev:/x",
        "/proc/self/fd:/x",
        "/sys/fs/cgroup:/x",
        "~:/x",
        "~/.ssh:/x",
        "/var/run/docker.sock:/x",
        "/run/podman/podman.sock:/x",
        "to-out:/x",
        "to-root:/x",
        "to-secret:/x",
        "to-root/etc:/x",
        "two:/x",
        "three/..:/x",
        "deep/er/est/out:/x",
        "by-init:/x",
        "../home/outside:/x",
        "deep/../../home/outside:/x",
        ".git:/x",
        ".git/hooks:/x",
        ".vscode:/x:rw",
        ".GIT/hooks:/x",
        ".:/.coracle",
        ".:/proc",
        ".:/",
        ".:/x:rw,suid,dev",
        ".:/x:/y:/z",
        ":/x",
        "sock:/x",
    ]
    .iter()
    .map(|mount| json!({ "mounts": [mount] }))
    .collect();
    all.push(json!({ "mounts": [{ "host": "f\u{0}", "container": "/x" }] }));
    all.push(json!({ "mounts": [{ "host": out, "container": "/x", "mode": "ro", "propagation": "shared" }] }));
    all
}

/// Files and repositories that are put into a container, some at places in the bound directory.
fn contents(places: &Places) -> Vec<Value> {
    let Places { out, mark, .. } = places;
    let runs = format!("touch {mark}");
    let file = |path: &str| json!({ "mount_cwd": true, "config_files": { path: runs } });
    let repository = |url: String| json!({ "repos": [url] });
    vec![
        file(".git/hooks/post-commit"),
        file(".git/config"),
        file(".envrc"),
        file("to-out/written"),
        file("to-root/tmp/written"),
        file("../../proc/1/root/written"),
        file("/.coracle/link/sock"),
        file("/proc/sys/kernel/core_pattern"),
        json!({ "mount_cwd": true, "dotfiles_inline": { "../workspace/.git/hooks/post-commit": runs } }),
        json!({ "mount_cwd": true, "dotfiles_inline": { "~/../workspace/.vscode/tasks.json": runs } }),
        json!({ "dotfiles_repo": format!("ext::sh -c touch% {mark}") }),
        json!({ "dotfiles_repo": format!("file://{out}") }),
        json!({ "dotfiles_repo": format!("ssh://-oProxyCommand=touch%20{mark}/x") }),
        repository(format!("ext::sh -c touch% {mark}")),
        repository(format!("file://{out}=out")),
        repository(out.clone()),
        repository(format!("--upload-pack=touch {mark}")),
        repository(format!("ssh://-oProxyCommand=touch%20{mark}/x")),
        json!({ "image": null, "purpose": "try-repo", "repo_url": format!("ext::sh -c touch% {mark}") }),
        json!({ "image": null, "purpose": "try-repo", "repo_url": format!("-c core.fsmonitor={mark}") }),
        json!({ "image": null, "purpose": "try-repo", "repo_url": out }),
        json!({ "image": null, "devcontainer": "to-out/devcontainer.json" }),
        json!({ "image": null, "devcontainer": format!("{out}/devcontainer.json") }),
        json!({ "image": null, "devcontainer": "/etc/passwd" }),
    ]
}

fn settings(places: &Places) -> Vec<Value> {
    let Places { out, mark, .. } = places;
    vec![
        json!({ "workdir": "/proc/1/root" }),
        json!({ "workdir": "/.coracle/link" }),
        json!({ "workdir": "../../.." }),
        json!({ "user": "4294967295" }),
        json!({ "user": "root\n0:0" }),
        json!({ "user": format!("$(touch {mark})") }),
        json!({ "network": "host" }),
        json!({ "network": "container:1" }),
        json!({ "network": "ns:/proc/1/ns/net" }),
        json!({ "replay": "../../../etc" }),
        json!({ "add_hosts": ["a\n127.0.0.1 b:127.0.0.1"] }),
        json!({ "gpu": true }),
        json!({ "ports": [{ "container": 22, "host": 22 }] }),
        json!({ "ports": ["0.0.0.0:8080:80"] }),
        json!({ "env": { "A\u{0}B": "x" } }),
        json!({ "env": ["=x", "LD_PRELOAD=/workspace/evil.so"] }),
        json!({ "env_passthrough": "all" }),
        json!({ "env_passthrough": ["*"] }),
        json!({ "forward_ssh": true }),
        json!({ "memory_limit": "99999999t" }),
        json!({ "cpu_limit": 1e300 }),
        json!({ "pids_limit": u32::MAX }),
        json!({ "labels": { "coracle.managed": "false", "x\n": "y" } }),
        json!({ "name": "../../x" }),
        json!({ "name": format!("a;touch {mark}") }),
        json!({ "name": "-rm" }),
        json!({ "image": "-v/:/host" }),
        json!({ "image": format!("oci-archive:{out}/secret") }),
        json!({ "image": "dir:/etc" }),
        json!({ "image": "../../x" }),
        json!({ "privileged": true }),
        json!({ "cap_add": ["ALL"], "security_opt": ["seccomp=unconfined"] }),
        json!({ "devices": ["/dev/sda"], "volumes": ["/:/host"] }),
        json!({ "main": ["/proc/1/root/bin/sh"], "workdir": "/\u{0}" }),
    ]
}

/// Attacks through calls on a container and other objects.
pub(super) fn calls(places: &Places) -> Vec<Value> {
    let Places { out, state, mark, container } = places;
    let copy_in = |host: &str, inside: &str| json!({ "operation": "copy_in", "container": container, "host_path": host, "container_path": inside });
    let copy_out = |inside: &str, host: &str| json!({ "operation": "copy_out", "container": container, "host_path": host, "container_path": inside });
    let exec =
        |more: Value| with(json!({ "operation": "exec", "container": container, "command": "id", "timeout": 5 }), more);
    vec![
        copy_in(&format!("{out}/secret"), "/tmp/in"),
        copy_in(&format!("{out}/.ssh"), "/tmp/in"),
        copy_in(&format!("{state}/containers"), "/tmp/in"),
        copy_in("/etc/shadow", "/tmp/in"),
        copy_in("~/.gitconfig", "/tmp/in"),
        copy_in("to-out", "/tmp/in"),
        copy_in("to-out/secret", "/tmp/in"),
        copy_in("to-secret", "/tmp/in"),
        copy_in("to-root/etc/passwd", "/tmp/in"),
        copy_in("two/secret", "/tmp/in"),
        copy_in("deep", "/tmp/in"),
        copy_in("../home/outside/secret", "/tmp/in"),
        copy_in("/proc/self/environ", "/tmp/in"),
        copy_in("/proc/self/fd/0", "/tmp/in"),
        copy_in("f", "/proc/1/root/tmp/in"),
        copy_in("f", "/.coracle/link/sock"),
        copy_in("f", ".git/hooks/post-commit"),
        copy_in("f", "to-root/tmp/in"),
        copy_out("f", &format!("{out}/written")),
        copy_out("f", "/etc/cron.d/coracle-hostile"),
        copy_out("f", "~/.ssh/authorized_keys"),
        copy_out("f", "../home/.bashrc"),
        copy_out("f", "to-out/written"),
        copy_out("f", "to-out"),
        copy_out("f", "three/../written"),
        copy_out("f", &format!("{state}/written")),
        copy_out("f", ".git/hooks/post-commit"),
        copy_out("f", ".git/config"),
        copy_out("f", ".GIT/hooks/post-commit"),
        copy_out("f", ".vscode/tasks.json"),
        copy_out("f", ".envrc"),
        copy_out("evil.git", ".git"),
        copy_out("deep", "deep"),
        copy_out("bomb", "bomb-out"),
        copy_out("/proc/1/root", "root-out"),
        copy_out("/proc/1/environ", "environ-out"),
        copy_out("/dev/zero", "zero-out"),
        copy_out("/.coracle/run", "run-out"),
        copy_out("tars/up.tar", "up-out.tar"),
        copy_out("s1", "s1-out"),
        exec(json!({ "command": "id\u{0}; touch x" })),
        exec(json!({ "command": ["id", "\u{0}"] })),
        exec(json!({ "command": "cat", "stdin": "\u{0}\u{1}x" })),
        exec(json!({ "command": "cat", "stdin_base64": "///////=" })),
        exec(json!({ "workdir": "/proc/1/root" })),
        exec(json!({ "workdir": "to-out" })),
        exec(json!({ "env": { "LD_PRELOAD": "/x", "A=B": "c" } })),
        exec(json!({ "timeout": 1e300 })),
        exec(json!({ "max_output": "99999999t" })),
        exec(json!({ "container": format!("$(touch {mark})") })),
        exec(json!({ "container": "../../x" })),
        exec(json!({ "privileged": true })),
        json!({ "operation": "exec_interactive_hint", "container": container, "workdir": format!("$(touch {mark})") }),
        json!({ "operation": "job_read", "container": container, "job_id": "../../../x" }),
        json!({ "operation": "exec_cancel", "container": container, "job_id": "-1" }),
        json!({ "operation": "wait_healthy", "container": container, "port": "169.254.169.254:80", "retries": 1 }),
        json!({ "operation": "snapshot", "container": container, "name": "../../x" }),
        json!({ "operation": "snapshot_export", "snapshot": "none", "host_path": format!("{out}/x.tar") }),
        json!({ "operation": "snapshot_export", "snapshot": "none", "host_path": ".git/hooks/post-commit" }),
        json!({ "operation": "snapshot_import", "host_path": format!("{out}/secret") }),
        json!({ "operation": "snapshot_import", "host_path": "to-out/secret" }),
        json!({ "operation": "snapshot_import", "host_path": "tars/up.tar" }),
        json!({ "operation": "snapshot_delete", "snapshot": format!("x;touch {mark}") }),
        json!({ "operation": "restore", "snapshot": "../../x", "mounts": [format!("{out}:/x")] }),
        json!({ "operation": "fork", "container": container, "mounts": [format!("{out}:/x")] }),
        json!({ "operation": "create_network", "name": format!("a;touch {mark}") }),
        json!({ "operation": "destroy_network", "name": "host" }),
        json!({ "operation": "cache_clear", "purpose": "../../x" }),
        json!({ "operation": "prune", "kinds": ["../../x"], "dry_run": false }),
        json!({ "operation": "destroy", "container": "../../x" }),
        json!({ "operation": "destroy", "container": container, "compose_project": "../../x", "no_such_field": true }),
        json!({ "operation": "destroy_all", "scope": "all" }),
        json!({ "operation": "no\u{202e}such", "container": container }),
    ]
}

/// Copies while the source is being replaced.
pub(super) fn races(container: &str, round: usize) -> Vec<Value> {
    let copy = |operation: &str, host: String, inside: String| json!({ "operation": operation, "container": container, "host_path": host, "container_path": inside });
    vec![
        copy("copy_in", "race-dir".into(), format!("/tmp/copied-dir-{round}")),
        copy("copy_in", "race-dir/secret".into(), format!("/tmp/copied-file-{round}")),
        copy("copy_in", "race-file".into(), format!("/tmp/copied-single-{round}")),
        copy("copy_out", "race-dir/written".into(), "f".into()),
        copy("copy_out", "race-file".into(), "f".into()),
        copy("copy_out", format!("race-dir/tree-{round}"), "deep".into()),
    ]
}

fn with(mut call: Value, more: Value) -> Value {
    super::super::merge(call.as_object_mut().unwrap(), more);
    call
}
