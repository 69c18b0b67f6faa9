//! A user at a shell on this host, who types the lines of the documentation: with `coracle` on the search path, and a
//! home, a state directory and a working directory of their own.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use coracle_types::ImageRef;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::Tool;
use super::debian::{debian, lock};
use crate::engines::engine_program;

/// Replaces an image without a purpose.
pub(super) const IMAGE: &str = "localhost/coracle-test-newcomer:3";

/// Replaces the image of the purpose `general`.
const GENERAL: &str = "localhost/coracle-test-newcomer-general:1";

/// Replaces the image of the purpose `python`.
const PYTHON: &str = "localhost/coracle-test-newcomer-python:1";

/// Replaces `postgres:16`. Like every image of the pages, it has a server at port 5432.
pub(super) const POSTGRES: &str = "localhost/coracle-test-newcomer-postgres:1";

/// Longer than any line needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// An image of the pages, and those of its programs that this machine cannot fetch. An example that needs a program which the
/// original lacks fails here, too, but for the `git`, `curl` and `python3` of the Debian below.
struct PageImage {
    tag: &'static str,
    programs: &'static [&'static str],
}

const IMAGES: [PageImage; 4] = [
    PageImage { tag: IMAGE, programs: &["apt-get"] },
    PageImage { tag: GENERAL, programs: &["apt-get", "curl", "make"] },
    PageImage { tag: PYTHON, programs: &["apt-get", "curl", "make", "python", "uv"] },
    PageImage { tag: POSTGRES, programs: &["apt-get", "psql"] },
];

/// Writes a program that replaces one of the image.
const STUB: &str = r#"set -e
stub() { printf '#!/bin/sh\n%s\n' "$2" > "/usr/local/bin/$1"; chmod 755 "/usr/local/bin/$1"; }
"#;

/// The service of the images.
const SERVICE: &str = r#"CMD ["python3", "-m", "http.server", "5432"]"#;

/// The result of a line.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) code: Option<i32>,
    /// Both streams, one after the other.
    pub(super) text: String,
}

pub(super) struct Newcomer<'a> {
    pub(super) tool: &'a Tool<'a>,
}

impl<'a> Newcomer<'a> {
    pub(super) async fn new(tool: &'a Tool<'a>) -> Self {
        ensure_images(tool).await;
        Self { tool }
    }

    /// Runs a line with its output in a pipe. Variables that it sets remain for the next one.
    pub(super) async fn types(&self, line: &str) -> Shown {
        let mut shell = self.command("/bin/sh");
        shell.arg("-c").arg(self.remembered(line)).stdin(Stdio::null());
        let output = timeout(PATIENCE, shell.output()).await.unwrap_or_else(|_| panic!("never ends: {line}")).unwrap();
        let text = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
        Shown { code: output.status.code(), text }
    }

    /// Runs a line on a terminal, and types that into it.
    pub(super) async fn types_at_terminal(&self, line: &str, typed: &str) -> Shown {
        let mut script = self.command("script");
        script.args(["--quiet", "--return", "--command"]).arg(self.remembered(line)).arg("/dev/null");
        script.env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = script.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(typed.as_bytes()).await.unwrap();
        // An end of input would reach the program before it has read what was typed.
        let output = timeout(PATIENCE, child.wait_with_output()).await;
        let output = output.unwrap_or_else(|_| panic!("never ends: {line}")).unwrap();
        drop(stdin);
        Shown { code: output.status.code(), text: plain(&String::from_utf8_lossy(&output.stdout)) }
    }

    /// Files of the working directory.
    pub(super) fn files(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.tool.work()).unwrap();
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Writes a file below the working directory.
    pub(super) fn has(&self, path: &str, text: &str) {
        let file = self.tool.work().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn command(&self, program: &str) -> Command {
        let coracle = self.tool.command([] as [&str; 0]);
        let built = PathBuf::from(coracle.as_std().get_program());
        let mut command = engine_program(program);
        command.env_clear();
        for (name, value) in coracle.as_std().get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", built.parent().unwrap().display());
        command.env("PATH", path).current_dir(self.tool.work()).kill_on_drop(true);
        command
    }

    /// A line between reading the variables of earlier ones and writing them.
    fn remembered(&self, line: &str) -> String {
        let file = self.tool.temp().join("variables");
        let file = file.display();
        format!("set -a\nif [ -f {file} ]; then . {file}; fi\n{line}\ncode=$?\nexport -p > {file}\nexit $code\n")
    }
}

/// Text as on a terminal, without colours and cursor movements.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|it| match it.strip_prefix('[') {
        Some(sequence) => sequence.split_once(|end: char| end.is_ascii_alphabetic()).map_or("", |it| it.1),
        None => it,
    });
    (first + &rest.collect::<String>()).replace("\r\n", "\n").replace('\r', "\n")
}

async fn ensure_images(tool: &Tool<'_>) {
    let from = debian(tool.case).await;
    let _lock = lock(tool.case, "newcomer").await;
    for image in &IMAGES {
        let tag = ImageRef::parse(image.tag).unwrap();
        if tool.case.runtime.find_images(&[tag]).await.unwrap().is_empty() {
            image.build(tool, from).await;
        }
    }
}

impl PageImage {
    async fn build(&self, tool: &Tool<'_>, from: &str) {
        let stub = |program: &&str| format!("stub {program} '{}'\n", stand_in(program));
        let stubs: Vec<String> = self.programs.iter().map(stub).collect();
        let script = format!("{STUB}{}", stubs.concat());
        let name = tool.case.name("newcomer").to_string();
        let words = ["run", "--name", &name, "--user=0:0", "--network=none", from, "sh", "-c", &script];
        tool.engine_says(&words).await;
        tool.engine_says(&["commit", "--change", SERVICE, &name, self.tag]).await;
        tool.engine_says(&["rm", &name]).await;
    }
}

/// The script that replaces a program.
fn stand_in(program: &str) -> &'static str {
    match program {
        "make" => "case $1 in serve) echo serving; exec python3 -m http.server 8080 ;; *) echo all good ;; esac",
        "psql" => "echo 1",
        "python" => r#"exec python3 "$@""#,
        "curl" => {
            r#"for it; do :; done; exec python3 -c "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).status)" "http://$it""#
        }
        _ => "exit 0",
    }
}

/// A configuration whose purposes use these images, so that none takes minutes.
pub(super) fn purposes() -> String {
    let profile =
        |name: &str, image: &str| format!("[profiles.{name}]\nimage = \"{image}\"\npackages = []\nsetup = []\n");
    [profile("general", GENERAL), profile("python", PYTHON), profile("node", IMAGE)].concat()
}

/// A stack's file with two services that answer: a database, and a cache.
pub(super) fn stack() -> String {
    let service = |image: &str, port: u16| {
        let connects = format!("import socket; socket.create_connection(('127.0.0.1', {port}))");
        json!({ "image": image, "command": ["python3", "-m", "http.server", port.to_string()],
            "healthcheck": { "test": ["CMD", "python3", "-c", connects], "interval": "1s", "retries": 30 } })
    };
    json!({ "services": { "db": service(POSTGRES, 5432), "cache": service(IMAGE, 6379) } }).to_string()
}
