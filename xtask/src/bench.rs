//! `cargo xtask bench exec [ROUNDS]`: commands and files in containers over the link, and containers made and removed,
//! beside the engines' own programs and a spawn on the host. Measured by `tests/examples/link_bench`; the page and the
//! plot in `docs/bench` are written from what it measured and nothing else. `bench page` writes them once more.

mod plot;
mod report;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::engines::{self, apt};
use crate::guest;
use crate::sh::{root, sh, target, var};

/// Enough that a median stands still, in about two minutes.
const ROUNDS: u32 = 30;

pub(crate) fn run(words: &[String]) -> Result<()> {
    let measured = target().join("bench/exec.json");
    let rounds = match words {
        [verb] if verb == "page" => return write(&measured),
        [verb] if verb == "exec" => ROUNDS,
        [verb, rounds] if verb == "exec" => rounds.parse().context("ROUNDS is a number")?,
        _ => bail!("usage: cargo xtask bench exec [ROUNDS], or bench page"),
    };
    let engines = var("CORACLE_ENGINES").unwrap_or("docker,podman".to_owned());
    let engines: Vec<&str> = engines.split(',').filter(|it| !it.is_empty()).collect();
    apt::ensure(&["busybox-static"])?;
    for engine in &engines {
        engines::up(Some(engine))?;
    }
    guest::run(&[])?;
    let packages = ["--package", "coracle", "--package", "coracle-tests"];
    let programs = ["--bin", "coracle", "--example", "link_bench"];
    sh("cargo", ["build", "--release"].into_iter().chain(packages).chain(programs)).run()?;
    let built = target().join("release");
    fs::create_dir_all(target().join("bench"))?;
    let words = [measured.clone(), built.join("coracle"), rounds.to_string().into()];
    sh(built.join("examples/link_bench"), words.into_iter().chain(engines.iter().map(Into::into))).run()?;
    write(&measured)
}

fn write(measured: &Path) -> Result<()> {
    let text = fs::read_to_string(measured).with_context(|| format!("read {}", measured.display()))?;
    let report = report::Report::read(&serde_json::from_str(&text)?)?;
    let dir = root().join("docs/bench");
    fs::create_dir_all(&dir)?;
    let page = report.page(&machine()?);
    fs::write(dir.join("exec.md"), &page)?;
    fs::write(dir.join("exec.svg"), plot::svg(&report))?;
    println!("\n{page}");
    Ok(())
}

/// The machine and the day, in one line. The load tells whether others were at work, too.
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
