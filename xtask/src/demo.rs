//! `cargo xtask demo`: the main job on something real, from a machine that may have no engine: on the embedded engine, or on
//! Docker or Podman where that cannot work.
//!
//! A small Python project is mounted into a container, its tests run there, their report is copied out, and the
//! container is destroyed. What is checked goes through `coracle call`; beside it stands what a person would type.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::compiler::Compiler;
use crate::cost::{self, BuildCost};
use crate::guest::{self, GUEST};
use crate::sh::{root, sh, target, took};

/// The least that compiles, the same for both programs: what is slow here is the engine, and no schema is checked.
pub(crate) const BUILD: &[&str] =
    &["build", "--profile", "demo", "--package", "coracle-guest", "--package", "coracle-cli", "--no-default-features"];

/// The path of the report: outside the mounted directory, so that copying it out proves something.
const REPORT: &str = "/tmp/report.json";

/// An image from a registry may be without Python; the base that is made where none answers has it.
const PYTHON: &str =
    "command -v python3 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3; }";

pub(crate) fn run(words: &[String]) -> Result<()> {
    ensure!(words.is_empty(), "usage: cargo xtask demo");
    let begun = Instant::now();
    println!("{}", announcement(cost::recorded("demo")?, available_parallelism()?.get()));
    let guest = || guest::build_fast(&[GUEST], Compiler::Static, BUILD, "demo");
    step("build the guest", &format!("cargo {} --bin coracle-guest", BUILD.join(" ")), guest)?;
    let coracle = [BUILD, &["--bin", "coracle"]].concat();
    step("build coracle", &format!("cargo {}", coracle.join(" ")), || Compiler::Static.cargo(&coracle)?.run())?;
    let project = Project::new()?;
    let program = target().join("demo/coracle");
    let mut coracle = Coracle { program, project: project.0.clone(), engine: EMBEDDED };
    let preflight = ready(&mut coracle)?;
    let name = format!("demo-{}", std::process::id());
    let network = Network::of(&preflight);
    let shown = show(&coracle, &name, network);
    // Whatever happened before, nothing is left behind; the first failure is the one to report.
    let gone = step("destroy it", &format!("coracle destroy {name}"), || {
        coracle.call(&json!({ "operation": "destroy", "container": name }))
    });
    let (created, report) = shown?;
    gone?;
    step("look whether it is gone", "coracle list", || is_gone(&coracle, &preflight, &created))?;
    let (kind, version) = (word(&preflight["engine"]["kind"]), word(&preflight["engine"]["version"]));
    println!(
        "\n{} tests passed in a container of {kind} {version}, nothing is left; {} in all",
        report["tests"],
        took(begun)
    );
    println!("\n{}", next_steps(&coracle.program, network));
    Ok(())
}

/// What is built, and how long that takes on this number of cores.
fn announcement(cost: BuildCost, cores: usize) -> String {
    let seconds = (cost.total / cores as f64).max(cost.longest_chain);
    let minutes = (seconds / 60.0).ceil();
    format!(
        "building the guest and coracle from source: about {minutes} minutes on {cores} cores, less if built before"
    )
}

/// The commands to continue with.
fn next_steps(program: &Path, network: Network) -> String {
    let create = match network {
        Network::Usual => "coracle create --name first",
        Network::Missing => "coracle create --name first --network none",
    };
    let dir = program.parent().unwrap_or(program).display();
    let first_page = root().join("docs/first-five-minutes.md");
    [
        "What to type next:".to_owned(),
        format!("  export PATH=\"{dir}:$PATH\""),
        format!("  {create}           # this directory is /workspace inside"),
        "  coracle exec first -- COMMAND         # or `coracle shell first`; `coracle destroy first` removes it".to_owned(),
        "  coracle init                          # makes Coracle an MCP server of your agents".to_owned(),
        format!("The documentation begins with {}.", first_page.display()),
        "This program is not optimised, and has no ssh, metrics or schemas. `cargo xtask guest`, then `cargo install --locked --path \
         crates/cli` build and install the full one."
            .to_owned(),
    ]
    .join("\n")
}

/// The answer of a preflight that finds everything in order: of the embedded engine, else of another one, after a setup if
/// it takes one.
fn ready(coracle: &mut Coracle) -> Result<Value> {
    let request = json!({ "operation": "preflight", "refresh": true });
    let first = step("look at the embedded engine", "coracle --engine embedded preflight", || coracle.call(&request))?;
    println!("  {}", word(&first["summary"]));
    if first["ready"] == true {
        return Ok(first);
    }
    for check in first["checks"].as_array().into_iter().flatten().filter(|it| it["passed"] == false) {
        println!("  {}: {}", word(&check["name"]), word(&check["detail"]));
    }
    println!("  the embedded engine cannot work here: the demo takes Podman or Docker");
    coracle.engine = "auto";
    let ask = || coracle.call(&request);
    let second = step("look for an engine", "coracle preflight", ask)?;
    println!("  {}", word(&second["summary"]));
    if second["ready"] == true {
        return Ok(second);
    }
    let setup = || sh(&coracle.program, ["setup", "--yes"]).dir(&coracle.project).run();
    step("set one up", "coracle setup --yes", setup)?;
    let last = step("look again", "coracle preflight", ask)?;
    ensure!(last["ready"] == true, "still not ready after setup: {last:#}");
    Ok(last)
}

/// Makes the container, runs the project's tests inside and gives the answer of `create` and the report as it came out.
fn show(coracle: &Coracle, name: &str, network: Network) -> Result<(Value, Value)> {
    let mut typed = format!("coracle create --name {name} --mount-cwd");
    let mut create = json!({
        "operation": "create", "name": name, "mount_cwd": true, "workdir": "/workspace", "setup_commands": [PYTHON]
    });
    if network == Network::Missing {
        typed += " --network none";
        create["network"] = "none".into();
    }
    let created = step("create a container", &typed, || coracle.call(&create))?;
    println!("  from {} ({})", word(&created["image"]), word(&created["image_source"]));
    for entry in created["provisioning_report"].as_array().into_iter().flatten() {
        if entry["status"] == "failed" || entry["status"] == "partial" {
            println!("  {}: {} ({})", word(&entry["name"]), word(&entry["detail"]), word(&entry["error"]));
        }
    }
    let ran = step("run its tests", &format!("coracle exec {name} -- python3 run_tests.py {REPORT}"), || {
        let command = json!(["python3", "run_tests.py", REPORT]);
        coracle.call(&json!({ "operation": "exec", "container": name, "command": command, "timeout": 120 }))
    })?;
    for line in ran["stderr"].as_str().unwrap_or_default().lines() {
        println!("  | {line}");
    }
    ensure!(ran["exit_code"] == 0, "the tests failed inside: {ran:#}");
    step("copy the report out", &format!("coracle copy-out {name} {REPORT} result/report.json"), || {
        let host = "result/report.json";
        coracle
            .call(&json!({ "operation": "copy_out", "container": name, "container_path": REPORT, "host_path": host }))
    })?;
    let report = fs::read_to_string(coracle.project.join("result/report.json")).context("the report is not there")?;
    println!("  {}", report.trim());
    let report: Value = serde_json::from_str(&report)?;
    ensure!(report["ok"] == true && report["tests"].as_u64() > Some(0), "the report says otherwise than the exit code");
    Ok((created, report))
}

/// Whether a container can reach out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Usual,
    /// Without root the embedded engine needs a program for it.
    Missing,
}

impl Network {
    fn of(preflight: &Value) -> Self {
        let checks = preflight["checks"].as_array().into_iter().flatten();
        let program = checks.into_iter().find(|it| it["name"] == "network_program");
        if program.is_some_and(|it| it["status"] == "warn") { Self::Missing } else { Self::Usual }
    }
}

/// Asks Coracle, and the engine itself.
fn is_gone(coracle: &Coracle, preflight: &Value, created: &Value) -> Result<()> {
    let listed = coracle.call(&json!({ "operation": "list" }))?;
    let all = listed["containers"].as_array().context("`list` names no containers")?;
    ensure!(all.iter().all(|it| it["name"] != created["container"]), "`list` still has it");
    let (program, id) = (text(preflight, "runtime")?, text(created, "id")?);
    let known = match program {
        EMBEDDED => has_traces(Path::new(text(&preflight["engine"], "data_root")?), id)?,
        _ => sh(program, ["container", "inspect", id]).succeeds(),
    };
    ensure!(!known, "{program} still has it");
    Ok(())
}

/// Whether the embedded engine still has files or mounts of a container: it has no program to ask.
fn has_traces(data: &Path, id: &str) -> Result<bool> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?;
    Ok(data.join("containers").join(id).exists() || mounts.contains(id))
}

fn step<T>(what: &str, typed: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("\n== {what}: {typed}");
    let begun = Instant::now();
    let done = act().with_context(|| what.to_owned())?;
    println!("  {}", took(begun));
    Ok(done)
}

/// The engine that needs nothing else.
const EMBEDDED: &str = "embedded";

struct Coracle {
    program: PathBuf,
    project: PathBuf,
    /// The value of `--engine`.
    engine: &'static str,
}

impl Coracle {
    fn call(&self, request: &Value) -> Result<Value> {
        let words = ["--engine", self.engine, "call", &request.to_string()].map(str::to_owned);
        let output = sh(&self.program, words).dir(&self.project).output()?;
        let answer: Value = serde_json::from_slice(&output.stdout).with_context(|| {
            format!("no answer ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
        })?;
        if answer["success"] != true {
            bail!("{}: {}\n{answer:#}", word(&answer["code"]), word(&answer["error"]));
        }
        Ok(answer)
    }
}

fn text<'a>(answer: &'a Value, field: &str) -> Result<&'a str> {
    answer[field].as_str().with_context(|| format!("the answer has no `{field}`: {answer:#}"))
}

/// A text without its quotes, for people.
fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// A copy of the project that ships with the tests; removed when it is dropped.
struct Project(PathBuf);

impl Project {
    fn new() -> Result<Self> {
        let copy = std::env::temp_dir().join(format!("coracle-demo-{}", std::process::id()));
        let project = Self(copy);
        sh("cp", [Path::new("-R"), &root().join("tests/fixtures/python-project"), &project.0]).read()?;
        fs::create_dir(project.0.join("result"))?;
        Ok(project)
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // a leftover in the temporary directory is not worth a failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_limited_by_cores_and_by_the_longest_chain() {
        let cost = BuildCost { total: 700.0, longest_chain: 310.0 };
        assert!(announcement(cost, 2).contains("about 6 minutes on 2 cores"));
        assert!(announcement(cost, 16).contains("about 6 minutes on 16 cores"));
    }

    #[test]
    fn the_next_commands_name_the_program_that_was_built() {
        let steps = next_steps(Path::new("/src/target/demo/coracle"), Network::Missing);
        assert!(steps.contains("export PATH=\"/src/target/demo:$PATH\""), "{steps}");
        assert!(steps.contains("--network none"), "{steps}");
        assert!(!next_steps(Path::new("/coracle"), Network::Usual).contains("--network"));
        assert!(root().join("docs/first-five-minutes.md").is_file());
    }
}
