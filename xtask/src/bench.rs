//! `cargo xtask bench exec [ROUNDS]`: commands and files in containers over the link, and containers created and
//! removed, compared with the engines' own programs and a spawn on the host. `bench create [ROUNDS]`: containers of a
//! cached image, provisioned and removed, compared with the engines' own programs. `bench list [ROUNDS]`: lists of a
//! hundred containers. `bench workspace [ROUNDS]`: files of a session read, written and searched. `bench workflows
//! [ROUNDS]`: worktrees, and twenty sandboxes at once. `bench engine [ROUNDS]`: the embedded engine beside `crun` and the
//! engines' own programs, as root and as another user. `bench clients [CONTAINERS]`: many containers of one client, and commands
//! over its open connection; with `CORACLE_ENGINES=docker,kubernetes` also in a Pod of the cluster for tests.
//!
//! Each is measured by an example of `tests/examples`; its page in `docs/bench` is written from what that measured and from a
//! template in `pages`. `bench page NAME` writes it once more.

pub(crate) mod agents;
mod clients;
mod page;
mod plot;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

pub(crate) use self::page::{number, render, whole};
use crate::engines::{self, apt};
use crate::guest;
use crate::sh::{root, sh, target, var};

/// Measurements that share an example and a page.
struct Bench {
    name: &'static str,
    example: &'static str,
    /// Enough that a median stands still, in a few minutes.
    rounds: u32,
    page: &'static str,
    /// What is measured before the engines of `CORACLE_ENGINES`.
    before: &'static [&'static str],
    /// It is measured again by an account that is not root, and its page has a plot.
    twice: bool,
}

const BENCHES: [Bench; 6] = [
    Bench::new("exec", "link_bench", 30, include_str!("bench/pages/exec.jinja")),
    Bench {
        before: &["embedded"],
        ..Bench::new("create", "create_bench", 12, include_str!("bench/pages/create.jinja"))
    },
    Bench {
        before: &["embedded", "crun"],
        twice: true,
        ..Bench::new("engine", "engine_bench", 15, include_str!("bench/pages/engine.jinja"))
    },
    Bench::new("workspace", "workspace_bench", 30, include_str!("bench/pages/workspace.jinja")),
    Bench::new("workflows", "workflows_bench", 15, include_str!("bench/pages/workflows.jinja")),
    Bench::new("list", "list_bench", 15, include_str!("bench/pages/list.jinja")),
];

pub(crate) fn run(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let named = |name: &str| BENCHES.iter().find(|it| it.name == name);
    let count = |word: &str| word.parse().context("a number is expected");
    match words[..] {
        ["clients"] => clients::run(clients::CONTAINERS),
        ["clients", containers] => clients::run(count(containers)?),
        ["page", "clients"] => clients::write(),
        ["page", name] if let Some(bench) = named(name) => bench.write(),
        [name] if let Some(bench) = named(name) => bench.run(bench.rounds),
        [name, rounds] if let Some(bench) = named(name) => bench.run(count(rounds)?),
        _ => bail!(
            "usage: cargo xtask bench clients|exec|create|engine|list|workflows|workspace [ROUNDS], or bench page NAME"
        ),
    }
}

impl Bench {
    const fn new(name: &'static str, example: &'static str, rounds: u32, page: &'static str) -> Self {
        Self { name, example, rounds, page, before: &[], twice: false }
    }

    fn run(&self, rounds: u32) -> Result<()> {
        let engines = var("CORACLE_ENGINES").unwrap_or("docker,podman".to_owned());
        let engines: Vec<&str> = engines.split(',').filter(|it| !it.is_empty()).collect();
        apt::ensure(&["busybox-static", "ripgrep"])?;
        if self.twice {
            apt::ensure(&["crun"])?;
        }
        for engine in &engines {
            engines::up(Some(engine))?;
        }
        let (built, measured) = (build(self.example)?, self.measured());
        let example = built.join("examples").join(self.example);
        let words = |out: PathBuf| [out, built.join("coracle"), rounds.to_string().into()].into_iter();
        let engines = || self.before.iter().chain(&engines).map(PathBuf::from);
        sh(&example, words(measured).chain(engines())).run()?;
        if self.twice && apt::is_root() {
            // Docker's program is root's, and a program of root's directories may be closed to others.
            let person = engines::rootless_person()?;
            let (out, program) = (person.temp_dir().join("bench.json"), person.copy_of(&example)?);
            let measurable = engines().filter(|it| it.as_os_str() != "docker");
            let words: Vec<_> = words(out.clone()).chain(measurable).collect();
            let words: Vec<_> = words.iter().map(|it| it.to_string_lossy()).collect();
            let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
            let temp = format!("TMPDIR={}", person.temp_dir().display());
            let program = program.to_string_lossy();
            person.runs("env", &[&[&*temp, &*program][..], &words].concat()).run()?;
            self.join(&fs::read_to_string(&out)?)?;
        }
        self.write()
    }

    /// Adds what an account measured that is not root.
    fn join(&self, rootless: &str) -> Result<()> {
        let mut all: Value = serde_json::from_str(&fs::read_to_string(self.measured())?)?;
        let mut more: Value = serde_json::from_str(rootless)?;
        for (part, field) in [("engines", "name"), ("series", "engine"), ("sizes", "engine")] {
            for entry in more[part].as_array_mut().into_iter().flatten() {
                let name = entry[field].as_str().unwrap_or_default();
                let name = format!("rootless {name}");
                entry[field] = name.into();
                all[part].as_array_mut().with_context(|| format!("no `{part}`"))?.push(entry.clone());
            }
        }
        Ok(fs::write(self.measured(), format!("{all:#}\n"))?)
    }

    /// The file with its measurements.
    fn measured(&self) -> PathBuf {
        target().join("bench").join(self.name).with_extension("json")
    }

    fn write(&self) -> Result<()> {
        let measured = read(&self.measured())?;
        if self.twice {
            fs::write(root().join("docs/bench/engine.svg"), plot::plot(&measured))?;
        }
        write(self.name, self.page, &measured)
    }
}

/// Builds `coracle` and an example with profile `release`, whose calls take as long as those of `dist`; the directory of both.
fn build(example: &str) -> Result<PathBuf> {
    guest::build_release(&[])?;
    let packages = ["--package", "coracle-cli", "--package", "coracle-tests"];
    let programs = ["--bin", "coracle", "--example", example];
    sh("cargo", ["build", "--release"].into_iter().chain(packages).chain(programs)).run()?;
    fs::create_dir_all(target().join("bench"))?;
    Ok(target().join("release"))
}

pub(crate) fn read(measured: &Path) -> Result<Value> {
    let text = fs::read_to_string(measured).with_context(|| format!("read {}", measured.display()))?;
    serde_json::from_str(&text).with_context(|| format!("parse {}", measured.display()))
}

/// Writes a page of `docs/bench`.
fn write(name: &str, template: &str, measured: &Value) -> Result<()> {
    let page = render(template, measured, &machine()?)?;
    fs::write(root().join("docs/bench").join(name).with_extension("md"), &page)?;
    println!("\n{page}");
    Ok(())
}

/// The machine and the day, in one line. The load shows whether other programs ran, too.
pub(crate) fn machine() -> Result<String> {
    let kernel = sh("uname", ["-sr"]).read()?;
    let day = sh("date", ["--utc", "+%Y-%m-%d"]).read()?;
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|it| it.strip_prefix("model name")?.split_once(':')).map(|(_, name)| name.trim());
    let cores = std::thread::available_parallelism()?;
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').nth(1).unwrap_or("unknown");
    let model = model.unwrap_or("of a model that the kernel does not name");
    Ok(format!("{day}; {kernel}; {cores} cores, {model}; load of the last 5 minutes {load}"))
}
