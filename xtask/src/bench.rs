//! `cargo xtask bench exec [ROUNDS]`: commands and files in containers over the link, and containers created and
//! removed, compared with the engines' own programs and a spawn on the host. `bench create [ROUNDS]`: containers of a
//! cached image, provisioned and removed, compared with the engines' own programs. `bench list [ROUNDS]`: lists of a
//! hundred containers. `bench workspace [ROUNDS]`: files of a session read, written and searched. `bench workflows
//! [ROUNDS]`: worktrees, and twenty sandboxes at once.
//!
//! Each is measured by an example of `tests/examples`; its page in `docs/bench` is written from what that measured and
//! nothing else. `bench page NAME` writes it once more.

mod create;
mod exec;
mod list;
mod report;
mod workflows;
mod workspace;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::engines::{self, apt};
use crate::guest;
use crate::sh::{root, sh, target, var};
use report::Report;

/// Measurements that share an example and a page.
struct Bench {
    name: &'static str,
    example: &'static str,
    /// Enough that a median stands still, in a few minutes.
    rounds: u32,
    page: fn(&Report, &str) -> String,
}

const BENCHES: [Bench; 5] = [
    Bench { name: "exec", example: "link_bench", rounds: 30, page: exec::page },
    Bench { name: "create", example: "create_bench", rounds: 12, page: create::page },
    Bench { name: "workspace", example: "workspace_bench", rounds: 30, page: workspace::page },
    Bench { name: "workflows", example: "workflows_bench", rounds: 15, page: workflows::page },
    Bench { name: "list", example: "list_bench", rounds: 15, page: list::page },
];

pub(crate) fn run(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let named = |name: &str| BENCHES.iter().find(|it| it.name == name);
    match words[..] {
        ["page", name] if let Some(bench) = named(name) => bench.write(),
        [name] if let Some(bench) = named(name) => bench.run(bench.rounds),
        [name, rounds] if let Some(bench) = named(name) => bench.run(rounds.parse().context("ROUNDS is a number")?),
        _ => bail!("usage: cargo xtask bench exec|create|list|workflows|workspace [ROUNDS], or bench page NAME"),
    }
}

impl Bench {
    fn run(&self, rounds: u32) -> Result<()> {
        let engines = var("CORACLE_ENGINES").unwrap_or("docker,podman".to_owned());
        let engines: Vec<&str> = engines.split(',').filter(|it| !it.is_empty()).collect();
        apt::ensure(&["busybox-static", "ripgrep"])?;
        for engine in &engines {
            engines::up(Some(engine))?;
        }
        guest::build_small(&[guest::GUEST, guest::WORKER])?;
        let packages = ["--package", "coracle-cli", "--package", "coracle-tests"];
        let programs = ["--bin", "coracle", "--example", self.example];
        sh("cargo", ["build", "--release"].into_iter().chain(packages).chain(programs)).run()?;
        let (built, measured) = (target().join("release"), self.measured());
        fs::create_dir_all(target().join("bench"))?;
        let words = [measured, built.join("coracle"), rounds.to_string().into()];
        let example = built.join("examples").join(self.example);
        sh(example, words.into_iter().chain(engines.iter().map(Into::into))).run()?;
        self.write()
    }

    /// The file with its measurements.
    fn measured(&self) -> PathBuf {
        target().join("bench").join(self.name).with_extension("json")
    }

    fn write(&self) -> Result<()> {
        let measured = self.measured();
        let text = fs::read_to_string(&measured).with_context(|| format!("read {}", measured.display()))?;
        let report = Report::read(&serde_json::from_str(&text)?)?;
        let dir = root().join("docs/bench");
        fs::create_dir_all(&dir)?;
        let page = (self.page)(&report, &machine()?);
        fs::write(dir.join(self.name).with_extension("md"), &page)?;
        println!("\n{page}");
        Ok(())
    }
}

/// The machine and the day, in one line. The load shows whether other programs ran, too.
fn machine() -> Result<String> {
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
