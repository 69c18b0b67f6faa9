//! Measures the file tools of a session beside the engines' own `exec` and ripgrep on the host, for `cargo xtask bench
//! workspace`.
//!
//! `workspace_bench OUT CORACLE ROUNDS ENGINE…` writes JSON to the file `OUT`. The tools are called in this process, over
//! the link that a server would hold, in a container of `coracle`'s own default image. All ways take turns. Then the
//! program `CORACLE` serves eight sessions at once, and its memory is looked at.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is worth nothing")]
#![expect(clippy::print_stderr, reason = "progress for the user who waits")]
#![expect(clippy::disallowed_methods, reason = "the programs are what is measured")]

#[path = "../link_bench/ending.rs"]
mod ending;
#[path = "../../servers/mcp_load.rs"]
mod mcp_load;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use coracle_context::{Frontend, Host, Options};
use coracle_prepare::Process;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The files to search, the same in a container and on the host.
const TREE: &str = "i=0; while [ $i -lt 100 ]; do mkdir -p tree/d$i; j=0; while [ $j -lt 100 ]; do \
    { echo \"file $i $j\"; head -c 1500 /dev/zero | tr '\\0' x | fold -w 70; echo \"needle $j\"; } >tree/d$i/f$j; \
    j=$((j+1)); done; i=$((i+1)); done";

/// Matches one of the 100 lines `needle 77`.
const PATTERN: &str = "needle 77$";

/// After that time a write of the tool has no pending work.
const SETTLED: Duration = Duration::from_millis(100);

/// An agent makes many small calls one after the other.
const MOST_IN_A_ROW: usize = 10;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An agent with a session on one engine.
struct Agent {
    engine: String,
    process: Process,
    root: TempDir,
    tree: TempDir,
    /// The workspace's directory on the host, once the container exists.
    workspace: PathBuf,
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [out, program, rounds, engines @ ..] = &words[..] else {
        panic!("usage: workspace_bench OUT CORACLE ROUNDS ENGINE…")
    };
    let rounds = rounds.parse::<usize>().unwrap();
    ending::heed();
    let (mut named, mut series, mut sizes, mut load) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for engine in engines {
        let agent = Agent::with_files(engine).await;
        named.push(json!({ "name": engine, "version": agent.version() }));
        for (case, way, times) in agent.rounds(rounds, &mut load).await {
            series.push(json!({ "case": case, "way": way, "engine": engine, "ns": times }));
        }
        coracle_prepare::session_tools::end(&agent.process.context).await.unwrap();
        let memory = agent.serves(program);
        sizes.push(json!({ "name": "mcp", "engine": engine, "kib": [memory.now] }));
        sizes.push(json!({ "name": "mcp at most", "engine": engine, "kib": [memory.most] }));
        eprintln!("{engine}: coracle mcp has {} KiB, at most {}", memory.now, memory.most);
    }
    let label = |name: &str, label: &str| json!({ "name": name, "label": label });
    let cases =
        [label("read", "read 4 KiB"), label("write", "write 4 KiB"), label("grep", "find 100 lines in 10,000 files")];
    let report = json!({ "cases": cases, "engines": named, "series": series, "sizes": sizes, "load": load });
    std::fs::write(out, format!("{report:#}\n")).unwrap();
}

/// Calls in a row, so that caches are equally warm for both ways.
fn in_a_row(case: &str) -> usize {
    if case == "grep" { 1 } else { MOST_IN_A_ROW }
}

type Times = (&'static str, &'static str, Vec<u64>);

impl Agent {
    async fn with_files(engine: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["home", "work", "tmp"] {
            std::fs::create_dir(root.path().join(dir)).unwrap();
        }
        let config = root.path().join("config.toml");
        std::fs::write(&config, format!("engine = \"{engine}\"\n")).unwrap();
        let host = Host::below(&root.path().canonicalize().unwrap());
        let env = [("PATH".to_owned(), PATH.to_owned().into())].into();
        let options = Options { config: Some(config), ..Options::default() };
        let process = Process::open(Host { env, ..host }, &options, Frontend::Mcp).unwrap();
        let tree = tempfile::tempdir().unwrap();
        let mut it = Self { engine: engine.to_owned(), process, root, tree, workspace: PathBuf::new() };
        let begun = Instant::now();
        it.call("shell_execute", json!({ "command": ["sh", "-c", TREE], "timeout_seconds": 120 })).await;
        it.call("write_file", json!({ "file_path": "small", "content": "x".repeat(4096) })).await;
        assert!(Command::new("sh").args(["-c", TREE]).current_dir(it.tree.path()).status().unwrap().success());
        it.workspace = it.seen_from_the_host();
        eprintln!("{engine}: 10,000 files in {:.0} s", begun.elapsed().as_secs_f64());
        it
    }

    async fn rounds(&self, rounds: usize, load: &mut Vec<f64>) -> Vec<Times> {
        let mut all: Vec<Times> = [
            ("read", "engine"),
            ("read", "tool"),
            ("write", "engine"),
            ("write", "tool"),
            ("write", "plain"),
            ("grep", "engine"),
            ("grep", "tool"),
            ("grep", "host"),
        ]
        .map(|(case, way)| (case, way, Vec::new()))
        .into();
        for round in 0..rounds {
            ending::go_on();
            load.push(load_of_the_last_minute());
            let count = all.len();
            for turn in 0..count {
                let (case, way, times) = &mut all[(turn + round) % count];
                for again in 0..in_a_row(case) {
                    let took = self.once(case, way, round * MOST_IN_A_ROW + again).await;
                    times.push(u64::try_from(took.as_nanos()).unwrap());
                }
                if *case == "write" {
                    // Pending writes must not slow down the next way.
                    tokio::time::sleep(SETTLED).await;
                }
            }
        }
        all
    }

    async fn once(&self, case: &str, way: &str, round: usize) -> Duration {
        let content = format!("{round:04}").repeat(1024);
        match (case, way) {
            ("read", "tool") => self.call("read_file", json!({ "file_path": "small" })).await.1,
            ("write", "tool") => {
                let call = json!({ "file_path": "small", "content": content, "mode": "overwrite" });
                self.call("write_file", call).await.1
            }
            ("grep", "tool") => {
                let (found, took) = self.call("grep", json!({ "pattern": PATTERN, "path": "tree" })).await;
                assert_eq!(found["value"].as_array().unwrap().len(), 100);
                took
            }
            ("write", "plain") => tokio::task::block_in_place(|| write_plainly(&self.workspace, &content)),
            ("read", _) => self.exec(&["cat", "/workspace/small"], ""),
            ("write", _) => self.exec(&["tee", "/workspace/by-the-engine"], &content),
            ("grep", "host") => {
                let mut rg = Command::new("rg");
                rg.args(["--no-ignore", "--hidden", "--line-number", PATTERN, "tree"]).current_dir(self.tree.path());
                timed(rg.stdout(Stdio::null()), "")
            }
            _ => self.exec(&["grep", "-rn", PATTERN, "/workspace/tree"], ""),
        }
    }

    /// The program as a server of eight sessions, each of which makes 200 calls.
    fn serves(&self, program: &str) -> mcp_load::Memory {
        let at = |name: &str| self.root.path().join(name);
        let mut command = Command::new(Path::new(program).canonicalize().unwrap());
        command.args(["mcp", "--http", "127.0.0.1:0", "--toolsets", "workspace"]).env_clear();
        command.env("PATH", PATH).env("HOME", at("home")).env("XDG_STATE_HOME", at("state")).env("TMPDIR", at("tmp"));
        command.env("CORACLE_CONFIG", at("config.toml")).current_dir(at("work")).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
        let reported = lines.find_map(|it| it.split_once("http://127.0.0.1:").map(|it| it.1.to_owned())).unwrap();
        // Something has to read what it logs later.
        let logs = std::thread::spawn(move || lines.for_each(|it| eprintln!("{it}")));
        let (port, rest) = reported.split_once("/mcp").unwrap();
        let token = std::fs::read_to_string(rest.split_once(" in ").unwrap().1).unwrap().trim().to_owned();
        let pid = server.id();
        let memory = mcp_load::work(&mcp_load::At { port: port.parse().unwrap(), token, pid }, 8, 200);
        let id = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        assert!(server.wait().unwrap().success());
        logs.join().unwrap();
        memory
    }

    /// The engine's own `exec` into the same container.
    fn exec(&self, words: &[&str], stdin: &str) -> Duration {
        let mut command = Command::new(&self.engine);
        command.args(["exec", "--interactive", "--user", "65534:65534", &self.container()]);
        timed(command.args(words).stdout(Stdio::null()), stdin)
    }

    fn container(&self) -> String {
        let dir = self
            .process
            .context
            .state()
            .unwrap()
            .root()
            .join("sessions")
            .join(self.process.context.call.session.as_str());
        let record: Value = serde_json::from_slice(&std::fs::read(dir.join("workspace.json")).unwrap()).unwrap();
        record["name"].as_str().unwrap().to_owned()
    }

    /// The container's own mount, so that disk and file system are the same.
    fn seen_from_the_host(&self) -> PathBuf {
        let mut command = Command::new(&self.engine);
        let output = command.args(["inspect", "--format", "{{.State.Pid}}", &self.container()]).output().unwrap();
        PathBuf::from(format!("/proc/{}/root/workspace", String::from_utf8(output.stdout).unwrap().trim()))
    }

    /// A call that has to succeed, and how long it took.
    async fn call(&self, name: &str, arguments: Value) -> (Value, Duration) {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let (process, name) = (self.process.clone(), name.to_owned());
        // In a task, as a server's calls are: from the main thread each would change the thread twice.
        let called = tokio::spawn(async move {
            let begun = Instant::now();
            let answer = coracle::tools::execute_named(&process, &name, arguments).await.unwrap().json;
            (answer, begun.elapsed())
        });
        let (answer, took) = called.await.unwrap();
        assert_eq!(answer["success"], true, "{answer:#?}");
        (answer.into(), took)
    }

    fn version(&self) -> String {
        let field = if self.engine == "docker" { "Server" } else { "Client" };
        let format = format!("{{{{.{field}.Version}}}}");
        let output = Command::new(&self.engine).args(["version", "--format", &format]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // A session that has ended has nothing more; one of a measurement that failed has its container.
        let ended = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(coracle_prepare::session_tools::end(&self.process.context))
        });
        if let Err(failure) = ended {
            eprintln!("the session did not end: {failure:?}");
        }
    }
}

/// The minimum for an atomic replacement of a file's content.
fn write_plainly(dir: &Path, content: &str) -> Duration {
    let (beside, place) = (dir.join("plain.new"), dir.join("plain"));
    let begun = Instant::now();
    let mut file = File::create_new(&beside).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.sync_all().unwrap();
    std::fs::rename(&beside, &place).unwrap();
    drop(file);
    begun.elapsed()
}

fn timed(command: &mut Command, stdin: &str) -> Duration {
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{command:?}");
    begun.elapsed()
}

fn load_of_the_last_minute() -> f64 {
    std::fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().parse().unwrap()
}
