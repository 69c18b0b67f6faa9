//! No value of any argument yields more than the configuration allows.
//!
//! Each field of every operation stands in one of two tables: [`bounds`], with the setting that bounds it and values beyond
//! it, or [`FREE`], with the reason why no setting bounds it. A new field without an entry fails.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Tool, without_engine};

/// A setting as narrow as it gets, and values of a field that it refuses.
struct Bound {
    field: &'static str,
    config: &'static str,
    /// Fields of a call: of `create` if it names no operation. `CONTAINER` stands for one that runs.
    calls: Vec<Value>,
    /// The code of the refusal, with its rule.
    refusal: (&'static str, &'static str),
}

const DENIED: &str = "policy_denied";

fn bounds() -> Vec<Bound> {
    let of = |field, config, calls: &[Value], refusal| Bound { field, config, calls: calls.to_vec(), refusal };
    let exec = |more: Value| {
        let mut call = json!({ "operation": "exec", "container": "CONTAINER", "command": "true" });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call
    };
    let all_as_root = [
        json!({ "operation": "exec", "container": "CONTAINER", "command": "id", "as_root": true }),
        json!({ "operation": "exec_background", "container": "CONTAINER", "command": "id", "as_root": true }),
        json!({ "operation": "exec_interactive_hint", "container": "CONTAINER", "as_root": true }),
        json!({ "operation": "wait_healthy", "container": "CONTAINER", "health_command": "id", "as_root": true }),
    ];
    let outside = |operation: &str, more: Value| {
        let mut call = json!({ "operation": operation, "host_path": "/etc/coracle-test" });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call
    };
    vec![
        of(
            "add_hosts",
            "[security]\nallow_host_gateway = false\n",
            &[json!({ "add_hosts": ["x:host-gateway"] })],
            (DENIED, "network.gateway"),
        ),
        of("as_root", "[security]\nallow_root = false\n", &all_as_root, (DENIED, "root.exec")),
        of(
            "user",
            "[security]\nallow_root = false\n",
            &[json!({ "user": "0" }), json!({ "user": "0:1000" }), json!({ "user": "root" })],
            (DENIED, "root.exec"),
        ),
        of(
            "compose_content",
            "[compose]\nenabled = false\n",
            &[json!({ "compose_content": "services: {a: {image: b}}" })],
            (DENIED, "compose.enabled"),
        ),
        of(
            "compose_file",
            "[compose]\nenabled = false\n",
            &[json!({ "compose_file": "compose.yml" })],
            (DENIED, "compose.enabled"),
        ),
        of(
            "config_files",
            "",
            &[json!({ "mount_cwd": true, "config_files": { ".envrc": "x" } })],
            (DENIED, "files.protected"),
        ),
        of("cpu_limit", "[security]\ncpus_max = 1\n", &[json!({ "cpu_limit": 2 })], (DENIED, "limit.cpus")),
        of(
            "memory_limit",
            "[security]\nmemory_limit = \"64m\"\nmemory_max = \"64m\"\n",
            &[json!({ "memory_limit": "65m" }), json!({ "memory_limit": 1_u64 << 40 })],
            (DENIED, "limit.memory"),
        ),
        of(
            "pids_limit",
            "[security]\npids_limit = 32\npids_max = 32\n",
            &[json!({ "pids_limit": 33 }), json!({ "pids_limit": 4_000_000 })],
            (DENIED, "limit.pids"),
        ),
        of(
            "discard",
            "[security]\nallow_discard = false\n",
            &[
                json!({ "operation": "destroy", "container": "CONTAINER", "discard": true }),
                json!({ "operation": "destroy_all", "confirm": true, "discard": true }),
            ],
            (DENIED, "discard"),
        ),
        of(
            "env_passthrough",
            "[security]\nallow_env_all = false\n",
            &[json!({ "env_passthrough": "all" })],
            (DENIED, "env.all"),
        ),
        of("forward_gh", "[security]\nallow_gh = false\n", &[json!({ "forward_gh": true })], (DENIED, "identity.gh")),
        of(
            "forward_git",
            "[security]\nallow_git = false\n",
            &[json!({ "forward_git": true })],
            (DENIED, "identity.git"),
        ),
        of(
            "forward_ssh",
            "[security]\nallow_ssh = false\n",
            &[json!({ "forward_ssh": true })],
            (DENIED, "identity.ssh"),
        ),
        of("gpu", "[security]\nallow_gpu = false\n", &[json!({ "gpu": true })], (DENIED, "gpu")),
        of(
            "host_path",
            "",
            &[
                outside(
                    "copy_in",
                    json!({ "host_path": "/etc/passwd", "container": "CONTAINER", "container_path": "/x" }),
                ),
                outside("copy_out", json!({ "container": "CONTAINER", "container_path": "/etc/passwd" })),
            ],
            (DENIED, "copy.denied"),
        ),
        of(
            "image",
            "[security]\nimages = [\"none/*\"]\n",
            &[json!({ "image": "busybox" }), json!({ "image": "docker.io/library/busybox:latest" })],
            (DENIED, "image"),
        ),
        of(
            "purpose",
            "[security]\nimages = [\"none/*\"]\n",
            &[json!({ "image": null, "purpose": "python" })],
            (DENIED, "image"),
        ),
        of(
            "pull",
            "[images]\npull = \"never\"\n",
            &[json!({ "pull": "missing" }), json!({ "pull": "always" })],
            (DENIED, "images.pull"),
        ),
        of("mount_cwd", "[workspace]\nroot = \"/etc\"\n", &[json!({ "mount_cwd": true })], (DENIED, "mount.denied")),
        of(
            "mounts",
            "",
            &[
                json!({ "mounts": ["/etc:/x"] }),
                json!({ "mounts": ["/etc:/x:ro"] }),
                json!({ "mounts": [{ "host": "~/.ssh/../.ssh", "container": "/x" }] }),
            ],
            (DENIED, "mount.denied"),
        ),
        of("network", "", &[json!({ "network": "host" })], (DENIED, "network.host")),
        of("network", "[security]\nnetwork = \"none\"\n", &[json!({ "network": "bridge" })], (DENIED, "network.open")),
        of(
            "internal",
            "[security]\nnetwork = \"none\"\n",
            &[json!({ "operation": "create_network", "name": "wide", "internal": false })],
            (DENIED, "network.open"),
        ),
        of(
            "ports",
            "[security]\nport_min = 2000\n",
            &[json!({ "ports": ["1999:80"] }), json!({ "ports": [{ "host": 80, "container": 80 }] })],
            (DENIED, "port.low"),
        ),
        of(
            "scope",
            "[security]\ncross_session = \"use\"\n",
            &[json!({ "operation": "destroy_all", "confirm": true, "scope": "all" })],
            ("other_session", ""),
        ),
        of(
            "timeout",
            "[exec]\ntimeout = 5\ntimeout_max = 10\n",
            &[exec(json!({ "timeout": 11 })), exec(json!({ "timeout": "1h" }))],
            (DENIED, "limit.timeout"),
        ),
        of(
            "timeout",
            "[exec]\ntimeout = 5\ntimeout_max = 10\n",
            &[exec(json!({ "timeout": 0 }))],
            ("invalid_input", ""),
        ),
        of("max_output", "[exec]\ninline = \"1k\"\n", &[exec(json!({ "max_output": "100m" }))], ("invalid_input", "")),
    ]
}

/// Fields that no setting bounds, by the reason.
const FREE: &[(&str, &[&str])] = &[
    ("a request to the user, who decides", &["reason", "rule"]),
    ("a text for the user, at most 1 KiB", &["note"]),
    (
        "what runs inside, within the bounds of the container",
        &[
            "command",
            "config_files",
            "env",
            "health_check",
            "health_command",
            "main",
            "operation",
            "packages",
            "setup_commands",
            "shell",
            "stdin",
            "stdin_base64",
            "test",
            "text",
            "keys",
            "workdir",
            "amplifier_bundle",
            "amplifier_version",
            "dotfiles_inline",
            "dotfiles_script",
            "dotfiles_skip",
            "dotfiles_target",
            "dotfiles_branch",
            "container_path",
        ],
    ),
    (
        "which container or part of one; other sessions' are checked for each call",
        &[
            "checkpoint",
            "compose_project",
            "container",
            "container_port",
            "if_exists",
            "job_id",
            "labels",
            "name",
            "namespace",
            "other_checkpoint",
            "persistent",
            "port",
            "snapshot",
            "workflow",
        ],
    ),
    (
        "how an answer looks, within fixed bounds",
        &[
            "columns",
            "context",
            "encoding",
            "ignore_case",
            "limit",
            "line",
            "lines",
            "max_matches",
            "offset",
            "pattern",
            "rows",
            "screen",
            "stream",
            "until",
        ],
    ),
    (
        "how long something takes, within fixed bounds",
        &["attempt_timeout", "grace", "idle", "interval", "on_timeout", "retries", "silence_timeout"],
    ),
    (
        "what goes, and never more than the session's own",
        &[
            "cache_bust",
            "confirm",
            "dry_run",
            "force",
            "idle_for",
            "include_persistent",
            "keep_winner",
            "kinds",
            "older_than",
            "overwrite",
            "refresh",
            "replace",
            "skip_save",
        ],
    ),
    // Their addresses are checked by `images.git_allow_private` where the host fetches; else the container does.
    ("a URL that is fetched inside, by the container's network", &["dotfiles_repo", "repos", "repo_url"]),
    // A single call cannot forward. In a server, ports below `security.port_min` are refused like in `ports`.
    ("a port of a process that stays", &["host_port"]),
    ("2 to 16 containers, each of which counts for `max_containers`", &["attempts"]),
    // Its fields are checked like those of a call.
    ("a file of the user's directory", &["devcontainer"]),
    // It replaces the network, and names only what sessions may see.
    ("a record that the user's configuration made", &["replay"]),
];

async fn fields(tool: &Tool<'_>) -> BTreeSet<String> {
    let output = tool.run(["call", "--schema"], b"").await;
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    schema["input_schema"]["properties"].as_object().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn each_field_of_a_call_has_its_bound_or_the_reason_why_none_is_needed() {
    without_engine("", async |tool| {
        let bounds = bounds();
        let bounded = bounds.iter().map(|it| it.field);
        let known: BTreeSet<String> =
            bounded.chain(FREE.iter().flat_map(|it| it.1).copied()).map(str::to_owned).collect();
        assert_eq!(fields(tool).await, known, "left: the schema; right: the tables");
    })
    .await;
}

#[tokio::test]
async fn no_value_of_a_field_yields_more_than_the_configuration() {
    let mut wrong = BTreeMap::new();
    for bound in bounds() {
        let answers = std::sync::Mutex::new(Vec::new());
        without_engine(bound.config, async |tool| {
            for call in &bound.calls {
                let answer = answer(tool, call).await;
                answers.lock().unwrap().push((call.clone(), answer));
            }
        })
        .await;
        for (call, answer) in answers.into_inner().unwrap() {
            let rule = answer["details"]["rule"].as_str().unwrap_or_default().to_owned();
            let code = answer["code"].as_str().unwrap_or_default().to_owned();
            if (code.as_str(), rule.as_str()) != bound.refusal {
                wrong.insert(format!("{} {call}", bound.field), format!("{code} {rule}: {}", answer["message"]));
            }
        }
    }
    assert!(wrong.is_empty(), "not refused as the table says: {wrong:#?}");
}

async fn answer(tool: &Tool<'_>, call: &Value) -> Value {
    std::fs::write(tool.work().join("compose.yml"), "services: {a: {image: b}}").unwrap();
    std::fs::create_dir_all(tool.home().join(".ssh")).unwrap();
    let mut call = call.clone();
    if call.get("operation").is_none() {
        return tool.create(call).await;
    }
    if call["container"] == "CONTAINER" {
        call["container"] = tool.created(json!({ "user": "1000:1000" })).await.into();
    }
    tool.call(call).await
}
