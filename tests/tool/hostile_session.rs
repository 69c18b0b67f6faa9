//! One hostile session: an agent that tries everything from inside and by the arguments of its calls. No act has an outcome
//! of its own. What counts is what the host has afterwards.

mod arguments;
mod inside;
mod repository;
mod witness;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use coracle_types::random_hex;
use serde_json::{Map, Value, json};

use self::arguments::Places;
use self::inside::Block;
use self::repository::Repository;
pub(super) use self::witness::processes_with;
use self::witness::{Witness, dangerous};
use super::git_guard::{PUT, UNPROTECTED};
use super::{Tool, eventually, with_engine};
use crate::engines::ran;

/// What an attack prints if it succeeded.
const REACHED: &str = "reached-the-host";

/// Defines it for acts. Their own text, which an answer may contain, does not have the word in one piece.
const REACHED_FUNCTION: &str = "reached() { echo \"reached\"\"-the-host $1\"; }";

/// Directories that are protected if they exist. A container that was created before them can replace them.
const EXCHANGED: [&str; 6] = [".vscode", ".cargo", ".idea", ".husky", ".claude", ".devcontainer"];

/// An agent's session with two containers on the same directory, which cooperate, and one that may break.
struct Session<'t, 'c> {
    tool: &'t Tool<'c>,
    witness: Witness,
    repository: Repository,
    /// Where each program that an act left for the host would leave a file.
    ran: PathBuf,
    /// In the command line of each process that tries to stay.
    daemon: String,
    main: String,
    helper: String,
    doomed: String,
    tried: usize,
}

impl<'t, 'c> Session<'t, 'c> {
    async fn begin(tool: &'t Tool<'c>) -> Self {
        let home = tool.home().canonicalize().unwrap();
        let ran = home.join("ran");
        std::fs::create_dir(&ran).unwrap();
        let bound = || json!({ "mount_cwd": true, "persistent": true });
        let repository = Repository::new(tool.work().canonicalize().unwrap(), home.clone());
        // None of the following paths is mounted in it, so it can rename all of them.
        let helper = tool.created(bound()).await;
        repository.add_directories();
        let main = tool.created(bound()).await;
        let doomed = tool.created(bound()).await;
        let daemon = format!("daemon-{}", random_hex::<8>());
        let witness = Witness::new(home.join("outside"));
        Self { tool, witness, repository, ran, daemon, main, helper, doomed, tried: 0 }
    }

    /// Fails at the first act after which something is wrong.
    fn check(&self, act: &str, answer: &Value) {
        let text = answer.to_string();
        assert!(!text.contains(&self.witness.canary), "`{act}` read a file of the host: {answer:#}");
        assert!(!text.contains(REACHED), "`{act}` reached the host: {answer:#}");
        self.witness.assert_untouched(act);
        assert_eq!(self.payloads_that_ran(), BTreeSet::new(), "the host ran what `{act}` or an earlier act left");
    }

    fn check_bind(&self, after: &str) {
        let found = dangerous(&self.repository.dir, &self.witness.canary);
        assert_eq!(found, Vec::<String>::new(), "after {after}");
    }

    fn payloads_that_ran(&self) -> BTreeSet<String> {
        let entries = self.ran.read_dir().unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    /// Paths of the host in the environment of attacks.
    fn variables(&self) -> Map<String, Value> {
        let mut variables = Map::new();
        for (name, path) in [
            ("OUT", self.witness.dir.clone()),
            ("STATE", self.tool.state()),
            ("HERE", self.repository.dir.clone()),
            ("MARK", self.ran.join("payload")),
        ] {
            variables.insert(name.to_owned(), path.display().to_string().into());
        }
        variables.insert("DAEMON".to_owned(), self.daemon.as_str().into());
        variables
    }

    /// The acts of a block in one command, one after the other.
    async fn try_block(&mut self, block: &Block) {
        let mut variables = self.variables();
        let mut script = String::new();
        for (index, (name, act)) in block.acts.iter().enumerate() {
            variables.insert(format!("ACT_{index}"), format!("{REACHED_FUNCTION}\n{PUT}\n{act}").into());
            let run = format!("timeout -s KILL 5 /bin/sh -c \"$ACT_{index}\" </dev/null 2>&1; echo \"tried {name}\"");
            writeln!(script, "{run}").unwrap();
        }
        let answer = self
            .tool
            .call(json!({ "operation": "exec", "container": self.main, "command": script, "env": variables,
                "as_root": block.as_root, "timeout": 120 }))
            .await;
        self.check(block.topic, &answer);
        let output = answer["stdout"].as_str().unwrap_or_else(|| panic!("{}: {answer:#}", block.topic));
        for (name, _) in block.acts {
            assert!(output.contains(&format!("tried {name}")), "`{name}` was not tried: {answer:#}");
        }
        self.tried += block.acts.len();
        self.check_bind(block.topic);
    }

    /// Ends the container from inside, lets the helper put a link in place of a directory, and has the container started
    /// again: everything that was mounted is looked up again.
    async fn restart_on_a_link(&mut self, path: &str) {
        let (tool, out) = (self.tool, self.witness.dir.display().to_string());
        let stop = json!({ "operation": "exec", "container": self.main, "command": "kill -TERM 1", "as_root": true });
        self.check("end the container", &tool.call(stop).await);
        tool.engine(&["stop", "--time=0", &self.main]).await;
        tool.prints(&self.helper, &format!("mv {path} {path}.away && ln -s {out} {path}")).await;
        let reads = format!("cat {path}/secret {out}/secret; echo changed >{path}/written; ls -la {path}/");
        let answer = tool.exec(&self.main, reads).await;
        self.check("a link in place of a mounted directory", &answer);
        tool.engine(&["stop", "--time=0", &self.main]).await;
        tool.prints(&self.helper, &format!("rm {path} && mv {path}.away {path}")).await;
        assert_eq!(tool.prints(&self.main, "echo here").await, "here", "the session goes on");
        self.tried += 1;
    }

    /// Acts after which a container may be of no more use, in one of their own.
    async fn try_last(&mut self) {
        for (name, act) in inside::LAST {
            let command = format!("{REACHED_FUNCTION}\n{PUT}\n{act}");
            let call = json!({ "operation": "exec", "container": self.doomed, "command": command,
                "env": self.variables(), "timeout": 10 });
            self.check(name, &self.tool.call(call).await);
            self.tried += 1;
        }
        self.check_bind("the last acts from inside");
    }

    async fn try_arguments(&mut self) {
        let places = Places {
            out: self.witness.dir.display().to_string(),
            state: self.tool.state().display().to_string(),
            mark: self.ran.join("argument").display().to_string(),
            container: self.main.clone(),
        };
        for more in arguments::creates(&places) {
            let answer = self.tool.create(more.clone()).await;
            self.check(&more.to_string(), &answer);
            self.remove(&answer).await;
            self.tried += 1;
        }
        self.check_bind("creates");
        for call in arguments::calls(&places) {
            let answer = self.tool.call(call.clone()).await;
            self.check(&call.to_string(), &answer);
            self.tried += 1;
        }
        self.check_bind("calls");
    }

    async fn remove(&self, created: &Value) {
        if let Some(name) = created["container"].as_str().filter(|_| created["success"] == true) {
            let answer = self.tool.call(json!({ "operation": "destroy", "container": name })).await;
            self.check("destroy", &answer);
        }
    }

    /// Copies in both directions while the container exchanges what is copied for a link.
    async fn try_races(&mut self) {
        let call = json!({ "operation": "exec_background", "container": self.main, "command": inside::EXCHANGE,
            "env": self.variables() });
        let started = self.tool.call(call).await;
        assert_eq!(started["success"], true, "{started:#}");
        for round in 0..inside::RACES {
            for call in arguments::races(&self.main, round) {
                let answer = self.tool.call(call.clone()).await;
                self.check(&call.to_string(), &answer);
                self.tried += 1;
            }
        }
        let seen = self.tool.exec(&self.main, "cat /tmp/copied-*/secret /tmp/copied-*").await;
        self.check("what the copies brought in", &seen);
        let job =
            json!({ "operation": "exec_cancel", "container": self.main, "job_id": started["job_id"], "grace": 0 });
        self.check("the end of the races", &self.tool.call(job).await);
        self.check_bind("races");
    }

    /// Removes the containers, and checks the host.
    async fn end(self) {
        for name in [&self.main, &self.doomed, &self.helper] {
            let answer = self.tool.call(json!({ "operation": "destroy", "container": name })).await;
            assert_eq!(answer["success"], true, "{answer:#}");
            self.check("destroy", &answer);
        }
        eventually("no process is left", Duration::from_secs(20), async || processes_with(&self.daemon).is_empty())
            .await;
        self.check_bind("the end");
        self.witness.assert_unchanged();
        self.repository.use_it();
        assert_eq!(self.payloads_that_ran(), BTreeSet::new(), "the user's git ran what the session left");
    }
}

#[test]
fn the_tables_have_two_hundred_acts_with_names_of_their_own() {
    let acts = inside::BLOCKS.iter().flat_map(|block| block.acts).chain(inside::LAST);
    let names: Vec<_> = acts.map(|(name, _)| *name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "names of acts differ");
    let places = Places { out: "/o".into(), state: "/s".into(), mark: "/m".into(), container: "c".into() };
    let arguments = arguments::creates(&places).len() + arguments::calls(&places).len();
    assert!(names.len() >= 120 && arguments >= 80, "{} from inside, {arguments} by arguments", names.len());
}

#[tokio::test]
async fn after_two_hundred_hostile_acts_the_host_is_as_it_was() {
    with_engine("", async |tool| {
        let mut session = Session::begin(tool).await;
        for (block, path) in inside::BLOCKS.iter().zip(EXCHANGED.iter().cycle()) {
            session.try_block(block).await;
            session.restart_on_a_link(path).await;
        }
        session.try_races().await;
        session.try_arguments().await;
        session.try_last().await;
        assert!(session.tried >= 200, "{} acts", session.tried);
        session.end().await;
        ran("hostile-session", tool.case.engine());
    })
    .await;
}

/// Control: the attacks on git work without protection.
#[tokio::test]
async fn without_the_protection_the_users_git_runs_what_a_hostile_session_left() {
    with_engine(UNPROTECTED, async |tool| {
        let mut session = Session::begin(tool).await;
        let block = inside::BLOCKS.iter().find(|block| block.topic == "git").unwrap();
        session.try_block(block).await;
        let status = session.repository.git(&session.repository.dir, &["status"]);
        assert_ne!(session.payloads_that_ran(), BTreeSet::new(), "{status:?}");
    })
    .await;
}
