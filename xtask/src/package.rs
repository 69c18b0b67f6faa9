//! `cargo xtask package [PROGRAM [DIR]]`: the wheel and the npm package of this platform, with the program inside, in
//! `target/package` or another directory. The first build fetches the tools of both; installing needs no network.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::archive::{ArchiveFile, tar_gz};
use crate::sh::{root, sh, target};
use crate::{clients, dist};

/// Builds both. Without a program it is the one that a release ships, which is built first.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let program = match words {
        [] => dist::build()?,
        [program, ..] => PathBuf::from(program).canonicalize().with_context(|| program.clone())?,
    };
    let out = words.get(1).map_or_else(|| target().join("package"), PathBuf::from);
    fs::create_dir_all(&out)?;
    pack(&program, &dist::notices(&program)?, &out.canonicalize()?)
}

/// Writes both packages with that program and its licences into a directory.
pub(crate) fn pack(program: &Path, licences: &[ArchiveFile], out: &Path) -> Result<()> {
    wheel(program, licences, out)?;
    npm(program, licences, out)
}

fn wheel(program: &Path, licences: &[ArchiveFile], out: &Path) -> Result<()> {
    let python = clients::builder()?;
    let dir = work_dir("licences")?;
    for it in licences {
        fs::write(dir.join(&it.path), &it.content)?;
    }
    let script = "import sys, hatchling.build as it; print(it.build_wheel(sys.argv[1]))";
    let build = sh(python, ["-c".as_ref(), script.as_ref(), out.as_os_str()]).dir(&root().join("clients/python"));
    let built = build.env("CORACLE_WHEEL_PROGRAM", program).env("CORACLE_WHEEL_LICENCES", &dir).read();
    let _ = fs::remove_dir_all(&dir); // a leftover of a build is not worth a failure
    print_size(&out.join(built?))
}

/// An empty directory of this build alone: tests use the packages in the tree meanwhile.
fn work_dir(name: &str) -> Result<PathBuf> {
    let dir = target().join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir); // of an interrupted build
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// Seconds since 1970 in the archive: those that `npm pack` writes.
const NPM_TIME: u64 = 499_162_500;

/// The archive that `npm pack` would write.
fn npm(program: &Path, licences: &[ArchiveFile], out: &Path) -> Result<()> {
    let from = root().join("clients/typescript");
    let manifest: Value = serde_json::from_str(&fs::read_to_string(from.join("package.json"))?)?;
    let manifest = for_this_platform(manifest);
    let mut files = vec![
        ArchiveFile::new("package.json", format!("{manifest:#}\n")),
        ArchiveFile::new("README.md", fs::read(from.join("README.md"))?),
        ArchiveFile::program("bin/coracle", fs::read(program)?),
    ];
    files.extend(licences.iter().cloned());
    let compiled = work_dir("typescript")?;
    clients::compile_typescript(&compiled)?;
    for below in ["", "generated"] {
        for entry in fs::read_dir(compiled.join(below))? {
            let path = entry?.path();
            if path.is_file() {
                let name = path.strip_prefix(&compiled)?.display();
                files.push(ArchiveFile::new(format!("dist/{name}"), fs::read(&path)?));
            }
        }
    }
    let _ = fs::remove_dir_all(&compiled); // a leftover of a build is not worth a failure
    let word = |name: &str| manifest[name].as_str().with_context(|| format!("package.json has no `{name}`"));
    let system = [&manifest["os"][0], &manifest["cpu"][0]].map(|it| it.as_str().unwrap_or_default());
    let name = format!("{}-{}-{}-{}.tgz", word("name")?, word("version")?, system[0], system[1]);
    fs::write(out.join(&name), tar_gz("package/", &files, NPM_TIME)?)?;
    print_size(&out.join(name))
}

/// An installer refuses the package elsewhere, where its program would not run.
fn for_this_platform(mut manifest: Value) -> Value {
    let os = if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS };
    let cpu = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "x64" };
    manifest["os"] = [os].as_slice().into();
    manifest["cpu"] = [cpu].as_slice().into();
    manifest
}

fn print_size(package: &Path) -> Result<()> {
    let bytes = fs::metadata(package).with_context(|| package.display().to_string())?.len();
    ensure!(bytes > 0, "{} is empty", package.display());
    #[expect(clippy::cast_precision_loss, reason = "it is shown in tenths of a MiB")]
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
        let version = format!("__version__ = \"{}\"", env!("CARGO_PKG_VERSION"));
        let package = fs::read_to_string(root().join("clients/python/coracle/__init__.py")).unwrap();
        assert!(package.lines().any(|it| it == version), "{package}");
        let manifest = fs::read_to_string(root().join("clients/typescript/package.json")).unwrap();
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    }
}
