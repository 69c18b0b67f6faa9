//! Engines on another machine over one `ssh` connection. The other machine is this one, behind a separate `sshd`.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_types::EngineKind;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::person::Person;
use super::{Tool, merge};

/// An `sshd` with its own keys, and matching settings of a client.
struct SshServer {
    dir: TempDir,
    port: u16,
    _process: Child,
}

impl SshServer {
    /// `None` if `sshd` is not installed.
    async fn start(tool: &Tool<'_>) -> Option<Self> {
        if !Path::new(SSHD).exists() || !crate::engines::is_root() {
            coracle_skips::skip(coracle_skips::NEEDS_SSHD);
            return None;
        }
        let dir = tempfile::tempdir_in(tool.temp()).unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        for name in ["host", "key"] {
            let words = ["-q", "-t", "ed25519", "-N", "", "-f", name];
            let made = host_program("/usr/bin/ssh-keygen").args(words).current_dir(dir.path()).status().await;
            assert!(made.unwrap().success());
        }
        let at = |name: &str| dir.path().join(name).display().to_string();
        let server = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nPidFile none\nAuthorizedKeysFile {}\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n",
            at("host"),
            at("key.pub")
        );
        std::fs::write(at("server"), server).unwrap();
        std::fs::create_dir_all("/run/sshd").unwrap(); // where it locks itself in before a login
        let log = std::fs::File::create(at("log")).unwrap();
        let process = host_program(SSHD).args(["-D", "-e", "-f", &at("server")]).stderr(log).spawn().unwrap();
        let server = Self { dir, port, _process: process };
        server.knows("known_hosts", &server.read("host.pub"));
        server.configure("client", "known_hosts");
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Some(server)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// A file of known hosts, in which this server has that key.
    fn knows(&self, file: &str, key: &str) {
        std::fs::write(self.path(file), format!("[127.0.0.1]:{} {key}", self.port)).unwrap();
    }

    /// A configuration of `ssh` with that file.
    fn configure(&self, name: &str, known: &str) {
        let text = format!(
            "IdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\nGlobalKnownHostsFile none\n",
            self.path("key").display(),
            self.path(known).display()
        );
        std::fs::write(self.path(name), text).unwrap();
    }

    /// How often a client has logged in.
    fn logins(&self) -> usize {
        self.read("log").matches("Accepted publickey").count()
    }

    /// The configuration of Coracle for an engine behind this server.
    fn settings(&self, engine: EngineKind, socket: &str, client: &str) -> String {
        format!(
            "engine = \"{engine}\"\nengine_host = \"ssh://root@127.0.0.1:{}{socket}\"\nallow_remote_engine = true\n\
             engine_ssh_config = {:?}\n",
            self.port,
            self.path(client)
        )
    }
}

const SSHD: &str = "/usr/sbin/sshd";

#[expect(clippy::disallowed_methods, reason = "a test starts the server that it needs")]
fn host_program(path: &str) -> Command {
    let mut command = Command::new(path);
    command.kill_on_drop(true);
    command
}

fn socket(engine: EngineKind) -> &'static str {
    if engine == EngineKind::Podman { "/run/podman/podman.sock" } else { "/var/run/docker.sock" }
}

/// A call with that configuration.
async fn call(tool: &Tool<'_>, config: &str, call: Value) -> Value {
    let file = tool.home().join("remote.toml");
    std::fs::write(&file, config).unwrap();
    let output = tool.run(["call", "--config", file.to_str().unwrap(), "-"], call.to_string().as_bytes()).await;
    serde_json::from_slice(&output.stdout).unwrap_or_else(|err| {
        panic!("{err}: {} {}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    })
}

/// The life of a container: created, used, filled from this machine, and removed.
async fn lives_elsewhere(tool: &Tool<'_>, engine: EngineKind) {
    let Some(server) = SshServer::start(tool).await else { return };
    let config = server.settings(engine, socket(engine), "client");
    let call = async |it: Value| call(tool, &config, it).await;
    std::fs::write(tool.work().join("notes"), "from here\n").unwrap();
    let created = call(tool.create_call(json!({ "mount_cwd": true }))).await;
    let name = created["container"].as_str().unwrap_or_else(|| panic!("{created:#}"));
    let on = |operation: &str, more: Value| {
        let mut call = json!({ "operation": operation, "container": name });
        merge(call.as_object_mut().unwrap(), more);
        call
    };
    let status = call(on("status", json!({}))).await;
    assert_eq!(status["guest"], "uploaded", "{status:#}");
    let workdir = created["workdir"].as_str().unwrap_or("/workspace");
    let before = server.logins();
    let read = call(on("exec", json!({ "command": format!("cat {workdir}/notes; exit 3") }))).await;
    assert_eq!((&read["stdout"], &read["exit_code"]), (&"from here\n".into(), &3.into()), "{read:#}");
    assert_eq!(server.logins(), before + 1, "one call logs in once");
    let job = call(on("exec_background", json!({ "command": "echo job" }))).await;
    let waited = call(on("job_wait", json!({ "job_id": job["job_id"] }))).await;
    assert_eq!(waited["output"], "job\n", "{waited:#}");
    call(on("exec", json!({ "command": "echo there > /tmp/out" }))).await;
    let out = tool.work().join("out");
    let copied = call(on("copy_out", json!({ "container_path": "/tmp/out", "host_path": out }))).await;
    assert_eq!(
        (&copied["success"], std::fs::read_to_string(&out).ok().as_deref()),
        (&true.into(), Some("there\n")),
        "{copied:#}"
    );
    let listed = call(json!({ "operation": "list" })).await;
    assert!(listed.to_string().contains(name), "{listed:#}");
    let bound = json!({ "mounts": [{ "host": tool.work(), "container": "/data" }] });
    let refused = call(tool.create_call(bound)).await;
    assert_eq!(
        (&refused["code"], &refused["details"]["rule"]),
        (&"policy_denied".into(), &"mount.bind".into()),
        "{refused:#}"
    );
    assert_eq!(call(on("destroy", json!({}))).await["success"], true);
}

#[tokio::test]
async fn docker_on_another_machine_is_used_over_one_login() {
    Person::new("")
        .on_one_engine(EngineKind::Docker, async |tool| lives_elsewhere(tool, EngineKind::Docker).await)
        .await;
}

#[tokio::test]
async fn podman_on_another_machine_is_used_over_one_login() {
    Person::new("")
        .on_one_engine(EngineKind::Podman, async |tool| lives_elsewhere(tool, EngineKind::Podman).await)
        .await;
}

#[tokio::test]
async fn a_machine_that_is_not_reached_says_why() {
    let engine = EngineKind::Docker;
    Person::new("")
        .on_one_engine(engine, async |tool| {
            let Some(server) = SshServer::start(tool).await else { return };
            server.knows("others", &server.read("key.pub"));
            server.configure("stranger", "others");
            std::fs::write(server.path("no_key"), server.read("client").replace("/key\n", "/host\n")).unwrap();
            let there = socket(engine);
            let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            let elsewhere = |config: String| config.replace(&format!(":{}/", server.port), &format!(":{closed}/"));
            for (config, reason) in [
                (server.settings(engine, there, "stranger"), "the key of the machine is not known, or has changed"),
                (server.settings(engine, there, "no_key"), "the machine accepts no key of yours"),
                (elsewhere(server.settings(engine, there, "client")), "the machine does not answer"),
                (server.settings(engine, "/run/no/engine.sock", "client"), "there is no socket of it there"),
                (server.settings(engine, "/run/a:b", "client"), "its path has other characters"),
            ] {
                let answer = call(tool, &config, tool.create_call(json!({}))).await;
                let reported = answer["details"].to_string();
                assert_eq!(answer["code"], "not_ready", "{reason}: {answer:#}");
                assert!(reported.contains(reason), "{reason}: {answer:#}");
                assert!(answer["hint"].is_string(), "{answer:#}");
            }
        })
        .await;
}
