//! `coracle copy-out … -`, which writes a file to standard output.

use std::fs::File;
use std::io::{self, Read as _};
use std::process::ExitCode;

use coracle_context::document::shell_word;
use coracle_context::{Code, Failure};
use coracle_prepare::Process;
use serde_json::{Map, Value};

use super::exit;
use super::operation_call::OperationCall;
use super::output::Present;
use super::stdio::{STDOUT, write_stdout};
use crate::render;

/// Whether a copy goes to standard output.
pub(super) fn is_stdout(object: &Map<String, Value>) -> bool {
    object.get("host_path").is_some_and(|it| it == STDOUT)
}

/// Copies to a temporary file first, because the result of a copy is known only at its end.
pub(super) async fn to_stdout(call: &OperationCall, process: &Process, mut present: Present) -> ExitCode {
    let request = Value::Object(call.object.clone());
    if call.flags.contains(&"json") {
        let failure = Failure::new(Code::ConflictingFields, "`-` and `--json` both write to standard output")
            .hint("name a file to copy to");
        return exit::finish(&failure.answer(Some(call.entry.name)));
    }
    let fails = |present: Present, failure: &Failure| present.fail(&call.entry, &failure.answer(None));
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
    let reply = copying.answer(process, Some(&mut present)).await;
    if reply.response.is_none() {
        return present.fail(&call.entry, &reply.json);
    }
    match File::open(&file).ok().filter(|it| it.metadata().is_ok_and(|it| it.is_file())) {
        None => fails(present, &no_file(&request)),
        Some(mut file) => {
            present.clear();
            render::warnings(&reply.json);
            match copy(&mut file) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => exit::unread(),
                Err(err) => fails(present, &Failure::internal(format!("cannot read the copy: {err}"))),
            }
        }
    }
}

/// Copies a file to standard output. Returns whether all of it was written.
fn copy(file: &mut File) -> io::Result<bool> {
    let mut part = vec![0; 1 << 20];
    loop {
        let length = file.read(&mut part)?;
        if length == 0 {
            return Ok(true);
        }
        if write_stdout(&part[..length]).is_err() {
            return Ok(false);
        }
    }
}

fn no_file(request: &Value) -> Failure {
    let path = request["container_path"].as_str().unwrap_or_default();
    let message = format!("`{}` is no file, and only one file can be written to standard output", path.escape_debug());
    let container = request["container"].as_str().unwrap_or_default();
    let line = format!("coracle exec {} -- tar -c {}", shell_word(container), shell_word(path));
    Failure::new(Code::InvalidInput, message).hint(format!("copy it to a directory, or pack it: `{line}`"))
}
