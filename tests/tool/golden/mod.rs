//! Golden files: schemas, whole answers and printed text as clients see them, compared with `tests/golden`.
//!
//! Everything runs on the fake engine; most commands in it have replies that the test defines. A test fails with a diff when
//! its file differs. `INSTA_UPDATE=always` accepts the change, which is then reviewed like code.

mod create;
mod exec;
mod jobs;
mod lifecycle;
mod networks;
mod normal;
mod people;
mod results;
mod schemas;
mod session;
mod snapshots;
pub(super) mod worktrees;

use std::sync::{Arc, Mutex, PoisonError};

use coracle::{CallInput, OperationEntry};
use coracle_prepare::Process;
use coracle_runtime::FakeRuntime;
use coracle_runtime::fake::LOCAL_IMAGE;
use coracle_types::ContainerName;
use insta::assert_snapshot;
use serde_json::{Value, json};

use self::normal::normalised;
use super::Tool;
use super::person::Person;
use crate::engines::{is_root, skip};

/// Removes parts that depend on the host from the answers.
const CONFIG: &str = "[auto_passthrough]\nca_certificates = false\nforward_gh = false\nforward_git = false\n";

/// A client of the tool, and a transcript of its calls and their answers.
pub(super) struct Recording<'a> {
    tool: &'a Tool<'a>,
    process: Process,
    fake: FakeRuntime,
    text: Arc<Mutex<String>>,
}

/// Runs a client and compares its transcript with the golden file of that name. `more` is added to the configuration.
///
/// Needs root: answers name the user who runs commands, and the tools of a session act as another user.
async fn recorded(file: &str, more: &str, client: impl AsyncFn(&Recording<'_>)) {
    recorded_on(FakeRuntime::new, (file, more), client).await;
}

/// Like [`recorded`], with another kind of fake engine.
async fn recorded_on(engine: fn() -> FakeRuntime, (file, more): (&str, &str), client: impl AsyncFn(&Recording<'_>)) {
    if !is_root() {
        return skip(coracle_skips::NEEDS_ROOT);
    }
    let check = async |tool: &Tool<'_>| {
        let fake = engine();
        let process = tool.library.clone().expect("the fake is in this process").with_fake(fake.clone());
        let recording = Recording { tool, process, fake, text: Arc::default() };
        client(&recording).await;
        assert_golden(file, &normalised(&recording.text(), tool.root.path()));
    };
    Person::new(format!("{CONFIG}{more}")).on_the_fake(check).await;
}

/// Compares a text with the golden file of that name.
fn assert_golden(file: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| assert_snapshot!(file, text));
}

impl Recording<'_> {
    /// Calls an operation.
    async fn call(&self, what: &str, call: Value) -> Value {
        self.answer(coracle::operations::ALL, (what, &self.process), call).await
    }

    /// Calls an operation on worktrees.
    async fn worktree(&self, what: &str, call: Value) -> Value {
        self.answer(coracle::worktree::ALL, (what, &self.process), call).await
    }

    /// Makes a call from text that need not be JSON.
    async fn call_text(&self, what: &str, call: &str) {
        let input = CallInput::Text(call.as_bytes().to_vec());
        let answer: Value = coracle::execute(coracle::operations::ALL, &self.process, input).await.json.into();
        self.note(what, call, &format!("{answer:#}"));
    }

    async fn answer(&self, table: &[OperationEntry], (what, process): (&str, &Process), call: Value) -> Value {
        let input = CallInput::Text(call.to_string().into_bytes());
        let answer: Value = coracle::execute(table, process, input).await.json.into();
        self.note(what, &call.to_string(), &format!("{answer:#}"));
        answer
    }

    /// Calls a tool of a session.
    async fn tool(&self, what: &str, name: &str, arguments: Value) -> Value {
        let call = format!("{name} {arguments}");
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let answer: Value =
            coracle::tools::execute_named(&self.process, name, arguments).await.expect("the tool is there").json.into();
        self.note(what, &call, &format!("{answer:#}"));
        answer
    }

    /// Runs the program; the transcript gets what it prints and its exit code. Each process has a fake engine of its own.
    async fn run(&self, what: &str, words: &[&str]) {
        let output = self.tool.run(words, b"").await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut reported = text(&output.stdout);
        if !output.stderr.is_empty() {
            reported += &format!("--- standard error\n{}", text(&output.stderr));
        }
        reported += &format!("--- exit code {}", output.status.code().expect("no signal ended it"));
        self.note(what, &format!("coracle {}", words.join(" ")), &reported);
    }

    fn note(&self, what: &str, call: &str, answer: &str) {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        *text += &format!("# {what}\n> {call}\n{answer}\n\n");
    }

    fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes a file of the user below the working directory.
    fn file(&self, path: &str, content: &str) {
        let file = self.tool.work().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }

    /// Creates a container without adding it to the transcript.
    async fn container(&self, name: &str, more: Value) {
        let mut call = json!({ "operation": "create", "image": LOCAL_IMAGE, "name": name, "mount_cwd": false });
        super::merge(call.as_object_mut().unwrap(), more);
        let answer =
            coracle::execute(coracle::operations::ALL, &self.process, CallInput::Text(call.to_string().into_bytes()))
                .await
                .json;
        assert_eq!(answer["success"], true, "{answer:#?}");
    }

    /// The same client in the session with that name.
    fn in_session(&self, session: &str) -> Self {
        let mut process = self.process.for_session();
        process.context.call.session = ContainerName::parse(session).unwrap();
        Recording { tool: self.tool, process, fake: self.fake.clone(), text: self.text.clone() }
    }
}
