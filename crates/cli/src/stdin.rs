//! Passes piped or redirected input of `exec` and `exec-background` to the command.
//!
//! For `exec` it streams with any size, and a command that reads nothing does not wait for its end. A job outlives this
//! process, so its input is read completely first.

use std::io::{self, Read};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle::OperationEntry;
use coracle_context::{Code, Context, Failure};
use coracle_types::Input;
use rustix::fs::{FileType, fstat};
use serde_json::{Map, Value};

use crate::render;

/// Maximum input of a job.
const MAX_BYTES: u64 = 4 << 20;

/// A slower writer may have nothing to write, without closing its end.
const PATIENCE: Duration = Duration::from_secs(3);

/// Passes standard input to an operation, unless an option gives its input. An interactive command gets any standard
/// input.
pub(super) async fn attach(
    entry: &OperationEntry,
    object: &mut Map<String, Value>,
    (cx, interactive): (Context, bool),
) -> Result<Context, Failure> {
    let given = object.contains_key("stdin") || object.contains_key("stdin_base64");
    if given || entry.name != "exec" {
        return read(entry, object, &cx).await.map(|()| cx);
    }
    Ok(if interactive || is_data() { cx.with_input(Input::Stream(Box::new(tokio::io::stdin()))) } else { cx })
}

async fn read(entry: &OperationEntry, object: &mut Map<String, Value>, cx: &Context) -> Result<(), Failure> {
    let given = object.contains_key("stdin") || object.contains_key("stdin_base64");
    if given || !entry.arguments().properties.contains_key("stdin_base64") || !is_data() {
        return Ok(());
    }
    let bytes = cx.unless_cancelled(read_all()).await?;
    if let Some((field, text)) = field(bytes)? {
        object.insert(field.to_owned(), text.into());
    }
    Ok(())
}

/// Whether it is a pipe or a file. Sockets are ignored: programs that start others with a socket seldom close their
/// end.
fn is_data() -> bool {
    let kind = fstat(io::stdin()).map(|it| FileType::from_raw_mode(it.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::RegularFile))
}

/// Reads at most so many bytes of standard input.
pub(super) async fn read_stdin(most: u64) -> io::Result<Vec<u8>> {
    let read = move || {
        let mut bytes = Vec::new();
        io::stdin().lock().take(most).read_to_end(&mut bytes).map(|_| bytes)
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|err| Err(io::Error::other(err)))
}

async fn read_all() -> Result<Vec<u8>, Failure> {
    let mut work = Box::pin(read_stdin(MAX_BYTES + 1));
    let read = match tokio::time::timeout(PATIENCE, &mut work).await {
        Ok(read) => read,
        Err(_) => {
            render::note("waiting for the end of standard input, which goes to the command; `< /dev/null` gives none");
            work.await
        }
    };
    read.map_err(|err| Failure::internal(format!("cannot read standard input: {err}")))
}

fn field(bytes: Vec<u8>) -> Result<Option<(&'static str, String)>, Failure> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Failure::new(
            Code::InvalidInput,
            "standard input is larger than 4 MiB, so the command was not run",
        )
        .detail("field", "stdin")
        .hint("`copy_in` the data, and have the command read the file"));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) if text.is_empty() => None,
        Ok(text) => Some(("stdin", text)),
        Err(bytes) => Some(("stdin_base64", STANDARD.encode(bytes.as_bytes()))),
    })
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, field};

    #[test]
    fn text_goes_as_text_and_bytes_as_base64() {
        assert_eq!(field(b"hi\n".to_vec()).unwrap(), Some(("stdin", "hi\n".into())));
        assert_eq!(field(b"\xff\0".to_vec()).unwrap(), Some(("stdin_base64", "/wA=".into())));
        assert_eq!(field(Vec::new()).unwrap(), None);
    }

    #[test]
    fn too_much_is_refused() {
        let most = usize::try_from(MAX_BYTES).unwrap();
        assert!(field(vec![b'x'; most]).is_ok());
        assert_eq!(field(vec![b'x'; most + 1]).unwrap_err().code.word(), "invalid_input");
    }
}
