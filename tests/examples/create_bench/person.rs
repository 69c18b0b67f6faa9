//! A user of `coracle` with a separate home, state directory and namespace, so that images belong only to this user.
#![expect(clippy::disallowed_methods, reason = "the program is what is measured")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::leftovers;
use crate::mcp::McpSession;

#[derive(Debug)]
pub(crate) struct Person {
    coracle: PathBuf,
    engine: &'static str,
    namespace: &'static str,
    root: TempDir,
}

const NOTHING: &str =
    "[auto_passthrough]\nmode = \"none\"\nforward_git = false\nforward_gh = false\nca_certificates = false\n";

const GIT: &str = "\
[user]\n\tname = Ann Example\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n[pull]\n\trebase = true\n\
[alias]\n\tlg = log --graph --oneline\n\tst = status --short\n";

/// Variables that are passed in automatically.
const VARIABLES: [(&str, &str); 2] = [("EXAMPLE_API_KEY", "0123456789abcdef"), ("EXAMPLE_TOKEN", "fedcba9876543210")];

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Person {
    /// A user with identity, variables and certificates to provision.
    pub(crate) fn with_all(coracle: &Path, engine: &'static str) -> Self {
        let it = Self::new(coracle, engine, "coracle-bench", "");
        std::fs::write(it.root.path().join("home/.gitconfig"), GIT).unwrap();
        it
    }

    /// A user with nothing to provision.
    pub(crate) fn with_nothing(coracle: &Path, engine: &'static str) -> Self {
        Self::new(coracle, engine, "coracle-bench-bare", NOTHING)
    }

    fn new(coracle: &Path, engine: &'static str, namespace: &'static str, more: &str) -> Self {
        let (coracle, root) = (coracle.canonicalize().unwrap(), tempfile::tempdir().unwrap());
        let it = Self { coracle, engine, namespace, root };
        for dir in ["home", "work", "tmp"] {
            std::fs::create_dir(it.root.path().join(dir)).unwrap();
        }
        let config = format!("engine = \"{engine}\"\nlabel_namespace = \"{namespace}\"\n{more}");
        std::fs::write(it.config(), config).unwrap();
        it
    }

    /// The answer of a call that has to succeed, and how long the process took.
    pub(crate) fn call(&self, call: &Value) -> (Value, Duration) {
        let mut command = self.command(call);
        let begun = Instant::now();
        let output = command.output().unwrap();
        let took = begun.elapsed();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert_eq!(answer["success"], true, "{call}: {answer:#}{}", String::from_utf8_lossy(&output.stderr));
        (answer, took)
    }

    /// A server that an agent of this person has.
    pub(crate) fn agent(&self) -> McpSession {
        McpSession::start(self.program().args(["mcp", "--toolsets", "classic"]))
    }

    fn command(&self, call: &Value) -> Command {
        let mut command = self.program();
        command.arg("call").arg(call.to_string()).stdin(Stdio::null());
        command
    }

    fn program(&self) -> Command {
        let root = self.root.path();
        let mut command = Command::new(&self.coracle);
        command.env_clear().envs(VARIABLES).env("PATH", PATH);
        command.env("HOME", root.join("home")).env("TMPDIR", root.join("tmp"));
        command.env("XDG_STATE_HOME", root.join("state")).env("CORACLE_CONFIG", self.config());
        command.current_dir(root.join("work"));
        command
    }

    fn config(&self) -> PathBuf {
        self.root.path().join("config.toml")
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let all = json!({ "operation": "destroy_all", "confirm": true });
        for call in [all, json!({ "operation": "cache_clear" })] {
            // The measurement is valid, but leftovers should be known.
            let output = self.command(&call).output();
            if !output.as_ref().is_ok_and(|it| it.status.success()) {
                eprintln!("{call}: {output:?}");
            }
        }
        leftovers::remove_networks(self.engine, self.namespace);
    }
}
