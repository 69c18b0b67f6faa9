//! `coracle cp`, which copies in both directions.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use coracle::operations;
use coracle_context::{Code, Failure, Host, Options};
use serde_json::{Map, Value, json};

use super::exit;
use super::operation_call::{OperationCall, allow, flags};

/// Its name.
pub(super) const CP: &str = "cp";

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
        Err(failure) if matches.get_flag("json") => return exit::finish(&failure.answer(Some(CP))),
        Err(failure) => {
            exit::failed(&failure);
            return ExitCode::from(exit::NOT_UNDERSTOOD);
        }
    };
    if matches.get_flag("keep") {
        object.insert("overwrite".into(), false.into());
    }
    let named = |name: &str| object.get("operation").is_some_and(|it| it == name);
    let Some(entry) = operations::ALL.iter().find(|it| named(it.name)) else {
        return ExitCode::from(exit::NOT_UNDERSTOOD);
    };
    let call = OperationCall { table: operations::ALL, entry: *entry, object, flags: flags(matches) };
    Box::pin(call.run(host, options)).await
}

/// The call for two arguments.
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

/// Parses `CONTAINER:PATH`. A text that begins like a path of the host is one, regardless of its content.
fn inside(side: &str) -> Option<(&str, &str)> {
    if side.starts_with(['/', '.', '~']) {
        return None;
    }
    let (container, path) = side.split_once(':').filter(|(container, _)| !container.contains('/'))?;
    Some((container, if path.is_empty() { "." } else { path }))
}

#[cfg(test)]
mod tests {
    use super::{copies, inside};

    #[test]
    fn a_side_with_a_container_is_distinguished_from_a_path() {
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
        assert!(copies("x", "y").unwrap_err().into_inner().hint.unwrap().contains("web:/tmp/"));
        assert!(copies("a:x", "b:y").is_err());
    }
}
