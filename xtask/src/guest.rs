//! `cargo xtask guest [--dist|--fast]`: the supervisor of containers, and the worker of sandboxes, each as one static program,
//! compressed, where the build of `coracle` looks for it.
//!
//! | build | profile | for |
//! |---|---|---|
//! | default | `release` | `cargo install`, which compiles none of their crates again |
//! | `--dist` | `guest` and `worker` | a release: small, each with only its own features |
//! | `--fast` | `dev` | tests, which compile the same crates; the demo has its own, of profile `demo` |
//!
//! Only the last build stays. The build of an optimised `coracle` warns if that was the fast one.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};

use crate::compiler::Compiler;
use crate::engines::apt;
use crate::sh::{root, sh, target, var, which};

/// Compresses the programs of a release.
const ZOPFLI: &str = "zopfli";

/// Size limit of the guest: a container that gets it uploaded waits for it, and `coracle` contains it compressed. A
/// seventh of it is Unicode data for regular expressions.
pub(crate) const GUEST: Program = Program {
    name: "guest",
    dist: Limits { bytes: 5_200 << 10, compressed: 2_300 << 10 },
    release: Limits { bytes: 7 << 20, compressed: 3 << 20 },
    fast: Limits { bytes: 16 << 20, compressed: 6 << 20 },
};

/// Size limit of the worker: half of it checks schemas, and the patterns in them.
const WORKER: Program = Program {
    name: "worker",
    dist: Limits { bytes: 12 << 20, compressed: 4 << 20 },
    release: Limits { bytes: 24 << 20, compressed: 8 << 20 },
    fast: Limits { bytes: 32 << 20, compressed: 10 << 20 },
};

/// The programs that `coracle` contains.
pub(crate) const PROGRAMS: [Program; 2] = [GUEST, WORKER];

/// A program, and the size limits of its builds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    name: &'static str,
    dist: Limits,
    release: Limits,
    fast: Limits,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    bytes: usize,
    compressed: usize,
}

impl Program {
    /// The name of its package and of its file.
    fn package(&self) -> String {
        format!("coracle-{}", self.name)
    }
}

/// A way to build, by which `coracle` finds the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    Dist,
    Release,
    Fast,
}

impl Build {
    fn limits(self, program: &Program) -> Limits {
        match self {
            Self::Dist => program.dist,
            Self::Release => program.release,
            Self::Fast => program.fast,
        }
    }

    fn file(self, program: &Program, machine: &Machine) -> String {
        let suffix = if self == Self::Fast { ".fast" } else { "" };
        format!("{}-{}{suffix}.gz", program.package(), machine.arch)
    }

    /// A build whose file must not lie beside the file of this one.
    fn other(self) -> Self {
        if self == Self::Fast { Self::Release } else { Self::Fast }
    }
}

/// The machine that xtask was compiled for, as the engines and as the compiler name it.
const MACHINE: Option<Machine> = if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
    Some(Machine { arch: "amd64", target: "x86_64-unknown-linux-gnu", elf: 62 })
} else if cfg!(all(target_os = "linux", target_arch = "aarch64")) {
    Some(Machine { arch: "arm64", target: "aarch64-unknown-linux-gnu", elf: 183 })
} else {
    None
};

struct Machine {
    arch: &'static str,
    target: &'static str,
    /// `e_machine` of its programs.
    elf: u16,
}

pub(crate) fn run(words: &[String]) -> Result<()> {
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => build_release(&[]),
        ["--dist"] => build_dist(&PROGRAMS),
        ["--fast"] => build_for_tests(Compiler::Static),
        _ => bail!("usage: cargo xtask guest [--dist|--fast]"),
    }
}

/// Compiles each program alone, as a release does: with fewer features of our crates than the workspace has.
pub(crate) fn check_each(compiler: Compiler) -> Result<()> {
    let check = |it: String| compiler.cargo(&["check", "--package", &it, "--bin", &it])?.run();
    PROGRAMS.iter().map(Program::package).try_for_each(check)
}

/// The small builds, for a release.
pub(crate) fn build_dist(programs: &[Program]) -> Result<()> {
    let machine = ready()?;
    ensure_zopfli()?;
    // At once: much of each is a chain of crates that keeps one core busy.
    let built: Vec<Result<PathBuf>> = thread::scope(|scope| {
        let builds: Vec<_> = programs.iter().map(|it| scope.spawn(|| compile_dist(it, &machine))).collect();
        builds.into_iter().map(|it| it.join().unwrap_or_else(|_| bail!("a build panicked"))).collect()
    });
    programs.iter().zip(built).try_for_each(|(it, built)| embed(it, &built?, Build::Dist, &machine))
}

/// Both programs with the features that their crates have in `coracle` with these features, so that the build of `coracle`
/// compiles none of them again.
pub(crate) fn build_release(features: &[&str]) -> Result<()> {
    let packages = ["--package", "coracle-guest", "--package", "coracle-worker", "--package", "coracle-cli"];
    let words = [&["build", "--release"], &packages[..], features].concat();
    build_among(&PROGRAMS, Compiler::StaticShared, &words, Build::Release, "release")
}

/// Both programs, of what the build of all programs and tests compiles too.
pub(crate) fn build_for_tests(compiler: Compiler) -> Result<()> {
    // A small test, so that cargo chooses the features that dependencies have with tests.
    build_fast(&PROGRAMS, compiler, &["build", "--workspace", "--test", "mux"], "debug")
}

/// Programs that are not optimised, of a build that has other packages too: `words` are for cargo, which puts them into that
/// directory.
pub(crate) fn build_fast(programs: &[Program], compiler: Compiler, words: &[&str], dir: &str) -> Result<()> {
    build_among(programs, compiler, words, Build::Fast, dir)
}

fn build_among(programs: &[Program], compiler: Compiler, words: &[&str], how: Build, dir: &str) -> Result<()> {
    let machine = ready()?;
    let packages: Vec<String> = programs.iter().map(Program::package).collect();
    let bins = packages.iter().flat_map(|it| ["--bin", it]);
    compiler.cargo(&words.iter().copied().chain(bins).collect::<Vec<_>>())?.run()?;
    let dir = target().join(dir);
    programs.iter().zip(packages).try_for_each(|(it, package)| embed(it, &dir.join(package), how, &machine))
}

/// This machine, with the C library that static programs have.
fn ready() -> Result<Machine> {
    let machine = MACHINE.context("the guest is built on Linux, on x86_64 or aarch64")?;
    apt::ensure(&["gcc", "libc6-dev"])?;
    Ok(machine)
}

/// Before the compilation, which takes minutes.
fn ensure_zopfli() -> Result<()> {
    if which(ZOPFLI).is_none() {
        apt::ensure(&[ZOPFLI])?;
    }
    ensure!(which(ZOPFLI).is_some(), "`{ZOPFLI}` is not installed: it compresses guest and worker");
    Ok(())
}

fn embed(what: &Program, built: &Path, how: Build, machine: &Machine) -> Result<()> {
    let (name, Limits { bytes, compressed }) = (what.name, how.limits(what));
    let program = fs::read(built).with_context(|| format!("read {}", built.display()))?;
    static_for(machine, &program).with_context(|| built.display().to_string())?;
    let gz = compress(built, how)?;
    ensure!(program.len() <= bytes, "the {name} has {} bytes, at most {bytes} are allowed", program.len());
    ensure!(gz.len() <= compressed, "the {name} has {} bytes compressed, at most {compressed}", gz.len());
    // Not beside cargo's own files: the build of `coracle` watches this directory with all its content. And not below
    // `CARGO_TARGET_DIR`, which a build script cannot see.
    let dir = root().join("target/guest");
    let changed = keep(&dir, &how.file(what, machine), &gz)?;
    remove(&dir.join(how.other().file(what, machine)))?;
    let word = if changed { "new" } else { "as before" };
    println!("  {name} for {}: {}, compressed {}, {word}", machine.arch, mib(program.len()), mib(gz.len()));
    Ok(())
}

fn compile_dist(what: &Program, machine: &Machine) -> Result<PathBuf> {
    // A target directory of its own: with other flags in the usual one, cargo would rebuild everything each time.
    let dir = root().join("target/guest-build");
    let (program, profile) = (what.package(), what.name);
    // Each by itself: together they would share the features of their packages, and the guest be a seventh larger.
    let words = ["build", "--package", &program, "--bin", &program, "--profile", profile, "--target"];
    // Without a target that is named, the flags would go to procedural macros too, which cannot be static.
    sh("cargo", words.into_iter().chain([machine.target, "--target-dir"]).map(Into::into).chain([dir.clone()]))
        .env("CARGO_ENCODED_RUSTFLAGS", flags().join("\u{1f}"))
        .run()?;
    Ok(dir.join(machine.target).join(profile).join(program))
}

fn flags() -> Vec<String> {
    ["-Ctarget-feature=+crt-static".to_owned()].into_iter().chain(source_flags()).collect()
}

/// Panics name the files of dependencies; without this they would do so by their place on this machine.
pub(crate) fn source_flags() -> Option<String> {
    let of_home = || std::env::home_dir().map(|it| it.join(".cargo"));
    let cargo = var("CARGO_HOME").map(PathBuf::from).or_else(of_home);
    cargo.map(|it| format!("--remap-path-prefix={}/=", it.join("registry/src").display()))
}

/// Fails for a program that is not for this machine, or starts only with a loader.
pub(crate) fn ensure_static(program: &[u8]) -> Result<()> {
    static_for(&MACHINE.context("static programs are built on Linux, on x86_64 or aarch64")?, program)
}

/// Whether an ELF program is for that machine and starts without a loader, which the container may not have.
fn static_for(machine: &Machine, program: &[u8]) -> Result<()> {
    const INTERPRETER: u64 = 3;
    // 64 bits, little-endian; fields of the header by their place.
    ensure!(program.starts_with(b"\x7fELF\x02\x01"), "it is no ELF program of 64 bits, little-endian");
    ensure!(number::<2>(program, 18)? == u64::from(machine.elf), "it is for another machine");
    let (table, size, count) = (number::<8>(program, 32)?, number::<2>(program, 54)?, number::<2>(program, 56)?);
    ensure!(count > 0, "it has no program headers");
    for index in 0..count {
        let at = table.saturating_add(index * size);
        ensure!(number::<4>(program, usize::try_from(at)?)? != INTERPRETER, "it is not static: it names a loader");
    }
    Ok(())
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64> {
    let field = bytes.get(at..).and_then(|it| it.first_chunk::<N>()).context("it is cut off")?;
    Ok(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Compresses without name and time, so that the same program gives the same bytes. For `--dist` zopfli makes it 3 %
/// smaller than the best of gzip.
fn compress(program: &Path, how: Build) -> Result<Vec<u8>> {
    let (compressor, options): (_, &[&str]) = match how {
        Build::Dist => (ZOPFLI, &["--i1", "-c"]),
        Build::Release => ("gzip", &["--best", "--no-name", "--stdout"]),
        Build::Fast => ("gzip", &["--fast", "--no-name", "--stdout"]),
    };
    let output = sh(compressor, options.iter().map(Path::new).chain([program])).output()?;
    ensure!(output.status.success(), "{compressor} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

/// Writes a file unless it has that content already, since all that embeds it would be rebuilt. Whether it was
/// written.
fn keep(dir: &Path, name: &str, content: &[u8]) -> Result<bool> {
    let path = dir.join(name);
    if fs::read(&path).is_ok_and(|it| it == content) {
        return Ok(false);
    }
    fs::create_dir_all(dir)?;
    let unfinished = dir.join(format!(".{name}-{}", std::process::id()));
    fs::write(&unfinished, content).with_context(|| format!("write {}", unfinished.display()))?;
    fs::rename(&unfinished, &path).with_context(|| format!("write {}", path.display()))?;
    Ok(true)
}

fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(err) if err.kind() == ErrorKind::NotFound => Ok(()),
        done => done.with_context(|| format!("remove {}", file.display())),
    }
}

fn mib(bytes: usize) -> String {
    format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMD64: Machine = Machine { arch: "amd64", target: "x86_64-unknown-linux-gnu", elf: 62 };

    /// A header and program headers of those kinds.
    fn program(machine: u8, kinds: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (bytes[18], bytes[32], bytes[54], bytes[56]) = (machine, 64, 56, u8::try_from(kinds.len()).expect("few"));
        for kind in kinds {
            bytes.push(*kind);
            bytes.extend([0; 55]);
        }
        bytes
    }

    #[test]
    fn a_program_that_names_a_loader_is_refused() {
        static_for(&AMD64, &program(62, &[1, 2, 6])).expect("segments, dynamic section, headers");
        let error = |program: &[u8]| static_for(&AMD64, program).expect_err("refused").to_string();
        assert!(error(&program(62, &[1, 3])).contains("loader"));
        assert!(error(&program(183, &[1])).contains("another machine"));
        assert!(error(&program(62, &[])).contains("no program headers"));
        assert!(error(&program(62, &[1, 3])[..110]).contains("cut off"));
        assert!(error(b"#!/bin/sh").contains("no ELF"));
    }

    #[test]
    fn a_file_is_written_only_when_it_changes() {
        let dir = std::env::temp_dir().join(format!("coracle-xtask-guest-{}", std::process::id()));
        let written = [b"one", b"one", b"two"].map(|it| keep(&dir, "guest.gz", it).expect("a writable directory"));
        let files = fs::read_dir(&dir).expect("it is there").count();
        fs::remove_dir_all(&dir).expect("it is ours");
        assert_eq!((written, files), ([true, false, true], 1));
    }
}
