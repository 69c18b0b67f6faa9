//! Containers of the program `coracle`, as a user with a separate state directory.
#![expect(clippy::disallowed_methods, reason = "the program is what is measured")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::LABEL;
use crate::busybox::IMAGE;
use crate::engine::ended_well;
use crate::leftovers;
use crate::link::Transport;

const NAMESPACE: &str = "coracle-bench-exec";

/// The form of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Frontend {
    /// `coracle exec`.
    Words,
    /// `coracle call`.
    Json,
}

#[derive(Debug)]
pub(crate) struct Tool {
    coracle: PathBuf,
    engine: String,
    root: TempDir,
    /// A container that is not destroyed yet.
    made: Mutex<Option<String>>,
}

impl Tool {
    /// A user with or without guests.
    pub(crate) fn new(coracle: &Path, engine: &str, guest: bool) -> Self {
        let (coracle, root) = (coracle.to_owned(), tempfile::tempdir().unwrap());
        let guest = if guest { "auto" } else { "never" };
        let config = format!("engine = \"{engine}\"\nguest = \"{guest}\"\nlabel_namespace = \"{NAMESPACE}\"\n");
        std::fs::write(root.path().join("config.toml"), config).unwrap();
        Self { coracle, engine: engine.to_owned(), root, made: Mutex::default() }
    }

    /// Creates a container, and returns the duration.
    pub(crate) fn create(&self) -> Duration {
        let (name, took) = self.timed_create();
        let before = self.made.lock().unwrap_or_else(PoisonError::into_inner).replace(name);
        assert_eq!(before, None, "made and never destroyed");
        took
    }

    /// Destroys the container of [`create`](Self::create), and returns the duration.
    pub(crate) fn destroy(&self) -> Duration {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).take();
        let name = made.expect("`create` comes first");
        self.call(&json!({ "operation": "destroy", "container": name })).1
    }

    /// A container for calls by that transport: its name.
    pub(crate) fn container(&self, transport: Transport) -> String {
        let before = self.links();
        let (name, _) = self.timed_create();
        if transport == Transport::Stream {
            // What its guest listens on besides is reached by a program that the engine runs.
            self.links().difference(&before).for_each(|it| std::fs::remove_file(it.join("sock")).unwrap());
        }
        name
    }

    /// The duration of a process `coracle` with `true`.
    pub(crate) fn one_shot(&self, frontend: Frontend, container: &str) -> Duration {
        let call = json!({ "operation": "exec", "container": container, "command": ["true"] });
        let begun = Instant::now();
        let output = match frontend {
            Frontend::Words => self.command("exec").args([container, "--", "true"]).output(),
            Frontend::Json => self.command("call").arg(call.to_string()).output(),
        };
        let took = begun.elapsed();
        ended_well(&output.unwrap());
        took
    }

    fn timed_create(&self) -> (String, Duration) {
        let (answer, took) = self.call(&json!({ "operation": "create", "image": IMAGE, "mount_cwd": false,
            "labels": { LABEL: std::process::id().to_string() } }));
        (answer["container"].as_str().unwrap().to_owned(), took)
    }

    fn call(&self, call: &Value) -> (Value, Duration) {
        let begun = Instant::now();
        let output = self.command("call").arg(call.to_string()).output().unwrap();
        let took = begun.elapsed();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert_eq!(answer["success"], true, "{call}: {answer:#}{}", String::from_utf8_lossy(&output.stderr));
        (answer, took)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.coracle);
        command.arg(verb).arg("--config").arg(self.root.path().join("config.toml"));
        command.arg("--state-dir").arg(self.state()).stdin(Stdio::null());
        command
    }

    /// The directories of sockets.
    fn links(&self) -> BTreeSet<PathBuf> {
        let entries = std::fs::read_dir(self.state().join("link"));
        entries.into_iter().flatten().map(|it| it.unwrap().path()).collect()
    }

    fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let call = json!({ "operation": "destroy_all", "confirm": true });
        // The measurement is valid even if containers cannot be removed.
        let _ = self.command("call").arg(call.to_string()).output();
        leftovers::remove_networks(&self.engine, NAMESPACE);
    }
}
