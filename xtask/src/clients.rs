//! The generated parts of the packages in `clients/`, and programs that are not ours, which tests talk through: clients of
//! the Model Context Protocol, the reference implementation of `devcontainer.json`, tokenizers, and the SDKs of E2B. They lie
//! in `target/tools`.

use std::ffi::OsString;
use std::fs;
use std::iter::once;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::engines::apt;
use crate::sh::{root, sh, target, which};

/// The protocol's inspector, its conformance suite and its library, the devcontainers CLI, and a coding agent. Later versions of
/// these need a newer Node than Debian has. Two tokenizers: OpenAI's encodings, and the one that Anthropic has published. E2B's
/// SDK, for which Debian's Node is too old.
const NPM: &[&str] = &[
    "@modelcontextprotocol/inspector@1.0.3",
    "@modelcontextprotocol/conformance@0.1.13",
    "@modelcontextprotocol/sdk@1.32.2",
    "@devcontainers/cli@0.80.0",
    "@anthropic-ai/claude-code@2.1.197",
    "gpt-tokenizer@4.0.0",
    "@anthropic-ai/tokenizer@0.0.4",
    "e2b@2.51.0",
];

/// Compiles the TypeScript package.
const COMPILER: &[&str] = &["typescript@5.9.3", "@types/node@18.19.130"];

/// Builds the Python package.
const BUILDER: &[&str] = &["hatchling==1.33.0"];

/// The protocol's Python library, and two agent frameworks that the Python package has adapters for.
const PYTHON: &[&str] = &["mcp==1.30.0", "openai-agents==0.24.0", "pydantic-ai-slim==2.68.0"];

/// E2B's SDK, in an environment of its own: its requirements are not to decide the versions of the others.
const E2B: &[&str] = &["e2b==2.63.0"];

/// Puts them into `target/tools`: `node_modules/.bin` and `python/bin`. Without them the rest is still worth running: a
/// test that needs one is skipped, and counted.
pub(crate) fn ensure() {
    let what = "MCP inspector, conformance suite and library, devcontainers CLI, Claude Code, tokenizers and E2B's SDK";
    report(what, npm(NPM));
    report("MCP library and agent frameworks for Python", python_with(&tools().join("python"), PYTHON).map(drop));
    report("E2B's SDK for Python", python_with(&tools().join("python-e2b"), E2B).map(drop));
    report("builder of the Python package", builder().map(drop));
    generate();
}

/// Writes what is generated of both packages, as far as this machine has the programs.
pub(crate) fn generate() {
    report("modules of the Python package", generate_python());
    report("compiled TypeScript package", compile_typescript(&root().join("clients/typescript/dist")));
}

/// Writes what is generated with the programs that are there.
pub(crate) fn generate_without_downloads() {
    report("modules of the Python package", generate_python());
    if tools().join("node_modules/typescript").is_dir() {
        report("compiled TypeScript package", compile_typescript(&root().join("clients/typescript/dist")));
    }
}

fn report(what: &str, done: Result<()>) {
    if let Err(error) = done {
        println!("  no {what}: {error:#}");
    }
}

pub(crate) fn generate_python() -> Result<()> {
    sh("python3", [root().join("clients/python/generate.py")]).run()
}

/// Writes the compiled TypeScript package into a directory.
pub(crate) fn compile_typescript(out: &Path) -> Result<()> {
    npm(COMPILER)?;
    let package = root().join("clients/typescript");
    sh("node", ["generate.mjs"]).dir(&package).run()?;
    let modules = tools().join("node_modules");
    let words = ["--typeRoots".into(), modules.join("@types"), "--outDir".into(), out.to_owned()];
    let words = [modules.join("typescript/bin/tsc")].into_iter().chain(words);
    sh("node", words).dir(&package).run().context("the TypeScript package does not compile")
}

/// A Python that builds the Python package.
pub(crate) fn builder() -> Result<PathBuf> {
    python_with(&tools().join("python-build"), BUILDER)
}

/// Whether the tools that build both packages are there, or could be fetched.
#[cfg(test)]
pub(crate) fn can_pack() -> bool {
    crate::sh::var("CORACLE_TEST_DOWNLOADS").as_deref() != Some("never") && builder().is_ok() && npm(COMPILER).is_ok()
}

fn tools() -> PathBuf {
    target().join("tools")
}

fn npm(packages: &[&str]) -> Result<()> {
    let tools = &tools();
    if packages.iter().all(|it| is_installed(tools, it)) {
        return Ok(());
    }
    fs::create_dir_all(tools)?;
    if which("npm").is_none() {
        apt::ensure(&["nodejs", "npm"])?;
    }
    let words = ["install", "--no-audit", "--no-fund", "--silent", "--prefix"].map(OsString::from);
    sh("npm", words.into_iter().chain(once(tools.into())).chain(packages.iter().map(OsString::from))).run()
}

fn is_installed(tools: &Path, package: &str) -> bool {
    let Some((name, wanted)) = package.rsplit_once('@') else { return false };
    let manifest = fs::read_to_string(tools.join("node_modules").join(name).join("package.json")).unwrap_or_default();
    manifest.contains(&format!("\"version\": \"{wanted}\""))
}

/// A Python with these packages, in an environment of its own.
pub(crate) fn python_with(venv: &Path, packages: &[&str]) -> Result<PathBuf> {
    let python = venv.join("bin/python");
    if packages.iter().all(|package| has_package(&python, package)) {
        return Ok(python);
    }
    if !sh("python3", ["-c", "import ensurepip"]).succeeds() {
        apt::ensure(&["python3-venv"])?;
    }
    sh("python3", [OsString::from("-m"), "venv".into(), "--clear".into(), venv.into()]).run()?;
    let words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    sh(&python, words.iter().chain(packages)).run()?;
    Ok(python)
}

fn has_package(python: &Path, package: &str) -> bool {
    let Some((name, wanted)) = package.split_once("==") else { return false };
    let version = format!("from importlib.metadata import version; print(version('{name}'))");
    python.exists() && sh(python, ["-c", &version]).read().is_ok_and(|it| it == wanted)
}
