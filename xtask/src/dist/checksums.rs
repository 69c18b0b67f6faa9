//! `SHA256SUMS` of everything in a directory, and the formula for Homebrew, which needs the sums of all platforms.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use super::platform::{PLATFORMS, Platform};
use crate::sh::root;

/// The names of what is written here.
const SUMS: &str = "SHA256SUMS";
const FORMULA: &str = "coracle.rb";

pub(crate) fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

/// Writes both for the files that are there. `url` is where they are downloaded from, without a slash at its end.
pub(super) fn write(dir: &Path, version: &str, url: &str) -> Result<()> {
    let formula = formula(dir, version, url)?;
    fs::write(dir.join(FORMULA), formula)?;
    let mut names = vec![];
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != SUMS {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    let mut sums = String::new();
    for name in names {
        writeln!(sums, "{}  {name}", sha256(&fs::read(dir.join(&name))?))?;
    }
    fs::write(dir.join(SUMS), sums).context("write the checksums")
}

/// Whether a directory has the files of a release and no others, by its checksums.
pub(super) fn is_release(dir: &Path) -> Result<bool> {
    let Ok(sums) = fs::read_to_string(dir.join(SUMS)) else { return Ok(false) };
    let names: BTreeSet<&str> = sums.lines().filter_map(|it| Some(it.split_once("  ")?.1)).collect();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if name != SUMS && name.to_str().is_none_or(|it| !names.contains(it)) {
            return Ok(false);
        }
    }
    Ok(names.contains(FORMULA))
}

fn formula(dir: &Path, version: &str, url: &str) -> Result<String> {
    let mut blocks = String::new();
    for platform in PLATFORMS {
        let name = platform.tarball(version);
        if let Ok(content) = fs::read(dir.join(&name)) {
            blocks += &block(platform, &format!("{url}/{name}"), &sha256(&content));
        }
    }
    let template = fs::read_to_string(root().join("packaging/coracle.rb")).context("read packaging/coracle.rb")?;
    // Releases lie below the project's own page.
    let homepage = url.split_once("/releases/").map_or(url, |(page, _)| page);
    Ok(template.replace("@VERSION@", version).replace("@HOMEPAGE@", homepage).replace("  # @PLATFORMS@\n", &blocks))
}

fn block(platform: &Platform, url: &str, sum: &str) -> String {
    let (os, cpu) = (platform.homebrew_os(), platform.homebrew_cpu());
    format!("  {os} do\n    {cpu} do\n      url \"{url}\"\n      sha256 \"{sum}\"\n    end\n  end\n")
}
