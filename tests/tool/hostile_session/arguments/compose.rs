//! Compose files that request access to the host.

use serde_json::{Value, json};

use super::Places;
use crate::engines::IMAGE;

pub(super) fn stacks(places: &Places) -> Vec<Value> {
    let Places { out, mark, .. } = places;
    let mut all: Vec<Value> = [
        "privileged: true".to_owned(),
        "pid: host".to_owned(),
        "ipc: host".to_owned(),
        "network_mode: host".to_owned(),
        "userns_mode: host".to_owned(),
        "cgroup_parent: /".to_owned(),
        "cap_add: [SYS_ADMIN]".to_owned(),
        "security_opt: [\"seccomp=unconfined\", \"apparmor=unconfined\"]".to_owned(),
        "devices: [\"/dev/sda:/dev/sda\"]".to_owned(),
        "device_cgroup_rules: [\"a *:* rwm\"]".to_owned(),
        "sysctls: { kernel.core_pattern: core }".to_owned(),
        "ulimits: { core: -1 }".to_owned(),
        format!("volumes: [\"{out}:/x\"]"),
        "volumes: [\"./to-out:/x\"]".to_owned(),
        "volumes: [\"/var/run/docker.sock:/x\"]".to_owned(),
        format!("volumes: [{{ type: bind, source: \"{out}\", target: /x }}]"),
        format!("env_file: [\"{out}/secret\"]"),
        "env_file: [./to-secret]".to_owned(),
        format!("extends: {{ file: \"{out}/compose.yml\", service: a }}"),
        format!("build: \"{out}\""),
        "build: { context: ./to-out, dockerfile: secret }".to_owned(),
        format!("label_file: \"{out}/secret\""),
        format!("command: [\"${{X:-$(touch {mark})}}\"]\n    network_mode: \"service:$(touch {mark})\""),
    ]
    .iter()
    .map(|service| content(&format!("services:\n  a:\n    image: {IMAGE}\n    {service}\n")))
    .collect();
    let service = format!("services:\n  a:\n    image: {IMAGE}\n");
    all.extend([
        content(&format!("{service}    secrets: [s]\nsecrets:\n  s: {{ file: \"{out}/secret\" }}\n")),
        content(&format!("{service}    configs: [c]\nconfigs:\n  c: {{ file: ./to-secret }}\n")),
        content(&format!(
            "{service}    volumes: [\"v:/x\"]\nvolumes:\n  v: {{ driver: local, driver_opts: {{ type: none, o: bind, device: \"{out}\" }} }}\n"
        )),
        content(&format!("include: [\"{out}/compose.yml\"]\n{service}")),
        content("services: &a\n  a: *a\n"),
        json!({ "compose_file": format!("{out}/compose.yml") }),
        json!({ "compose_file": "to-out/compose.yml" }),
        json!({ "compose_file": "/etc/passwd" }),
        json!({ "compose_content": service, "compose_project": "../../x" }),
    ]);
    all
}

fn content(text: &str) -> Value {
    json!({ "compose_content": text })
}
