//! Coracle normalises a Compose file to the same long form that Compose's own program prints.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use coracle_compose::{ReadError, read};
use coracle_runtime::{PatternSet, Policy};
use coracle_types::ProjectName;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The input of both readers besides the file.
const ENV: [(&str, &str); 2] = [("GIVEN", "given"), ("EMPTY", "")];

/// Both readers, and a directory that relative paths start from.
struct Readers {
    dir: TempDir,
}

impl Readers {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("home/project/work")).unwrap();
        Self { dir }
    }

    fn work(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("home/project/work")
    }

    /// Compose's long form of a file; `None` without Compose.
    #[expect(clippy::disallowed_methods, reason = "Compose's own program is what the model is compared with")]
    async fn printed(&self, text: &str) -> Option<Result<Value, String>> {
        let mut project_directory = std::ffi::OsString::from("--project-directory=");
        project_directory.push(self.work());
        let mut child = Command::new(compose_program()?)
            .args(["--file=-", "--project-name=p", "--env-file=/dev/null"])
            .arg(project_directory)
            .args(["config", "--format=json"])
            .env_clear()
            .envs(ENV)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).await.unwrap();
        let Output { status, stdout, stderr } = child.wait_with_output().await.unwrap();
        // Compose doubles each `$`, so that it could read it again.
        let printed = String::from_utf8(stdout).unwrap().replace("$$", "$");
        Some(match status.success() {
            true => Ok(plain(serde_json::from_str(&printed).unwrap())),
            false => Err(String::from_utf8_lossy(&stderr).into_owned()),
        })
    }

    fn ours(&self, text: &str) -> Result<Value, ReadError> {
        let env: BTreeMap<_, _> = ENV.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let file = read(text, &self.work(), &policy(&self.work()))?;
        file.normalised(&ProjectName::parse("p").unwrap(), &env).map(plain)
    }

    /// How the two forms differ; `None` without Compose.
    async fn difference(&self, name: &str, text: &str) -> Option<String> {
        Some(match (self.printed(text).await?, self.ours(text)) {
            (Ok(theirs), Ok(ours)) => {
                different("", &theirs, &ours).map_or(String::new(), |it| format!("{name}: {it}\n"))
            }
            (Err(_), Err(_)) => String::new(),
            (theirs, ours) => format!("{name}: {theirs:?} and {ours:?}\n"),
        })
    }
}

/// Docker's plugin, which also runs on its own.
fn compose_program() -> Option<PathBuf> {
    let dirs = ["/usr/libexec", "/usr/lib", "/usr/local/lib", "/usr/local/libexec", "/opt/homebrew/lib"];
    let mut programs = dirs.iter().map(|dir| Path::new(dir).join("docker/cli-plugins/docker-compose"));
    programs.find(|program| program.exists())
}

/// The first difference between two models.
fn different(path: &str, theirs: &Value, ours: &Value) -> Option<String> {
    let (Some(one), Some(other)) = (theirs.as_object(), ours.as_object()) else {
        return (theirs != ours).then(|| format!("{path}: {theirs} and {ours}"));
    };
    let keys: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
    keys.into_iter().find_map(|it| different(&format!("{path}.{it}"), &theirs[it], &ours[it]))
}

/// Without meaningless parts: unset and empty values, and values that a key always has.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            let entries = entries.into_iter().filter(|(key, _)| !key.starts_with("x-") && key != "develop");
            let entries = entries.map(|(key, it)| (key, plain(it)));
            let empty = |it: &Value| it.is_null() || *it == json!({}) || *it == json!([]);
            let says = |key: &str, it: &Value| !empty(it) && key != "create_host_path";
            Value::Object(entries.filter(|(key, it)| says(key, it)).collect())
        }
        Value::Array(items) => items.into_iter().map(plain).collect(),
        other => other,
    }
}

fn policy(work: &Path) -> Policy {
    Policy {
        allow_roots: vec![work.to_owned()],
        home: work.ancestors().nth(2).unwrap().to_owned(),
        denied: vec![],
        scratch: "/nowhere".into(),
        images: PatternSet::new(&["*".into()]).unwrap(),
        ..Policy::everything()
    }
}

/// Creates the files that the comments at the top of a fixture name.
fn lay_out(text: &str, work: &Path) {
    for line in text.lines() {
        if let Some(file) = line.strip_prefix("# file: ") {
            std::fs::create_dir_all(work.join(file).parent().unwrap()).unwrap();
            std::fs::write(work.join(file), "A=1\n").unwrap();
        } else if let Some(dir) = line.strip_prefix("# dir: ") {
            std::fs::create_dir_all(work.join(dir)).unwrap();
        }
    }
}

#[tokio::test]
async fn files_of_public_projects_and_hostile_ones_have_the_same_model() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/compose");
    let (mut compared, mut faults) = (0, String::new());
    for kind in ["idioms", "hostile"] {
        for entry in std::fs::read_dir(fixtures.join(kind)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|it| it != "yaml") {
                continue;
            }
            let readers = Readers::new();
            let text = std::fs::read_to_string(&path).unwrap();
            lay_out(&text, &readers.work());
            if read(&text, &readers.work(), &policy(&readers.work())).is_err() {
                continue;
            }
            let Some(difference) = readers.difference(&path.display().to_string(), &text).await else {
                return crate::engines::skip("needs Docker Compose");
            };
            faults.push_str(&difference);
            compared += 1;
        }
    }
    assert_eq!(faults, "");
    assert!(compared > 50, "{compared}");
}

/// A file with one service of these keys.
fn with(service: Value) -> Value {
    let mut service = service;
    service["image"] = "x".into();
    json!({ "services": { "a": service, "other": { "image": "y" } }, "volumes": { "data": {}, "ext": { "external": true } },
        "networks": { "one": null, "two": { "internal": true }, "out": { "external": true, "name": "given" } },
        "configs": { "k": { "content": "x$GIVEN" } }, "secrets": { "s": { "environment": "GIVEN" } } })
}

#[tokio::test]
async fn short_forms_are_written_out_as_compose_does_it() {
    let (readers, mut faults) = (Readers::new(), String::new());
    for service in [
        json!({ "command": "sh -c \"echo '$$HOME' ${GIVEN:-d}\"", "entrypoint": ["/e", "$${X}"] }),
        json!({ "command": r#"echo a\ b "c \"d\" n" 'e\f' g"h"i "" # x"#, "entrypoint": "" }),
        json!({ "command": [], "entrypoint": "one" }),
        json!({ "environment": ["A=1", "GIVEN", "C=", "NO"] }),
        json!({ "environment": { "A": 1, "B": true, "C": 1.5, "D": null, "GIVEN": null,
            "E": "${GIVEN:+yes}${NO:+no}${NO-d}${NO:-${GIVEN}}$GIVEN$$GIVEN${EMPTY-x}${EMPTY:-y}" } }),
        json!({ "environment": { "A": 1.0, "B": 1e6, "C": 0.00001, "D": 123456.5 }, "labels": { "v": 2.0 } }),
        json!({ "network_mode": "none", "networks": ["one"] }),
        json!({ "environment": { "A": "${NO:?is missing}" } }),
        json!({ "environment": { "A": "a$", "B": "$1 $% $ ${NO:-$}" } }),
        json!({ "environment": { "A": "${GIVEN" } }),
        json!({ "ports": ["80", "8080:80/udp", "127.0.0.1:9000-9002:9000-9002", "[::1]:1:1", 5000, "3000-3005:3000",
            "127.0.0.1::81", "8000-8001", { "target": 5, "published": 6000, "host_ip": "1.2.3.4" },
            { "target": "80", "mode": "host", "published": "$EMPTY" }] }),
        json!({ "ports": ["1:2:3:4"] }),
        json!({ "ports": ["1-3:4-5"] }),
        json!({ "volumes": ["data:/data:ro", "./x:/x:rw,z", "/anon", "/abs:/abs:ro", ".:/y", "./a/../b:/z",
            "data:/d2:nocopy", "/r:/r:rshared", { "type": "tmpfs", "target": "/t", "tmpfs": { "size": "10m" } },
            { "type": "bind", "source": "./q", "target": "/q" },
            { "type": "volume", "source": "ext", "target": "/e", "read_only": true }] }),
        json!({ "depends_on": ["other"], "links": ["other:alias"] }),
        json!({ "depends_on": { "other": { "condition": "service_healthy", "required": false } } }),
        json!({ "links": ["other"], "network_mode": "service:other" }),
        json!({ "healthcheck": { "test": "true", "interval": "1m30s", "timeout": "90s", "retries": "3", "start_period": "500ms" } }),
        json!({ "healthcheck": { "test": ["NONE"] } }),
        json!({ "healthcheck": { "disable": true } }),
        json!({ "mem_limit": "64m", "memswap_limit": "1g", "cpus": "0.5", "pids_limit": 100, "shm_size": "1.5gb" }),
        json!({ "mem_limit": 1_048_576, "tmpfs": "/tmp", "dns": "1.1.1.1", "dns_search": "x.com" }),
        json!({ "mem_limit": "much" }),
        json!({ "extra_hosts": { "h": "1.2.3.4", "g": "host-gateway" } }),
        json!({ "extra_hosts": ["b:1.2.3.4", "a=::1", "c:::2"] }),
        json!({ "ulimits": { "nofile": 100, "nproc": { "soft": 1, "hard": 2 } }, "sysctls": ["a=1"] }),
        json!({ "labels": ["a=b", "c"], "expose": [80, "90"], "group_add": ["1", "a"] }),
        json!({ "labels": { "a": 1, "b": null, "c": true } }),
        json!({ "networks": ["one", "two"] }),
        json!({ "networks": { "one": { "aliases": ["z"] }, "out": null } }),
        json!({ "network_mode": "none", "tty": true, "stdin_open": true, "init": true, "read_only": true }),
        json!({ "stop_grace_period": "1h2m3.5s", "stop_signal": "SIGINT", "working_dir": "/w", "user": "1" }),
        json!({ "secrets": ["s"], "configs": [{ "source": "k", "target": "/k", "mode": 288 }] }),
        json!({ "secrets": [{ "source": "s", "target": "tt" }, { "source": "s", "target": "/abs", "mode": 256 }] }),
        json!({ "deploy": { "replicas": 2, "resources": { "limits": { "memory": "1.5g", "cpus": "0.25", "pids": 7 } } } }),
        json!({ "build": { "context": ".", "args": ["A=1"], "shm_size": "1m", "labels": { "l": 1 } } }),
        json!({ "logging": { "driver": "json-file", "options": { "max-file": 3 } }, "hostname": "hh", "scale": 3 }),
        json!({ "gpus": "all", "cap_add": ["CHOWN"], "security_opt": ["no-new-privileges"], "profiles": [] }),
        json!({ "profiles": ["dev"] }),
    ] {
        let Some(difference) = readers.difference(&service.to_string(), &with(service.clone()).to_string()).await
        else {
            return crate::engines::skip("needs Docker Compose");
        };
        faults.push_str(&difference);
    }
    assert_eq!(faults, "");
}

#[tokio::test]
async fn an_extending_service_is_merged_as_compose_does_it() {
    let readers = Readers::new();
    let base = json!({ "image": "x", "command": "one", "environment": ["A=1", "B=2"], "volumes": ["./o:/o", "./p:/p"],
        "ports": ["1:1"], "labels": { "a": "1" }, "depends_on": ["c"], "expose": ["7"], "dns": ["1.1.1.1"],
        "healthcheck": { "test": ["CMD", "x"], "retries": 3 }, "networks": { "one": { "aliases": ["z"] } } });
    let over = json!({ "extends": { "service": "a" }, "command": ["two"], "environment": { "B": 3, "C": 4 },
        "volumes": ["./n:/p"], "ports": ["2:2"], "labels": ["b=2"], "depends_on": ["d"], "expose": ["8"],
        "dns": "2.2.2.2", "healthcheck": { "test": ["CMD", "y"] } });
    let plain = json!({ "image": "x" });
    let file = json!({ "services": { "a": base, "b": over, "c": plain, "d": plain }, "networks": { "one": {} } });
    match readers.difference("extends", &file.to_string()).await {
        Some(difference) => assert_eq!(difference, ""),
        None => crate::engines::skip("needs Docker Compose"),
    }
}
