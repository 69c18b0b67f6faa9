//! `cargo xtask modules` and `cargo xtask size`: what the modules of the crates use of each other, and how large they are.

use anyhow::{Result, bail, ensure};
use structure::load::{Crate, workspace};
use structure::report;

use crate::sh::root;

pub(crate) fn run(words: &[String]) -> Result<()> {
    let crates = workspace(root())?;
    let chosen: Vec<&Crate> = crates.iter().filter(|it| words.is_empty() || words.contains(&it.name)).collect();
    if let Some(unknown) = words.iter().find(|word| !crates.iter().any(|it| it.name == **word)) {
        let names: Vec<&str> = crates.iter().map(|it| it.name.as_str()).collect();
        bail!("no crate `{unknown}`; there are {}", names.join(", "));
    }
    let reports: Vec<String> = chosen.into_iter().map(report::structure).collect();
    print!("{}", reports.join("\n\n"));
    Ok(())
}

pub(crate) fn size(words: &[String]) -> Result<()> {
    let is_json = words == ["--json"];
    ensure!(is_json || words.is_empty(), "usage: cargo xtask size [--json]");
    let crates = workspace(root())?;
    if is_json {
        println!("{:#}", report::sizes_json(&crates));
    } else {
        print!("{}", report::sizes(&crates));
    }
    Ok(())
}
