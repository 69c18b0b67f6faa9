//! `coracle workspace write-file FILE -`: reads the content from standard input.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ArgMatches;
use coracle::OperationEntry;
use coracle_context::{Context, Failure};
use coracle_workspace::{Tool as _, WriteFile};
use serde_json::{Map, Value};

use super::operation_args::as_word;
use super::stdin::read_stdin;
use crate::render;

/// The limit of the tool. One byte more is read, so that it refuses larger input.
const MAX_BYTES: usize = 32 << 20;

/// The field.
const CONTENT: &str = "content";

/// Replaces a content of `-` as a positional argument by standard input; `--content -` is a dash.
pub(super) async fn from_stdin(
    cx: &Context,
    entry: &OperationEntry,
    matches: &ArgMatches,
    arguments: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let word = |id: &str| matches.try_get_one::<String>(id).ok().flatten().is_some_and(|it| it == "-");
    if entry.name != WriteFile::NAME || !word(&as_word(CONTENT)) || matches.contains_id(CONTENT) {
        return Ok(());
    }
    if cx.host.stdin_is_terminal {
        render::note("reading the content from standard input, to its end (Ctrl-D)");
    }
    let bytes = cx.unless_cancelled(async { Ok(read_stdin(MAX_BYTES as u64 + 1).await) }).await?;
    let bytes = bytes.map_err(|err| Failure::internal(format!("cannot read standard input: {err}")))?;
    let text = arguments.get("encoding").is_none_or(|it| it == "utf-8");
    let (content, encoded) = content(bytes, text)?;
    arguments.insert(CONTENT.to_owned(), content.into());
    if encoded {
        arguments.insert("encoding".to_owned(), "base64".into());
    }
    Ok(())
}

/// The bytes in the form of the field; non-text as base64. With `--encoding base64`, the input itself is base64.
fn content(bytes: Vec<u8>, text: bool) -> Result<(String, bool), Failure> {
    match String::from_utf8(bytes) {
        Ok(content) => Ok((content, false)),
        Err(bytes) if text => Ok((STANDARD.encode(bytes.as_bytes()), true)),
        Err(_) => Err(Failure::invalid("encoding", "standard input is no base64")),
    }
}

#[cfg(test)]
mod tests {
    use super::content;

    #[test]
    fn text_goes_as_it_is_and_bytes_as_base64() {
        assert_eq!(content(b"hi\n".to_vec(), true).unwrap(), ("hi\n".to_owned(), false));
        assert_eq!(content(b"\xff".to_vec(), true).unwrap(), ("/w==".to_owned(), true));
        assert!(content(b"\xff".to_vec(), false).is_err());
    }
}
