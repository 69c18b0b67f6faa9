//! A caller with the user's configuration, variables and programs. Parses answers.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use coracle_types::EngineKind;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Tool;
use crate::engines::{
    Case, Check, Scripted, caught, lasting_dir, on_every_engine, on_every_engine_and_rootless, on_one_engine, variable,
    with_scripted,
};

/// A person's environment before the first call.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    pub(super) config: String,
    env: BTreeMap<String, String>,
}

/// A check with a tool.
pub(crate) type ToolCheck<'a> = &'a (dyn for<'c> Check<Tool<'c>> + 'a);

/// The default search path of the user.
const PATH: &str = "/usr/bin:/bin";

impl Person {
    pub(crate) fn new(config: impl Into<String>) -> Self {
        Self { config: config.into(), env: [("PATH".to_owned(), PATH.to_owned())].into() }
    }

    /// Adds a variable. `{work}` in its value is the working directory.
    pub(crate) fn with_env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    /// Adds programs before those of the system.
    pub(crate) fn with_programs(self, programs: &Programs) -> Self {
        self.with_env("PATH", format!("{}:{PATH}", programs.0.path().display()))
    }

    /// Whether only the configuration is this user's.
    pub(super) fn is_plain(&self) -> bool {
        self.env.len() == 1 && self.env["PATH"] == PATH
    }

    pub(super) fn env_in(&self, root: &Path) -> BTreeMap<String, String> {
        let work = root.join("work").display().to_string();
        self.env.iter().map(|(name, value)| (name.clone(), value.replace("{work}", &work))).collect()
    }

    /// Runs a check with a new state directory on every engine, and removes leftovers.
    pub(crate) async fn on_every_engine(&self, check: impl AsyncFn(&Tool<'_>)) {
        self.on_engines_with_root(&check).await;
    }

    async fn on_engines_with_root(&self, check: ToolCheck<'_>) {
        on_every_engine(async |case| {
            if case.engine() == EngineKind::Container {
                // What of the tool is tried on it is so by name: most of the rest needs what it lacks.
                return case.left_out();
            }
            self.checked(case, check).await;
        })
        .await;
    }

    /// As [`on_every_engine`](Self::on_every_engine), and on Podman without root, where tests run as an unprivileged
    /// user.
    pub(crate) async fn on_every_engine_and_rootless(&self, check: impl AsyncFn(&Tool<'_>)) {
        self.on_each_engine(&check).await;
    }

    async fn on_each_engine(&self, check: ToolCheck<'_>) {
        on_every_engine_and_rootless(async |case| {
            if case.engine() == EngineKind::Container {
                return case.left_out();
            }
            self.checked(case, check).await;
        })
        .await;
    }

    /// Runs only on that engine, for a feature that the others do not have.
    pub(crate) async fn on_one_engine(&self, engine: EngineKind, check: impl AsyncFn(&Tool<'_>)) {
        self.on_that_engine(engine, &check).await;
    }

    async fn on_that_engine(&self, engine: EngineKind, check: ToolCheck<'_>) {
        on_one_engine(engine, async |case| match case.is_real() {
            true => self.checked(case, check).await,
            false => case.left_out(),
        })
        .await;
    }

    /// Runs only on the fake: no engine is involved.
    pub(crate) async fn on_the_fake(&self, check: impl AsyncFn(&Tool<'_>)) {
        self.on_no_real_engine(&check).await;
    }

    async fn on_no_real_engine(&self, check: ToolCheck<'_>) {
        on_one_engine(EngineKind::Fake, async |case| self.checked(case, check).await).await;
    }

    /// Runs only on the simulated `container`.
    pub(crate) async fn on_scripted(&self, check: impl AsyncFn(&Tool<'_>, &Scripted)) {
        with_scripted(async |case, scripted| {
            self.checked(case, &async |tool: &Tool<'_>| check(tool, scripted).await).await;
        })
        .await;
    }

    async fn checked(&self, case: &Case, check: ToolCheck<'_>) {
        let tool = Tool::new(case, self);
        let checked = caught(check.on(&tool)).await;
        tool.hand_on_verdict();
        tool.may_destroy_all();
        if !tool.has_made() {
            // Most refusals need no engine.
            return checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        let all = json!({ "operation": "destroy_all", "confirm": true, "scope": "all", "include_persistent": true });
        tool.call(all).await;
        if tool.state().join("images").exists() {
            tool.call(json!({ "operation": "cache_clear" })).await;
        }
        if let Err(panic) = checked {
            std::panic::resume_unwind(panic);
        }
    }

    /// As [`on_every_engine`](Self::on_every_engine), on real engines only.
    pub(crate) async fn on_real_engines(&self, check: impl AsyncFn(&Tool<'_>)) {
        self.on_real_engines_with_root(&check).await;
    }

    async fn on_real_engines_with_root(&self, check: ToolCheck<'_>) {
        self.on_every_engine(async |tool| match tool.case.is_real() {
            true => check.on(tool).await,
            false => tool.case.left_out(),
        })
        .await;
    }
}

/// A directory with the user's programs.
#[derive(Debug)]
pub(crate) struct Programs(TempDir);

impl Programs {
    pub(crate) fn new() -> Self {
        let home = variable("HOME").unwrap_or_default();
        let place = [lasting_dir(), home.into()].into_iter().find(|it| is_closed(it));
        let dir = tempfile::tempdir_in(place.expect("a checkout or a home that others cannot write to")).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        Self(dir)
    }

    /// Adds a script.
    pub(crate) fn with(self, name: &str, script: &str) -> Self {
        program(&self.0.path().join(name), script);
        self
    }

    /// The path of one of them.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Adds a `gh` that is signed in.
    pub(crate) fn with_gh(self, token: &str) -> Self {
        let script = format!(
            "case \"$*\" in\n'auth token'*) echo '{token}' ;;\n'auth status'*) echo 'signed in' ;;\n*) exit 1 ;;\nesac"
        );
        self.with("gh", &script)
    }
}

/// Whether other users cannot put a program there: a checkout below `/tmp` is not safe, so programs in it are refused.
fn is_closed(place: &Path) -> bool {
    place.is_absolute()
        && place.ancestors().all(|it| it.metadata().is_ok_and(|it| it.permissions().mode() & 0o002 == 0))
}

#[test]
fn programs_of_a_user_are_in_directories_that_only_the_user_can_write() {
    assert!(!is_closed(&std::env::temp_dir()) && !is_closed(Path::new("target")));
    assert!(is_closed(Programs::new().0.path()));
}

/// Writes an executable script.
pub(crate) fn program(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// A line of the report, which has to be there.
pub(crate) fn step<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let steps = answer["provisioning_report"].as_array().unwrap_or_else(|| panic!("no report: {answer:#}"));
    steps.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("no `{name}`: {answer:#}"))
}

/// The position of a line in the report.
pub(crate) fn place_of(answer: &Value, name: &str) -> usize {
    let steps = answer["provisioning_report"].as_array().unwrap_or_else(|| panic!("no report: {answer:#}"));
    steps.iter().position(|it| it["name"] == name).unwrap_or_else(|| panic!("no `{name}`: {answer:#}"))
}

/// The codes of an answer's warnings.
pub(crate) fn warnings(answer: &Value) -> Vec<&str> {
    answer["warnings"].as_array().into_iter().flatten().filter_map(|it| it["code"].as_str()).collect()
}

impl Tool<'_> {
    /// A `create` that has to succeed: its whole answer.
    pub(crate) async fn made(&self, more: Value) -> Value {
        let answer = self.create(more).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        answer
    }

    pub(crate) async fn destroy(&self, container: &str) {
        let answer = self.call(json!({ "operation": "destroy", "container": container })).await;
        assert_eq!(answer["success"], true, "{answer:#}");
    }

    /// The bytes that a command prints, which has to end with 0.
    pub(crate) async fn bytes(&self, container: &str, command: Value, more: Value) -> Vec<u8> {
        let mut call = json!({ "operation": "exec", "container": container, "command": command,
            "encoding": "base64", "max_output": "4m" });
        super::merge(call.as_object_mut().unwrap(), more);
        let answer = self.call(call).await;
        assert_eq!((&answer["success"], &answer["exit_code"]), (&true.into(), &0.into()), "{answer:#}");
        BASE64_STANDARD.decode(answer["stdout"].as_str().unwrap()).unwrap()
    }

    /// The environment of a command, with additional variables.
    pub(crate) async fn environ(&self, container: &str, env: Value) -> BTreeMap<String, String> {
        let bytes = self.bytes(container, json!(["cat", "/proc/self/environ"]), json!({ "env": env })).await;
        let text = String::from_utf8(bytes).unwrap();
        let pairs = text.split_terminator('\0').filter_map(|it| it.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Runs a program of the engine, which has to exit with 0. Returns its output.
    pub(crate) async fn engine_says(&self, words: &[&str]) -> String {
        let (good, text) = self.engine(words).await;
        assert!(good, "{words:?}: {text}");
        text
    }

    /// Writes a file below the user's home.
    pub(crate) fn at_home(&self, path: &str, content: &str) {
        let file = self.home().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }

    /// Whether it recorded anything in its state directory, apart from what each call leaves there.
    fn has_made(&self) -> bool {
        let of_each_call = ["audit", "empty", "engine", "link"];
        let made = |it: std::fs::DirEntry| {
            let is_bare = of_each_call.iter().any(|name| it.file_name() == *name);
            !is_bare && it.path().read_dir().is_ok_and(|mut it| it.next().is_some())
        };
        self.state().read_dir().is_ok_and(|mut it| it.any(|it| made(it.unwrap())))
    }

    /// Checks that the test left no record and no container.
    pub(crate) async fn nothing_left(&self) {
        assert_eq!(self.records(), Vec::<std::path::PathBuf>::new());
        assert_eq!(self.case.runtime.list(&self.case.mine()).await.unwrap(), []);
    }
}
