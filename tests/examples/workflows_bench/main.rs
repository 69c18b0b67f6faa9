//! Measures workflows on one repository, for `cargo xtask bench workflows`: worktrees beside git's own, and twenty
//! sandboxes at once.
//!
//! `workflows_bench OUT CORACLE ROUNDS ENGINE…` writes JSON to the file `OUT`. A person's call is a process `coracle
//! worktree …`, a server's is made in this one. git does what has to be done in any case: it fetches, looks for what is not
//! committed, and adds a worktree.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is worth nothing")]
#![expect(clippy::print_stderr, reason = "progress for the user who waits")]
#![expect(clippy::disallowed_methods, reason = "the programs are what is measured")]

#[path = "../link_bench/ending.rs"]
mod ending;
#[path = "../link_bench/leftovers.rs"]
mod leftovers;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use coracle::CallInput;
use coracle_context::{Frontend, Host, Options};
use coracle_prepare::Process;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Workflows with a sandbox each.
const WORKFLOWS: usize = 20;

/// Files of the repository.
const FILES: usize = 200;

const NAMESPACE: &str = "coracle-bench-workflows";

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

struct Person {
    coracle: PathBuf,
    engine: String,
    root: TempDir,
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [out, coracle, rounds, engines @ ..] = &words[..] else {
        panic!("usage: workflows_bench OUT CORACLE ROUNDS ENGINE…")
    };
    let rounds = rounds.parse::<usize>().unwrap();
    ending::heed();
    let (mut named, mut series, mut sizes, mut load) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for engine in engines {
        let person = Person::new(Path::new(coracle), engine);
        named.push(json!({ "name": engine, "version": person.version() }));
        let mut add = |case: &str, way: &str, times: Vec<Duration>| {
            let ns: Vec<_> = times.into_iter().map(ns).collect();
            series.push(json!({ "case": case, "way": way, "engine": engine, "ns": ns }));
        };
        person.worktree("first", "together");
        let server = person.server();
        person.by_server(&server, "second").await;
        let (mut ours, mut git, mut adds, mut served) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            ending::go_on();
            load.push(load_of_the_last_minute());
            for turn in 0..3 {
                match (turn + round) % 3 {
                    0 => {
                        let (all, add) = person.by_git(round);
                        git.push(all);
                        adds.push(add);
                    }
                    1 => ours.push(person.worktree(&format!("w{round}"), "together")),
                    _ => served.push(person.by_server(&server, &format!("s{round}")).await),
                }
            }
        }
        drop(server);
        ending::go_on();
        add("worktree", "coracle", ours);
        add("worktree", "git", git);
        add("worktree", "add", adds);
        add("worktree", "server", served);
        let begun = Instant::now();
        add("sandbox", "coracle", person.all_at_once());
        add("all", "coracle", vec![begun.elapsed()]);
        eprintln!("{engine}: {WORKFLOWS} sandboxes in {:.0} s", begun.elapsed().as_secs_f64());
        let (guests, monitors) = person.memory();
        sizes.push(json!({ "name": "guest", "engine": engine, "kib": guests }));
        sizes.push(json!({ "name": "monitor", "engine": engine, "kib": monitors }));
        person.remove(rounds);
    }
    let case = |name: &str, label: &str| json!({ "name": name, "label": label });
    let cases = [
        case("worktree", "one more worktree"),
        case("sandbox", "a workflow with a sandbox of its own, of 20 at once"),
        case("all", "20 such, from the first to the last"),
    ];
    let report = json!({ "cases": cases, "engines": named, "series": series, "sizes": sizes, "load": load });
    std::fs::write(out, format!("{report:#}\n")).unwrap();
}

impl Person {
    fn new(coracle: &Path, engine: &str) -> Self {
        let it = Self {
            coracle: coracle.canonicalize().unwrap(),
            engine: engine.to_owned(),
            root: tempfile::tempdir().unwrap(),
        };
        for dir in ["home", "work", "tmp"] {
            std::fs::create_dir(it.root.path().join(dir)).unwrap();
        }
        let config = format!(
            "engine = \"{engine}\"\nlabel_namespace = \"{NAMESPACE}\"\nmax_containers_total = 50\n\
             [sandbox.profiles.together]\ndomain = \"all\"\n"
        );
        std::fs::write(it.root.path().join("config.toml"), config).unwrap();
        let repository = it.repository();
        std::fs::create_dir(&repository).unwrap();
        for number in 0..FILES {
            std::fs::write(repository.join(format!("file-{number}")), format!("{number}\n").repeat(200)).unwrap();
        }
        it.git(&["init", "--quiet", "--initial-branch=main"]);
        it.git(&["add", "--all"]);
        it.git(&["-c", "user.name=a", "-c", "user.email=a@invalid", "commit", "--quiet", "--message=all"]);
        it.git(&["clone", "--quiet", "--bare", ".", "../clone.git"]);
        it
    }

    fn repository(&self) -> PathBuf {
        self.root.path().join("work/repository")
    }

    fn git(&self, words: &[&str]) -> Duration {
        let mut command = Command::new("git");
        command.args(words).current_dir(self.repository()).env_clear().env("PATH", PATH);
        timed_output(command.env("HOME", self.root.path().join("home"))).1
    }

    /// The whole duration, and the part of the worktree itself.
    fn by_git(&self, round: usize) -> (Duration, Duration) {
        let (branch, path) = (format!("by-git-{round}"), format!("../by-git-{round}"));
        let fetched = self.git(&["-C", "../clone.git", "fetch", "--quiet", "--no-tags", "origin", "main"]);
        let looked = self.git(&["status", "--porcelain"]);
        let added = self.git(&["-C", "../clone.git", "worktree", "add", "--quiet", "-b", &branch, &path, "main"]);
        (fetched + looked + added, added)
    }

    fn worktree(&self, workflow: &str, profile: &str) -> Duration {
        let words = ["worktree", "create", "repository", "--workflow", workflow, "--profile", profile, "--json"];
        timed_output(&mut self.command(&words)).1
    }

    /// A long-running server process.
    fn server(&self) -> Process {
        let host = Host::below(&self.root.path().canonicalize().unwrap());
        let env = [("PATH".to_owned(), PATH.to_owned().into())].into();
        let options = Options { config: Some(self.root.path().join("config.toml")), ..Options::default() };
        let host = Host { env, state_home: self.root.path().join("state"), ..host };
        Process::open(host, &options, Frontend::Cli).unwrap()
    }

    async fn by_server(&self, server: &Process, workflow: &str) -> Duration {
        let call = json!({
            "operation": "worktree_create", "source": "repository", "workflow": workflow, "profile": "together",
        });
        let Value::Object(call) = call else { panic!("an object") };
        let begun = Instant::now();
        let answer = coracle::execute(coracle::worktree::ALL, server, CallInput::Object(call)).await.json;
        let took = begun.elapsed();
        assert_eq!(answer["success"], true, "{answer:#?}");
        took
    }

    /// The duration of each.
    fn all_at_once(&self) -> Vec<Duration> {
        // The image of the other profile is the same; the first sandbox has fetched the repository to the host.
        std::thread::scope(|scope| {
            let make = |number: usize| move || self.worktree(&format!("alone-{number}"), "default");
            let all: Vec<_> = (0..WORKFLOWS).map(|number| scope.spawn(make(number))).collect();
            all.into_iter().map(|it| it.join().unwrap()).collect()
        })
    }

    /// KiB of each guest, and of the engine's process that watches its container: what is theirs alone, and their share
    /// of the rest.
    fn memory(&self) -> (Vec<u64>, Vec<u64>) {
        let filter = format!("--filter=label={NAMESPACE}.managed=true");
        let (ids, _) = timed_output(Command::new(&self.engine).args(["ps", "--quiet", "--no-trunc", &filter]));
        let mut inspect = Command::new(&self.engine);
        inspect.args(["inspect", "--format", "{{.State.Pid}}"]).args(ids.split_whitespace());
        let pids: Vec<u32> = timed_output(&mut inspect).0.lines().map(|it| it.parse().unwrap()).collect();
        assert_eq!(pids.len(), WORKFLOWS + 1);
        pids.iter().map(|pid| (pss(*pid), pss(parent(*pid)))).unzip()
    }

    fn remove(&self, rounds: usize) {
        let of_rounds = (0..rounds).flat_map(|it| [format!("w{it}"), format!("s{it}")]);
        let shared = of_rounds.chain(["first".to_owned(), "second".to_owned()]);
        for (workflow, profile) in
            shared.map(|it| (it, "together")).chain((0..WORKFLOWS).map(|it| (format!("alone-{it}"), "default")))
        {
            timed_output(&mut self.command(&["worktree", "remove", &workflow, "--profile", profile, "--json"]));
        }
    }

    fn version(&self) -> String {
        let field = if self.engine == "docker" { "Server" } else { "Client" };
        let format = format!("{{{{.{field}.Version}}}}");
        timed_output(Command::new(&self.engine).args(["version", "--format", &format])).0
    }

    fn command(&self, words: &[&str]) -> Command {
        let root = self.root.path();
        let mut command = Command::new(&self.coracle);
        command.args(words).env_clear().env("PATH", PATH);
        command.env("HOME", root.join("home")).env("TMPDIR", root.join("tmp"));
        command.env("XDG_STATE_HOME", root.join("state")).env("CORACLE_CONFIG", root.join("config.toml"));
        command.current_dir(root.join("work"));
        command
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // Nothing has to be saved. A failed measurement has not removed it.
        leftovers::remove_labelled(&self.engine, &format!("{NAMESPACE}.managed=true"));
        leftovers::remove_networks(&self.engine, NAMESPACE);
    }
}

fn pss(pid: u32) -> u64 {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = smaps.lines().find_map(|it| it.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|it| it.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

fn ns(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap()
}

fn load_of_the_last_minute() -> f64 {
    std::fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// A program's output and duration.
fn timed_output(command: &mut Command) -> (String, Duration) {
    let begun = Instant::now();
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let took = begun.elapsed();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}: {stdout}{stderr}");
    (stdout.trim().to_owned(), took)
}
