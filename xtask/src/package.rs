//! `cargo xtask package [PROGRAM [DIR]]`: the wheel and the npm package of this platform, with the program inside, in
//! `target/package` or another directory. Neither the builds nor the installations need a network.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::sh::{root, sh, target};

/// Builds both. Without a program it is the optimised one, which is built first.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let program = match words {
        [] => {
            sh("cargo", ["build", "--release", "--package", "coracle-cli"]).run()?;
            target().join("release/coracle")
        }
        [program, ..] => PathBuf::from(program).canonicalize().with_context(|| program.clone())?,
    };
    let out = words.get(1).map_or_else(|| target().join("package"), PathBuf::from);
    fs::create_dir_all(&out)?;
    let out = out.canonicalize()?;
    wheel(&program, &out)?;
    npm(&program, &out)
}

fn wheel(program: &Path, out: &Path) -> Result<()> {
    let backend = root().join("clients/python/backend.py");
    let name = sh("python3", [&backend, &out.to_path_buf()]).env("CORACLE_BIN", program).read()?;
    told(&out.join(name))
}

/// What the package has beside the program.
const FILES: [&str; 2] = ["README.md", "package.json"];

fn npm(program: &Path, out: &Path) -> Result<()> {
    let (from, stage) = (root().join("clients/typescript"), out.join("npm"));
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    for dir in ["src", "bin"] {
        fs::create_dir_all(stage.join(dir))?;
    }
    for entry in fs::read_dir(from.join("src"))? {
        let entry = entry?;
        fs::copy(entry.path(), stage.join("src").join(entry.file_name()))?;
    }
    for name in FILES {
        fs::copy(from.join(name), stage.join(name))?;
    }
    fs::copy(program, stage.join("bin/coracle"))?;
    for_this_platform(&stage.join("package.json"))?;
    let words = ["pack", "--silent", "--offline", "--pack-destination"].map(Into::into);
    let name = sh("npm", words.into_iter().chain([out.as_os_str().to_owned()])).dir(&stage).read()?;
    told(&out.join(name))
}

/// An installer refuses the package elsewhere, where its program would not run.
fn for_this_platform(manifest: &Path) -> Result<()> {
    let mut value: Value = serde_json::from_str(&fs::read_to_string(manifest)?)?;
    let os = if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS };
    let cpu = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "x64" };
    value["os"] = [os].as_slice().into();
    value["cpu"] = [cpu].as_slice().into();
    fs::write(manifest, format!("{value:#}\n")).map_err(Into::into)
}

fn told(package: &Path) -> Result<()> {
    let bytes = fs::metadata(package).with_context(|| package.display().to_string())?.len();
    ensure!(bytes > 0, "{} is empty", package.display());
    #[expect(clippy::cast_precision_loss, reason = "it is told in tenths of a MiB")]
    let size = bytes as f64 / f64::from(1 << 20);
    println!("  {}: {size:.1} MiB", package.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use crate::sh::root;

    #[test]
    fn packages_have_the_version_of_the_program() {
        let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
        let project = fs::read_to_string(root().join("clients/python/pyproject.toml")).unwrap();
        assert!(project.lines().any(|it| it == version), "{project}");
        let manifest = fs::read_to_string(root().join("clients/typescript/package.json")).unwrap();
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    }
}
