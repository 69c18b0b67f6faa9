//! Measures lists of a hundred containers, by the engines' own programs and by `coracle`, for `cargo xtask bench list`.
//!
//! `list_bench OUT CORACLE ROUNDS ENGINE…` writes JSON to the file `OUT`. The image is the busybox of the host, which has
//! to be there (`busybox-static`). Both ways take turns, so that what else happens on the machine meets both alike.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is worth nothing")]
#![expect(clippy::print_stderr, reason = "progress for the user who waits")]
#![expect(clippy::disallowed_methods, reason = "the programs are what is measured")]

#[path = "../link_bench/ending.rs"]
mod ending;
#[path = "../link_bench/leftovers.rs"]
mod leftovers;
mod mcp;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use mcp::McpSession;

/// Number of listed containers.
const CONTAINERS: usize = 100;

const NAMESPACE: &str = "coracle-bench-list";
const IMAGE: &str = "coracle-bench-list:busybox";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A user with a home and a state directory, and containers on one engine.
struct Person {
    coracle: PathBuf,
    engine: String,
    root: TempDir,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [out, coracle, rounds, engines @ ..] = &words[..] else {
        panic!("usage: list_bench OUT CORACLE ROUNDS ENGINE…")
    };
    let rounds = rounds.parse::<usize>().unwrap();
    ending::heed();
    let (mut named, mut series, mut load) = (Vec::new(), Vec::new(), Vec::new());
    for engine in engines {
        let person = Person::with_containers(Path::new(coracle), engine);
        named.push(json!({ "name": engine, "version": person.version() }));
        let (mut own, mut ours) = (Vec::new(), Vec::new());
        let (mut listed, mut looked_at) = (Vec::new(), Vec::new());
        let mut agent = person.agent();
        let one = agent.call(&json!({ "operation": "list" })).0["containers"][0]["name"].take();
        for round in 0..rounds {
            ending::go_on();
            load.push(load_of_the_last_minute());
            let mut engine_first = || own.push(ns(person.by_the_engine()));
            if round % 2 == 0 {
                engine_first();
            }
            ours.push(ns(person.list()));
            if round % 2 == 1 {
                engine_first();
            }
            let (answer, took) = agent.call(&json!({ "operation": "list" }));
            assert_eq!(answer["count"], CONTAINERS, "{answer:#}");
            listed.push(ns(took));
            looked_at.push(ns(agent.call(&json!({ "operation": "status", "container": one })).1));
        }
        for (case, way, times) in
            [("list", "engine", own), ("list", "coracle", ours), ("list", "mcp", listed), ("status", "mcp", looked_at)]
        {
            series.push(json!({ "case": case, "way": way, "engine": engine, "ns": times }));
        }
    }
    let cases = [
        json!({ "name": "list", "label": "list 100 containers" }),
        json!({ "name": "status", "label": "status of one of them" }),
    ];
    let report = json!({ "cases": cases, "engines": named, "series": series, "load": load });
    std::fs::write(out, format!("{report:#}\n")).unwrap();
}

impl Person {
    fn with_containers(coracle: &Path, engine: &str) -> Self {
        let it = Self {
            coracle: coracle.canonicalize().unwrap(),
            engine: engine.to_owned(),
            root: tempfile::tempdir().unwrap(),
        };
        for dir in ["home", "work", "tmp"] {
            std::fs::create_dir(it.root.path().join(dir)).unwrap();
        }
        let config = format!(
            "engine = \"{engine}\"\nlabel_namespace = \"{NAMESPACE}\"\nmax_containers = {CONTAINERS}\n\
             max_containers_total = {CONTAINERS}\n[auto_passthrough]\nmode = \"none\"\nforward_git = false\n\
             forward_gh = false\nca_certificates = false\n[security]\nmemory_limit = \"64m\"\n"
        );
        std::fs::write(it.config(), config).unwrap();
        it.import();
        let begun = Instant::now();
        for _ in 0..CONTAINERS {
            ending::go_on();
            it.call(&json!({ "operation": "create", "image": IMAGE, "mount_cwd": false, "pids_limit": 32 }));
        }
        eprintln!("{engine}: {CONTAINERS} containers in {:.0} s", begun.elapsed().as_secs_f64());
        it
    }

    /// The image of a static busybox.
    fn import(&self) {
        let mut tar = tar::Builder::new(Vec::new());
        let program = std::fs::read("/usr/bin/busybox").or_else(|_| std::fs::read("/bin/busybox")).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o755);
        header.set_size(program.len() as u64);
        tar.append_data(&mut header, "bin/busybox", &program[..]).unwrap();
        for name in ["sh", "cat", "ls", "mkdir", "id", "chown", "chmod"] {
            let mut link = tar::Header::new_ustar();
            link.set_entry_type(tar::EntryType::Symlink);
            link.set_size(0);
            tar.append_link(&mut link, format!("bin/{name}"), "busybox").unwrap();
        }
        let tar = tar.into_inner().unwrap();
        let words = ["import", "--change=ENV PATH=/bin", "-", IMAGE];
        let mut child =
            Command::new(&self.engine).args(words).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&tar).unwrap();
        assert!(child.wait().unwrap().success());
    }

    fn version(&self) -> String {
        let field = if self.engine == "docker" { "Server" } else { "Client" };
        let format = format!("{{{{.{field}.Version}}}}");
        timed_output(Command::new(&self.engine).args(["version", "--format", &format])).0
    }

    fn by_the_engine(&self) -> Duration {
        let label = format!("--filter=label={NAMESPACE}.managed=true");
        let (ids, listed) =
            timed_output(Command::new(&self.engine).args(["ps", "--all", "--quiet", "--no-trunc", &label]));
        let ids: Vec<_> = ids.split_whitespace().collect();
        assert_eq!(ids.len(), CONTAINERS);
        let (_, inspected) = timed_output(Command::new(&self.engine).args(["container", "inspect"]).args(ids));
        listed + inspected
    }

    fn list(&self) -> Duration {
        let (answer, took) = self.call(&json!({ "operation": "list" }));
        assert_eq!(answer["count"], CONTAINERS, "{answer:#}");
        took
    }

    /// The answer of a call that has to succeed, and how long the process took.
    fn call(&self, call: &Value) -> (Value, Duration) {
        let (text, took) = timed_output(&mut self.command(call));
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["success"], true, "{answer:#}");
        (answer, took)
    }

    /// A server that an agent of this person has.
    fn agent(&self) -> McpSession {
        McpSession::start(self.program().args(["mcp", "--toolsets", "classic"]))
    }

    fn command(&self, call: &Value) -> Command {
        let mut command = self.program();
        command.arg("call").arg(call.to_string());
        command
    }

    fn program(&self) -> Command {
        let root = self.root.path();
        let mut command = Command::new(&self.coracle);
        command.env_clear().env("PATH", PATH);
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
        let output = self.command(&json!({ "operation": "destroy_all", "confirm": true })).output();
        if !output.as_ref().is_ok_and(|it| it.status.success()) {
            eprintln!("destroy_all: {output:?}");
        }
        leftovers::remove_labelled(&self.engine, &format!("{NAMESPACE}.managed=true"));
        leftovers::remove_networks(&self.engine, NAMESPACE);
        let _ = Command::new(&self.engine).args(["image", "rm", IMAGE]).stdin(Stdio::null()).output();
    }
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
    assert!(status.success(), "{command:?}: {status}: {}", String::from_utf8_lossy(&stderr));
    (String::from_utf8(stdout).unwrap().trim().to_owned(), took)
}
