//! A person with a home, a state directory and a namespace of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::client::Session;
use crate::vocabulary::Vocabulary;

/// The purpose of all machines as in the default configuration, with Python.
pub(crate) const PURPOSE: &str = "general";
pub(crate) const PACKAGES: &[&str] = &["python3"];

/// The session for a task.
const SESSION: &str = "eval";

pub(crate) struct Person {
    coracle: PathBuf,
    root: TempDir,
}

impl Person {
    pub(crate) fn new(coracle: &Path, engine: &str) -> Self {
        let it = Self { coracle: coracle.canonicalize().unwrap(), root: tempfile::tempdir().unwrap() };
        for dir in ["home", "work", "tmp"] {
            std::fs::create_dir(it.root.path().join(dir)).unwrap();
        }
        let config = format!(
            "engine = \"{engine}\"\nlabel_namespace = \"coracle-eval\"\n[machine]\npurpose = \"{PURPOSE}\"\n\
             packages = {PACKAGES:?}\n[lifecycle]\nkeep_jobs = false\n"
        );
        std::fs::write(it.root.path().join("config.toml"), config).unwrap();
        it
    }

    /// Empties the working directory.
    pub(crate) fn clear(&self) {
        let work = self.root.path().join("work");
        for entry in std::fs::read_dir(&work).unwrap().map(|it| it.unwrap().path()) {
            if entry.is_dir() { std::fs::remove_dir_all(entry).unwrap() } else { std::fs::remove_file(entry).unwrap() }
        }
    }

    /// A session of an agent.
    pub(crate) fn session(&self, vocabulary: Vocabulary) -> Session {
        Session::start(self.program().args(["--session", SESSION, "mcp", "--toolsets", vocabulary.toolsets()]))
    }

    /// Stops the session's newest container, as a crash would.
    pub(crate) fn stop_container(&self) {
        let list = json!({ "operation": "list" }).to_string();
        let output = self.program().args(["--session", SESSION, "call", &list]).output().unwrap();
        let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let name = listed["containers"].as_array().and_then(|it| it.last()).map(|it| it["name"].clone());
        let name = name.and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_else(|| panic!("{listed:#}"));
        let stopped = self.program().args(["--session", SESSION, "stop", &name]).output().unwrap();
        assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
    }

    fn program(&self) -> Command {
        let root = self.root.path();
        let mut command = Command::new(&self.coracle);
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", root.join("home")).env("TMPDIR", root.join("tmp"));
        command.env("XDG_STATE_HOME", root.join("state")).env("CORACLE_CONFIG", root.join("config.toml"));
        command.current_dir(root.join("work"));
        command
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let all = json!({ "operation": "destroy_all", "confirm": true, "scope": "all", "discard": true }).to_string();
        let _ = self.program().args(["call", &all]).output();
    }
}
