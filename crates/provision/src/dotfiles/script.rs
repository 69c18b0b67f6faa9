//! The script of dotfiles: finds it and runs it.

use coracle_protocol::{ErrorCode, FileKind, FileRef};
use coracle_types::{Chunk, Command, Error};
use tokio::sync::mpsc;

use super::request::Dotfiles;
use crate::step_error::StepError;
use crate::{ReportItem, StepContext, exit};

/// Names of scripts, in the order in which they are tried.
const USUAL: [&str; 5] = ["install.sh", "setup.sh", "bootstrap.sh", "script/setup", "Makefile"];

/// The kernel reads no more of a script's first line.
const FIRST_LINE: u64 = 256;

/// A script that exists.
#[derive(Debug)]
pub(super) struct Script {
    /// Its path in the clone.
    name: String,
    argv: Vec<String>,
}

/// Returns the given script, which has to exist; else the first of the usual ones.
pub(super) async fn find(context: &StepContext, dotfiles: &Dotfiles) -> Result<Option<Script>, StepError> {
    if let Some(name) = &dotfiles.script {
        let missing = || StepError::new("path_not_found", format!("there is no script `{name}` in the clone"));
        return inspect(context, dotfiles, name).await?.ok_or_else(missing).map(Some);
    }
    for name in USUAL {
        if let Some(script) = inspect(context, dotfiles, name).await? {
            return Ok(Some(script));
        }
    }
    Ok(None)
}

async fn inspect(context: &StepContext, dotfiles: &Dotfiles, name: &str) -> Result<Option<Script>, StepError> {
    let invalid = |why: &str| StepError::new("invalid_input", format!("the script is not a path in the clone: {why}"));
    if name.starts_with('/') {
        return Err(invalid("it must not begin with `/`"));
    }
    let path = dotfiles.target.join(name).map_err(|err| invalid(err.why))?;
    match context.within(read(context, context.at(&path))).await? {
        Some((executable, first)) => {
            let name = path.as_str().strip_prefix(dotfiles.target.as_str()).unwrap_or_default();
            let name = name.trim_start_matches('/').to_owned();
            let argv = argv(&name, executable, &first);
            Ok(Some(Script { name, argv }))
        }
        None => Ok(None),
    }
}

/// Returns whether a file is executable, and its first bytes; `None` if there is no file.
async fn read(context: &StepContext, at: FileRef) -> Result<Option<(bool, Vec<u8>)>, StepError> {
    match context.link.get(at, 0, FIRST_LINE).await {
        Ok((entry, first)) => Ok((entry.kind == FileKind::File).then_some((entry.mode & 0o111 != 0, first))),
        Err(Error::Refused(fault)) if [ErrorCode::NotFound, ErrorCode::WrongKind].contains(&fault.code) => Ok(None),
        Err(err) => Err(err.into()),
    }
}

/// Returns how to run the script. An executable one runs directly; one without execute permission runs with the
/// interpreter of its first line, or else with the shell.
fn argv(name: &str, executable: bool, first: &[u8]) -> Vec<String> {
    if name == "Makefile" {
        return vec!["make".into()];
    }
    let path = format!("./{name}");
    let named = first.strip_prefix(b"#!").map(interpreter).filter(|it| !it.is_empty());
    match named {
        Some(_) if executable => vec![path],
        Some(named) => named.into_iter().chain([path]).collect(),
        None if executable && first.starts_with(b"\x7fELF") => vec![path],
        None => vec!["/bin/sh".into(), path],
    }
}

/// Parses the interpreter and at most one argument, as the kernel does.
fn interpreter(line: &[u8]) -> Vec<String> {
    let line = line.split(|it| *it == b'\n').next().unwrap_or_default();
    let text = String::from_utf8_lossy(line);
    let (program, argument) = text.trim().split_once([' ', '\t']).unwrap_or((text.trim(), ""));
    [program, argument.trim()].into_iter().filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

/// Runs it in the clone, with its own files as the working directory, so that scripts that link from their current
/// directory do not use the home.
pub(super) async fn run(
    context: &StepContext,
    dotfiles: &Dotfiles,
    script: &Script,
    live: Option<&mpsc::Sender<Chunk>>,
) -> ReportItem {
    let name = script.name.as_str();
    let mut exec = context.exec(Command::Argv(script.argv.clone()), &dotfiles.target, context.timeout);
    exec.keep_bytes = exit::KEEP_BYTES;
    exec.live = live.cloned();
    let limit = exec.limits.total;
    let output = match context.run(exec).await {
        Ok(output) => output,
        Err(failure) => return failure.into_item(name),
    };
    let failure = match exit::exit_code(&output) {
        Some(127) if name == "Makefile" => Some(StepError::new("unsupported", "make is not in the image")),
        _ => exit::failure(&output, limit),
    };
    let item = failure.map_or_else(|| ReportItem::success(name), |it| it.into_item(name));
    item.with("exit_code", exit::exit_code(&output)).with("output", exit::tail(&output))
}

#[cfg(test)]
mod tests {
    use super::argv;

    #[test]
    fn a_script_runs_as_the_kernel_would_and_also_without_execute_permission() {
        for (name, executable, first, expected) in [
            ("install.sh", true, "#!/bin/bash\nx", "./install.sh"),
            ("install.sh", false, "#!/usr/bin/env  bash\nx", "/usr/bin/env bash ./install.sh"),
            ("install.sh", false, "#! /bin/sh -e x\r\nx", "/bin/sh -e x ./install.sh"),
            ("install.sh", true, "echo", "/bin/sh ./install.sh"),
            ("install.sh", false, "", "/bin/sh ./install.sh"),
            ("script/setup", true, "\x7fELF", "./script/setup"),
            ("script/setup", false, "#!\n", "/bin/sh ./script/setup"),
            ("Makefile", false, "all:", "make"),
        ] {
            assert_eq!(argv(name, executable, first.as_bytes()).join(" "), expected, "{name} {first:?}");
        }
        assert_eq!(argv("a", false, b"#!/bin/sh -e x")[1], "-e x", "one argument, as the kernel has it");
    }
}
