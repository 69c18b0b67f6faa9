//! `coracle cp`, which copies in either direction, and `coracle copy-out … -`, which writes a file to standard output.

use std::fs::File;
use std::io;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Map, Value, json};

use super::operation::{OperationCall, allow, flags};
use super::present::Present;
use crate::context::Options;
use crate::failure::{Code, Failure};
use crate::host::Host;
use crate::process::Process;
use crate::{ops, render};

/// Its name.
pub(super) const CP: &str = "cp";

/// Standard output in place of a path of the host.
pub(super) const STDOUT: &str = "-";

/// `cp`.
pub(super) fn command() -> Command {
    let side = |name: &'static str, help: &'static str| {
        Arg::new(name).value_name("[CONTAINER:]PATH").required(true).help(help)
    };
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the answer as JSON");
    let keep = Arg::new("keep").long("no-overwrite").action(ArgAction::SetTrue).help("Replace no file that exists");
    Command::new(CP).about("Copy a file or directory into a container, or out of one").args([
        side("from", "What is copied: `web:/x` is in the container `web`, `./x` on this host"),
        side("to", "Where it goes; `-` is standard output"),
        keep,
        allow(),
        json,
    ])
}

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let word = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let mut object = match copies(&word("from"), &word("to")) {
        Ok(object) => object,
        Err(failure) if matches.get_flag("json") => return super::finish(&failure.answer(Some(CP))),
        Err(failure) => {
            super::told(&failure);
            return ExitCode::from(super::NOT_UNDERSTOOD);
        }
    };
    if matches.get_flag("keep") {
        object.insert("overwrite".into(), false.into());
    }
    let named = |name: &str| object.get("operation").is_some_and(|it| it == name);
    let Some(entry) = ops::ALL.iter().find(|it| named(it.name)) else { return ExitCode::from(super::NOT_UNDERSTOOD) };
    let call = OperationCall { table: ops::ALL, entry: *entry, object, flags: flags(matches) };
    Box::pin(call.run(host, options)).await
}

/// The call that two sides stand for.
fn copies(from: &str, to: &str) -> Result<Map<String, Value>, Failure> {
    let copy = match (inside(from), inside(to)) {
        (Some((container, path)), None) => {
            json!({ "operation": "copy_out", "container": container, "container_path": path, "host_path": to })
        }
        (None, Some((container, path))) => {
            json!({ "operation": "copy_in", "container": container, "container_path": path, "host_path": from })
        }
        (None, None) => {
            let failure = Failure::new(Code::InvalidInput, "neither side names a container");
            return Err(failure.hint("write `CONTAINER:PATH` for one of them: `coracle cp ./x web:/tmp/`"));
        }
        (Some(_), Some(_)) => {
            let failure = Failure::new(Code::InvalidInput, "both sides name a container");
            return Err(failure.hint("copy to this host first, and from there into the other container"));
        }
    };
    if let Value::Object(copy) = copy { Ok(copy) } else { Err(Failure::internal("a call is no object")) }
}

/// `CONTAINER:PATH`. What begins like a path of the host is one, whatever stands in it.
fn inside(side: &str) -> Option<(&str, &str)> {
    if side.starts_with(['/', '.', '~']) {
        return None;
    }
    let (container, path) = side.split_once(':').filter(|(container, _)| !container.contains('/'))?;
    Some((container, if path.is_empty() { "." } else { path }))
}

/// Whether a copy goes to standard output.
pub(super) fn is_stdout(object: &Map<String, Value>) -> bool {
    object.get("host_path").is_some_and(|it| it == STDOUT)
}

/// Copies a file to a place of ours first: what comes of a copy is known only at its end.
pub(super) async fn to_stdout(call: &OperationCall, process: &Process, mut present: Present) -> ExitCode {
    let asked = Value::Object(call.object.clone());
    if call.flags.contains(&"json") {
        let failure = Failure::new(Code::ConflictingFields, "`-` and `--json` both write to standard output")
            .hint("name a file to copy to");
        return super::finish(&failure.answer(Some(call.entry.name)));
    }
    let fails = |present: Present, failure: &Failure| present.end(&call.entry, asked.clone(), &failure.answer(None));
    let cx = &process.context;
    let dir = cx.state().and_then(|it| tempfile::tempdir_in(it.scratch()).map_err(Failure::internal));
    let dir = match dir {
        Ok(dir) => dir,
        Err(failure) => return fails(present, &failure),
    };
    let file = dir.path().join("file");
    let mut object = call.object.clone();
    object.insert("host_path".into(), file.display().to_string().into());
    let copying = OperationCall { object, flags: Vec::new(), ..*call };
    let answer = copying.answer(process, Some(&mut present)).await;
    if answer.get("success") != Some(&Value::Bool(true)) {
        return present.end(&call.entry, asked, &answer);
    }
    match File::open(&file).ok().filter(|it| it.metadata().is_ok_and(|it| it.is_file())) {
        None => fails(present, &no_file(&asked)),
        Some(mut file) => {
            present.clear();
            render::warnings(&answer);
            let written = io::copy(&mut file, &mut io::stdout().lock());
            match written {
                Ok(_) => ExitCode::SUCCESS,
                // A reader that went away has seen enough.
                Err(err) if err.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(141),
                Err(err) => fails(present, &Failure::internal(format!("standard output cannot be written: {err}"))),
            }
        }
    }
}

fn no_file(asked: &Value) -> Failure {
    let path = asked["container_path"].as_str().unwrap_or_default();
    let message = format!("`{}` is no file, and only one file can be written to standard output", path.escape_debug());
    let container = asked["container"].as_str().unwrap_or_default();
    let line = format!("coracle exec {container} -- tar -c {path}");
    Failure::new(Code::InvalidInput, message).hint(format!("copy it to a directory, or pack it: `{line}`"))
}

#[cfg(test)]
mod tests {
    use super::{copies, inside};

    #[test]
    fn a_side_with_a_container_is_told_from_a_path() {
        for (side, expected) in [
            ("web:/x", Some(("web", "/x"))),
            ("web:x", Some(("web", "x"))),
            ("web:", Some(("web", "."))),
            ("web:/a:b", Some(("web", "/a:b"))),
            ("./web:x", None),
            ("/web:x", None),
            ("~/web:x", None),
            ("dir/web:x", None),
            ("x", None),
            ("-", None),
        ] {
            assert_eq!(inside(side), expected, "{side}");
        }
    }

    #[test]
    fn one_side_is_inside_and_the_other_is_not() {
        let call = copies("web:/x", "./x").unwrap();
        assert_eq!((&call["operation"], &call["host_path"]), (&"copy_out".into(), &"./x".into()));
        let call = copies("./x", "web:/x").unwrap();
        assert_eq!((&call["operation"], &call["container_path"]), (&"copy_in".into(), &"/x".into()));
        assert!(copies("x", "y").unwrap_err().hint.unwrap().contains("web:/tmp/"));
        assert!(copies("a:x", "b:y").is_err());
    }
}
