//! `coracle ssh-config` and `coracle open`: OpenSSH's own client reaches a container by the link to its guest.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::{prints, text, typed};
use crate::engines::engine_program;
use crate::guest::shell::on_a_terminal;
use crate::tool::{Tool, eventually, with_engine, with_rootful_engine};

/// How long a client may take; a package is installed by one.
const LIMIT: Duration = Duration::from_secs(180);

/// An editor on CodeMirror: its server runs in the container, and a browser shows it.
const EDITOR: &str = "dword@15.0.4";

/// The clients of OpenSSH, with the configuration that is printed for a container.
struct SshClient<'a> {
    tool: &'a Tool<'a>,
    config: PathBuf,
    host: String,
}

impl<'a> SshClient<'a> {
    /// `None` where there is no client.
    async fn of(tool: &'a Tool<'a>, container: &str) -> Option<Self> {
        if engine_program("ssh").arg("-V").stderr(Stdio::null()).status().await.is_err() {
            coracle_skips::skip(coracle_skips::NEEDS_SSH);
            return None;
        }
        let config = tool.work().join("ssh.conf");
        std::fs::write(&config, prints(tool, &["ssh-config", container]).await).unwrap();
        Some(Self { tool, config, host: format!("{container}.coracle") })
    }

    /// A client's program that is to be started, in the work directory.
    fn command(&self, program: &str, words: &[&str]) -> Command {
        let like = self.tool.command(["--version"]);
        let env = like.as_std().get_envs().filter_map(|(name, value)| Some((name, value?)));
        let mut command = engine_program(program);
        command.arg("-F").arg(&self.config).args(words).env_clear().envs(env).kill_on_drop(true);
        command.current_dir(self.tool.work()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn run(&self, program: &str, words: &[&str], input: &[u8]) -> Output {
        let mut child = self.command(program, words).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let feed = async {
            let _ = pipe.write_all(input).await;
            drop(pipe);
        };
        let (_, output) = timeout(LIMIT, async { tokio::join!(feed, child.wait_with_output()) })
            .await
            .unwrap_or_else(|_| panic!("{program} {words:?} does not end"));
        output.unwrap()
    }

    async fn ssh(&self, command: &str, input: &[u8]) -> Output {
        self.run("ssh", &[&self.host, command], input).await
    }

    async fn ssh_as(&self, user: &str, command: &str) -> Output {
        self.run("ssh", &["-l", user, &self.host, command], b"").await
    }

    async fn succeeds(&self, program: &str, words: &[&str], input: &[u8]) -> String {
        let output = self.run(program, words, input).await;
        assert!(output.status.success(), "{program} {words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

/// Bytes that are neither text nor all the same.
fn bytes(count: u32) -> Vec<u8> {
    (0..count).flat_map(|it| it.wrapping_mul(2_654_435_761).to_be_bytes()).collect()
}

#[tokio::test]
async fn an_ssh_client_runs_commands_and_only_with_both_keys() {
    with_engine("[security]\nallow_root = false\n", async |tool| {
        // OpenSSH has the name of a host in lower case, too, where this would be another container.
        let fields = json!({ "name": "Over-SSH", "user": "1000", "env": { "GIVEN": "a value" } });
        let name = tool.created(fields).await;
        let Some(client) = SshClient::of(tool, &name).await else { return };
        let ran = client.ssh("echo \"$GIVEN\"; echo wrong >&2; exit 3", b"").await;
        let printed = (text(&ran.stdout), text(&ran.stderr), ran.status.code());
        assert_eq!(printed, ("a value\n".to_owned(), "wrong\n".to_owned(), Some(3)));
        // More than fits in any window, in both directions concurrently.
        let content = bytes(1 << 20);
        let through = client.ssh("cat", &content).await;
        assert!(through.stdout == content && through.status.success(), "{}", text(&through.stderr));
        assert_eq!(text(&client.ssh("wc -c; echo more", &content).await.stdout), "4194304\nmore\n");
        let unread = client.ssh("exit 4", &content).await;
        assert_eq!(unread.status.code(), Some(4), "{}", text(&unread.stderr));

        let root = client.ssh_as("root", "id").await;
        assert_eq!(root.status.code(), Some(255));
        assert!(text(&root.stderr).contains("commands as root are not granted"), "{}", text(&root.stderr));

        let stranger = client.run("ssh", &["-o", "UserKnownHostsFile=/dev/null", &client.host, "true"], b"").await;
        assert_eq!(stranger.status.code(), Some(255));
        assert!(text(&stranger.stderr).contains("Host key verification failed"), "{}", text(&stranger.stderr));
        let config = std::fs::read_to_string(&client.config).unwrap();
        std::fs::write(&client.config, config.replace("id_ed25519", "host_ed25519")).unwrap();
        let stranger = client.ssh("true", b"").await;
        assert_eq!(stranger.status.code(), Some(255));
        assert!(text(&stranger.stderr).contains("Permission denied (publickey)"), "{}", text(&stranger.stderr));

        let trail = prints(tool, &["audit", "log", "--operation", "ssh"]).await;
        assert_eq!(trail.matches(name.as_str()).count(), 5, "{trail}");
        let row = trail.lines().find(|it| it.contains("ssh login")).unwrap_or_default();
        assert!(row.contains("denied: root.exec") && trail.contains("ssh cat …"), "{trail}");
    })
    .await;
}

#[tokio::test]
async fn a_terminal_by_ssh_has_the_size_of_the_users() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let Some(client) = SshClient::of(tool, &name).await else { return };
        let remote = "stty size; until stty size | grep -q '50 120'; do sleep 0.1; done; stty size; echo \"<$TERM>\"";
        let resize = "case \"$it\" in *'40 100'*) stty rows 50 cols 120 </dev/tty;; esac; printf '%s\\n' \"$it\"";
        let line = format!(
            "stty rows 40 cols 100; export TERM=vt220; ssh -q -F {} -tt {} \"{}\" | while read -r it; do {resize}; done",
            client.config.display(),
            client.host,
            remote.replace('"', "\\\"").replace('$', "\\$"),
        );
        let (shown, code) = on_a_terminal(&line, "").await;
        let lines: Vec<&str> = shown.lines().filter(|it| !it.is_empty()).collect();
        assert_eq!((lines.as_slice(), code), (&["40 100", "50 120", "<vt220>"][..], Some(0)), "{shown}");
    })
    .await;
}

#[tokio::test]
async fn files_go_both_ways_by_scp_and_sftp() {
    with_engine("", async |tool| {
        let name = tool.created(json!({ "workdir": "/place" })).await;
        let Some(client) = SshClient::of(tool, &name).await else { return };
        let content = bytes(1 << 18);
        std::fs::write(tool.work().join("sent"), &content).unwrap();
        let (there, absolute) = (format!("{}:there", client.host), format!("{}:/place/there", client.host));
        client.succeeds("scp", &["-s", "-p", "sent", &there], b"").await;
        client.succeeds("scp", &["-s", &absolute, "back"], b"").await;
        assert!(std::fs::read(tool.work().join("back")).unwrap() == content);
        let batch = "mkdir dir\ncd dir\ncd ..\nput sent dir/one\nrename dir/one dir/two\nrename dir/two /tmp/three\nchmod 640 /tmp/three\n\
            symlink /tmp/three dir/link\nls -1 dir\nrm there\nput sent dir/two\nrm dir/two\nrm dir/link\nrmdir dir\n-ls dir\n\
            reget /tmp/three half\nls -l /tmp/three\n";
        std::fs::write(tool.work().join("half"), &content[..1000]).unwrap();
        let shown = client.succeeds("sftp", &["-b", "-", &client.host], batch.as_bytes()).await;
        assert!(shown.contains("dir/link") && shown.contains("-rw-r-----"), "{shown}");
        assert!(std::fs::read(tool.work().join("half")).unwrap() == content);
        assert_eq!(tool.prints(&name, "ls /place; wc -c < /tmp/three").await, "1048576");
        // A link that is replaced by its new name, and the rights of directories.
        let batch = "mkdir releases\nmkdir releases/1\nmkdir releases/2\nsymlink releases/1 current\nsymlink releases/2 next\n\
            rename next current\n";
        client.succeeds("sftp", &["-b", "-", &client.host], batch.as_bytes()).await;
        let found = tool.prints(&name, "cd /place; stat -c %a releases; readlink current; ls releases/1").await;
        assert_eq!(found, "755\nreleases/2");
        // The rest of a file, and a missing one.
        tool.prints(&name, "head -c 5000 /tmp/three > /tmp/part").await;
        client.succeeds("sftp", &["-b", "-", &client.host], b"reput sent /tmp/part\n").await;
        tool.prints(&name, "cmp /tmp/part /tmp/three").await;
        let missing = client.run("scp", &["-s", &there, "none"], b"").await;
        assert!(!missing.status.success() && text(&missing.stderr).contains("No such file"), "{}", text(&missing.stderr));
        let nowhere = client.run("scp", &["-s", "sent", &format!("{}:/none/there", client.host)], b"").await;
        let printed = text(&nowhere.stderr);
        assert!(printed.starts_with("scp: dest open \"/none/there\": No such file"), "{printed}");
        // A link to a directory has the parent of that directory, and extensions are offered.
        let batch = "mkdir releases/1/deep\nsymlink releases/1/deep shallow\nls -1 shallow/..\nput sent\n\
            ln sent hard\ncp sent copied\ndf\n";
        let shown = client.succeeds("sftp", &["-b", "-", &client.host], batch.as_bytes()).await;
        assert!(shown.contains("shallow/../deep") && shown.contains("%Capacity"), "{shown}");
        let found = tool.prints(&name, "cd /place; stat -c %h sent; cmp sent copied; cmp sent hard").await;
        assert_eq!(found, "2");
    })
    .await;
}

/// Operations of programs on open files, in the current directory.
const ON_A_MOUNT: &str = r#"
import os, sqlite3, subprocess

with open("x", "w+b") as file:
    file.write(b"hello")
    file.flush()
    file.seek(0)
    assert file.read() == b"hello", "what was written is read"

number = os.open("x", os.O_RDWR)
assert os.pread(number, 9, 0) == b"hello"
os.pwrite(number, b"J", 0)
os.fsync(number)
assert os.pread(number, 3, 1) == b"ell" and os.pread(number, 9, 0) == b"Jello"
os.unlink("x")
assert os.pread(number, 9, 0) == b"Jello", "it is removed, and open"
os.close(number)

for text in "one", "two":
    with open("log", "a+") as file:
        file.write(text)
        file.seek(0)
        assert file.read().endswith(text)
assert open("log").read() == "onetwo"

os.link("log", "hard")
assert open("hard").read() == "onetwo" and os.statvfs(".").f_blocks > 0

with sqlite3.connect("base.db") as base:
    base.execute("create table it (a integer)")
    base.executemany("insert into it values (?)", ((number,) for number in range(1000)))
assert sqlite3.connect("base.db").execute("select sum(a) from it").fetchone() == (499500,)

git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", "repo"]
subprocess.run(["git", "init", "--quiet", "repo"], check=True)
for name in "one", "two":
    open(f"repo/{name}", "w").write(name)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", name], check=True)
subprocess.run([*git, "gc", "--quiet"], check=True)
subprocess.run([*git, "fsck", "--strict"], check=True)
assert subprocess.check_output([*git, "log", "--format=%s"]) == b"two\none\n"
"#;

#[tokio::test]
async fn programs_work_on_a_directory_that_is_mounted_by_sshfs() {
    with_engine("", async |tool| {
        let can_mount = std::path::Path::new("/dev/fuse").exists();
        if !can_mount || engine_program("sshfs").arg("--version").output().await.is_err() {
            return coracle_skips::skip(coracle_skips::NEEDS_SSHFS);
        }
        let name = tool.created(json!({ "workdir": "/place" })).await;
        let Some(client) = SshClient::of(tool, &name).await else { return };
        let mount = tool.work().join("mount");
        std::fs::create_dir(&mount).unwrap();
        let from = format!("{}:/place", client.host);
        let words = [&from, mount.to_str().unwrap(), "-f", "-o", "auto_unmount,idmap=user"];
        let mut sshfs = client.command("sshfs", &words).spawn().unwrap();
        let mounted = async || prints_of("findmnt", &["--noheadings", mount.to_str().unwrap()]).await.contains("sshfs");
        eventually("the directory is mounted", Duration::from_secs(30), mounted).await;
        let mut python = engine_program("python3");
        python.args(["-c", ON_A_MOUNT]).current_dir(&mount);
        let ran = timeout(LIMIT, python.output()).await.unwrap().unwrap();
        assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
        assert_eq!(tool.prints(&name, "cat /place/log").await, "onetwo");
        prints_of("umount", &[mount.to_str().unwrap()]).await;
        timeout(LIMIT, sshfs.wait()).await.unwrap().unwrap();
    })
    .await;
}

async fn prints_of(program: &str, words: &[&str]) -> String {
    text(&engine_program(program).args(words).output().await.unwrap().stdout)
}

#[tokio::test]
async fn ports_inside_are_reached_by_ssh_and_none_of_this_host_is_opened() {
    with_engine("", async |tool| {
        let name = tool.created(json!({ "network": "none" })).await;
        let Some(client) = SshClient::of(tool, &name).await else { return };
        let serve = "while :; do echo of the container | nc -l -p 8000; done";
        tool.call(json!({ "operation": "exec_background", "container": name, "command": serve })).await;
        let answers = async || {
            text(&client.run("ssh", &["-W", "localhost:8000", &client.host], b"").await.stdout) == "of the container\n"
        };
        eventually("the server answers", Duration::from_secs(20), answers).await;
        let refused = ["-o", "ExitOnForwardFailure=yes", "-R", "8001:localhost:8000", &client.host, "true"];
        assert_eq!(client.run("ssh", &refused, b"").await.status.code(), Some(255));
        let named = client.run("ssh", &["-W", "db:8000", &client.host], b"").await;
        assert!(text(&named.stderr).contains("is not an address"), "{}", text(&named.stderr));
    })
    .await;
}

/// Whether a container has a process with such a command line, by a pattern that does not match itself.
async fn is_running(tool: &Tool<'_>, container: &str, pattern: &str) -> bool {
    let count = format!("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '{pattern}'; true");
    tool.prints(container, &count).await != "0"
}

#[tokio::test]
async fn processes_of_a_client_end_with_the_client() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let Some(client) = SshClient::of(tool, &name).await else { return };
        let mut child = client.command("ssh", &[&client.host, "echo started; sleep 4321"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().as_deref(), Some("started"));
        assert!(is_running(tool, &name, "sleep 432[1]").await);
        child.kill().await.unwrap();
        let ended = async || !is_running(tool, &name, "sleep 432[1]").await;
        eventually("the command ends", Duration::from_secs(20), ended).await;
    })
    .await;
}

#[tokio::test]
async fn an_editors_server_from_npm_works_in_a_container_by_ssh() {
    if !coracle_skips::may_download() {
        return;
    }
    with_rootful_engine("", async |tool| {
        let made = tool.made(json!({ "image": null, "purpose": "node", "user": "1000" })).await;
        let name = made["container"].as_str().unwrap().to_owned();
        let Some(client) = SshClient::of(tool, &name).await else { return };
        let install = format!("npm install --global --silent --no-audit --no-fund --no-update-notifier {EDITOR}");
        client.succeeds("ssh", &[&client.host, &format!("{install} && echo before > /tmp/it.txt")], b"").await;

        // A socket of this host instead of a port: none can be taken already.
        let forward = format!("{}:localhost:1337", tool.work().join("editor").display());
        let words = ["-L", &forward, &client.host, "exec env IP=127.0.0.1 dword /tmp/it.txt"];
        let mut editor = client.command("ssh", &words).spawn().unwrap();
        let get = async |path: &str, more: &[&str]| {
            let url = format!("http://localhost/{path}");
            let words = [&["--silent", "--fail", "--unix-socket", "editor", &url][..], more].concat();
            let mut curl = engine_program("curl");
            text(&curl.args(words).current_dir(tool.work()).output().await.unwrap().stdout)
        };
        let answers = async || get("", &[]).await.contains("<title>Dword</title>");
        eventually("the editor answers", Duration::from_secs(30), answers).await;
        assert!(get("dword/dword.js", &[]).await.len() > 10_000, "the page's program");
        assert!(get("socket.io/?EIO=4&transport=polling", &[]).await.contains("\"sid\""), "the editor's session");
        let file = "dword/api/v1/fs/tmp/it.txt";
        assert_eq!(get(file, &[]).await, "before\n");
        get(file, &["--request", "PUT", "--data", "after"]).await;
        assert_eq!(tool.prints(&name, "cat /tmp/it.txt").await, "after");

        assert!(is_running(tool, &name, "bin/dwor[d]").await);
        editor.kill().await.unwrap();
        let ended = async || !is_running(tool, &name, "bin/dwor[d]").await;
        eventually("the editor's server ends", Duration::from_secs(20), ended).await;
    })
    .await;
}

#[tokio::test]
async fn an_editor_is_opened_once_the_configuration_is_there() {
    with_engine("", async |tool| {
        let name = tool.created(json!({ "workdir": "/place" })).await;
        let programs = tool.work().join("programs");
        std::fs::create_dir(&programs).unwrap();
        let code = programs.join("code");
        std::fs::write(&code, "#!/bin/sh\necho \"$@\"\n").unwrap();
        std::fs::set_permissions(&code, PermissionsExt::from_mode(0o755)).unwrap();
        let open = async |words: &[&str]| {
            let mut command = tool.command(["open", &name]);
            command.args(words).env("PATH", &programs).stdin(Stdio::null()).output().await.unwrap()
        };
        let unconfirmed = open(&[]).await;
        assert!(text(&unconfirmed.stderr).contains("error[confirm_required]"), "{}", text(&unconfirmed.stderr));
        let opened = open(&["--yes"]).await;
        let line = format!("--remote ssh-remote+{name}.coracle /place");
        assert_eq!(text(&opened.stdout).lines().last(), Some(line.as_str()), "{}", text(&opened.stderr));
        let config = tool.home().join(".ssh/config");
        let included = std::fs::read_to_string(&config).unwrap();
        assert!(included.starts_with("Include \""), "{included}");
        assert_eq!(text(&open(&["src"]).await.stdout), format!("{line}/src\n"));
        assert_eq!(std::fs::read_to_string(&config).unwrap(), included);
        // One that starts the server in another way than this program would is written again.
        let installed = included.split('"').nth(1).unwrap();
        let text_of_it = std::fs::read_to_string(installed).unwrap();
        let gone = text_of_it.replace("ProxyCommand ", "ProxyCommand /gone");
        std::fs::write(installed, &gone).unwrap();
        let unconfirmed = open(&[]).await;
        assert!(text(&unconfirmed.stderr).contains("error[confirm_required]"), "{}", text(&unconfirmed.stderr));
        open(&["--yes"]).await;
        assert_eq!(std::fs::read_to_string(installed).unwrap(), text_of_it);
        assert_eq!(std::fs::read_to_string(format!("{installed}.before-coracle")).unwrap(), gone);
        let none = open(&["--editor", "zed"]).await;
        assert!(text(&none.stderr).contains("error[not_found]"), "{}", text(&none.stderr));
        // Another container's entry is added, and the user's own entries stay.
        std::fs::write(&config, format!("{included}Host other\n    User me\n")).unwrap();
        typed(tool, &["ssh-config", "--write", "--yes"]).await;
        assert!(std::fs::read_to_string(&config).unwrap().ends_with("Host other\n    User me\n"));
    })
    .await;
}
