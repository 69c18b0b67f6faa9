//! Upgrades: this version opens the state directory of an earlier one, lists everything in it, and loses nothing.
//!
//! `tests/fixtures/state` has one archive for each version: its state directory, and the state of its fake engine. The fake
//! loads the latter, so that containers have the ids and labels that the records name, as after a reboot. Archives are never
//! changed. `CORACLE_WRITE_STATE=1` adds the archive of this version; its state is created and opened again in each run.

mod archive;
mod checks;
mod fixture;
mod newer;

use coracle::CallInput;
use coracle_context::Frontend;
use coracle_prepare::Process;
use coracle_runtime::FakeRuntime;
use coracle_runtime::fake::LOCAL_IMAGE;
use coracle_types::ContainerName;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::Tool;
use super::person::Person;
use crate::engines::{is_root, skip, variable};

/// A client of Coracle, with the user's directories and an engine.
struct Client<'a> {
    tool: &'a Tool<'a>,
    process: Process,
    fake: FakeRuntime,
}

/// Nothing expires, even if an archive is old.
fn config() -> String {
    format!(
        "[auto_passthrough]\nca_certificates = false\nforward_gh = false\nforward_git = false\n\
         [lifecycle]\nidle = \"10000d\"\norphan_grace = \"10000d\"\nsave_keep = \"10000d\"\n\
         [images]\ncache_max_age = \"10000d\"\n\
         [profiles.tiny]\nimage = \"{LOCAL_IMAGE}\"\npackages = []\nsetup = [\"true\"]\n\
         [workspace]\nimage = \"{LOCAL_IMAGE}\"\nidle = \"10000d\"\nlifetime = 0\n\
         [run_code]\nimage = \"{LOCAL_IMAGE}\"\n\
         [proxy]\ntransport = \"link\"\n\
         [sandbox]\nidle = \"10000d\"\nlifetime = 0\n\
         [sandbox.profiles.default]\nimage = \"{LOCAL_IMAGE}\"\n"
    )
}

/// Runs `work` with an empty state directory and a new engine.
async fn with_a_client(work: impl AsyncFn(&Client<'_>)) {
    let work = async |tool: &Tool<'_>| {
        let fake = FakeRuntime::with_programs_as_users();
        let process = tool.library.clone().expect("the fake is in this process").with_fake(fake.clone());
        work(&Client { tool, process, fake }).await;
    };
    Person::new(config()).on_the_fake(work).await;
}

impl Client<'_> {
    /// Makes a call, which has to succeed.
    async fn call(&self, call: Value) -> Value {
        let answer = self.try_call(call.clone()).await;
        assert_eq!(answer["success"], true, "{call}: {answer:#}");
        answer
    }

    async fn try_call(&self, call: Value) -> Value {
        let is_of_worktree = call["operation"].as_str().is_some_and(|it| it.starts_with("worktree_"));
        let table = if is_of_worktree { coracle::worktree::ALL } else { coracle::operations::ALL };
        coracle::execute(table, &self.process, CallInput::Text(call.to_string().into_bytes())).await.json.into()
    }

    /// Calls a tool of a session.
    async fn tool(&self, session: &Process, name: &str, arguments: Value) -> Value {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        coracle::tools::execute_named(session, name, arguments).await.expect("the tool is there").json.into()
    }

    fn session(&self, name: &str) -> Process {
        let mut process = self.process.for_session();
        process.context.call.session = ContainerName::parse(name).unwrap();
        process
    }

    /// Creates a container that an MCP session of this process owns.
    async fn create_in_mcp_session(&self) -> Map<String, Value> {
        let mut process = self.session("mcp-1");
        process.context.call.frontend = Frontend::Mcp;
        let call = json!({ "operation": "create", "name": "served", "image": LOCAL_IMAGE, "mount_cwd": false });
        coracle::execute(coracle::operations::ALL, &process, CallInput::Text(call.to_string().into_bytes())).await.json
    }

    /// Runs the program, which has to succeed and prints JSON. Its own fake engine has no containers.
    async fn run_json(&self, words: &[&str]) -> Value {
        let output = self.tool.run(words, b"").await;
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[tokio::test]
async fn a_state_directory_of_the_release_before_is_taken_over() {
    if !is_root() {
        return skip(coracle_skips::NEEDS_ROOT);
    }
    let archives = archive::all();
    assert!(!archives.is_empty(), "there is an archive");
    for archive in archives {
        eprintln!("{}", archive.display());
        with_a_client(async |client| {
            let left = archive::unpacked(&archive);
            client.take_over(&left).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_state_directory_of_this_version_is_taken_over() {
    if !is_root() {
        return skip(coracle_skips::NEEDS_ROOT);
    }
    let left = tempfile::tempdir().unwrap();
    with_a_client(async |client| client.write_fixture(left.path()).await).await;
    if variable("CORACLE_WRITE_STATE").is_some() {
        archive::write(&left);
    }
    with_a_client(async |client| client.take_over(&left).await).await;
}

impl Client<'_> {
    /// Opens the state of another process, and checks that everything in it can be used.
    async fn take_over(&self, left: &TempDir) {
        archive::copy(&left.path().join("state"), &self.tool.state());
        self.fake.load_from(&left.path().join("engine")).unwrap();
        self.check_lists().await;
        self.check_containers().await;
        self.check_images_and_networks().await;
        self.check_sessions().await;
        self.check_worktrees().await;
        self.check_saved_work().await;
        self.check_removal().await;
    }
}
