//! Answers of session tools in the toolset `agent`, whose own texts say some things twice.

use coracle_context::failure;
use coracle_context::model_text::{CommandText, push_line};
use coracle_workspace::{
    EditFile, EvaluatePython, EvaluationResult, Glob, Grep, Ls, ReadFile, Response, Rm, RunOutput, Shell, Snapshot,
    Tool, WriteFile,
};

/// A session tool with a text for the toolset `agent`.
pub(super) trait Brief: Tool {
    /// The text of an answer with a value; nothing where the tool's own text serves.
    fn brief(_response: &Response<Self::Value>, _value: &Self::Value) -> Option<String> {
        None
    }
}

impl Brief for Glob {}
impl Brief for Grep {}
impl Brief for Ls {}
impl Brief for Rm {}
impl Brief for Shell {}
impl Brief for Snapshot {}

impl Brief for ReadFile {
    /// Numbered lines, and which these are unless they are all.
    fn brief(_: &Response<Self::Value>, file: &Self::Value) -> Option<String> {
        let mut text = file.content.clone();
        let all = file.total_lines.unwrap_or_default();
        if file.limit < all {
            push_line(&mut text, &format!("[lines {}-{} of {all}]", file.offset + 1, file.offset + file.limit));
        }
        Some(if text.is_empty() { "[the file is empty]".to_owned() } else { text })
    }
}

impl Brief for WriteFile {
    fn brief(response: &Response<Self::Value>, _: &Self::Value) -> Option<String> {
        Some(response.message.clone())
    }
}

impl Brief for EditFile {
    fn brief(response: &Response<Self::Value>, _: &Self::Value) -> Option<String> {
        Some(response.message.clone())
    }
}

impl Brief for EvaluatePython {
    fn brief(response: &Response<Self::Value>, run: &Self::Value) -> Option<String> {
        Some(python(run, &response.message))
    }
}

/// The text of a session tool's answer in the toolset `agent`.
pub(super) fn text<T: Brief>(response: &Response<T::Value>, own: &str) -> String {
    let mut text = match (&response.value, &response.failure) {
        (None, Some(failed)) => {
            let code = failed.code.word();
            let hint = hint(&code).or(failed.hint.as_deref()).or_else(|| failure::tool_hint(&code));
            return [own].into_iter().chain(hint).collect::<Vec<_>>().join("\n");
        }
        (Some(value), _) => match T::brief(response, value) {
            Some(text) => text,
            None => return own.to_owned(),
        },
        (None, None) => return own.to_owned(),
    };
    for warning in &response.warnings {
        push_line(&mut text, &format!("[warning: {}]", warning.message));
    }
    text
}

/// What to do next, in the words of this toolset.
fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "path_escape" => "file tools stay beneath the work directory; `shell` reaches the other files",
        "file_not_found" | "path_not_found" | "directory_not_found" | "nothing_matched" => "look with `find_files`",
        "is_a_directory" => "list it with `find_files`",
        "disk_full" => "remove what is not needed",
        "out_of_memory" => "do less at once, or `create` a container with more `memory_limit`",
        _ => return None,
    })
}

/// What code printed, what it showed, which files it wrote, and what it raised.
fn python(run: &EvaluationResult, message: &str) -> String {
    let mut stdout = both_ends(&run.stdout, run.stdout_tail.as_deref());
    let outputs = run.outputs.iter().filter_map(output);
    let files = run.files.iter().map(|file| format!("[wrote {}, {} bytes]", file.path, file.bytes));
    let lost = run.kernel.iter().filter_map(|kernel| kernel.lost.as_ref());
    let lost = lost.map(|why| format!("[the interpreter is gone ({why}): its variables are lost]"));
    for part in outputs.chain(files).chain(lost) {
        push_line(&mut stdout, &part);
    }
    let mut stderr = both_ends(&run.stderr, run.stderr_tail.as_deref());
    // The end of standard error has it, unless it is long or more was printed after it.
    if let Some(raised) = message.strip_prefix(RAISED).map(|text| text.trim_end_matches('.'))
        && !stderr.contains(raised)
    {
        push_line(&mut stderr, &raised.chars().take(MAX_RAISED).collect::<String>());
    }
    CommandText {
        stdout,
        stderr: &stderr,
        exit_code: Some(run.exit_code),
        timed_out: run.timed_out,
        duration_ms: run.duration_ms,
        ..CommandText::default()
    }
    .render()
}

/// A text that the code showed. Of an image, which is returned in addition to the text, its size.
fn output(output: &RunOutput) -> Option<String> {
    match output.r#type.as_str() {
        "text/plain" | "text/markdown" | "text/latex" => output.text.clone(),
        // Its text is shown.
        "table" | "text/html" => None,
        other => {
            let of_data = || output.data.as_ref().map(|data| super::images::size_of_base64(data));
            let bytes = output.bytes.or_else(of_data).unwrap_or_default();
            Some(format!("[{other}, {bytes} bytes]"))
        }
    }
}

/// The text before an exception in the message of a run.
const RAISED: &str = "Evaluation failed: ";

/// Characters of an exception.
const MAX_RAISED: usize = 500;

/// An end of fewer characters is all that the beginning lacks: 4 KiB of it are retained, and a character has at most
/// four bytes.
const WHOLE: usize = 1024;

/// A stream of a run, of which the middle may be missing. Nothing keeps it.
fn both_ends(start: &str, end: Option<&str>) -> String {
    let end = end.unwrap_or_default();
    let head = start.strip_suffix("...");
    match (end.chars().count(), head) {
        (0, _) => start.to_owned(),
        (1..WHOLE, Some(head)) => format!("{head}{end}"),
        _ => format!("{}\n[… cut; the rest is not stored …]\n{end}", head.unwrap_or(start)),
    }
}

#[cfg(test)]
mod tests {
    use coracle_workspace::RunFile;

    use super::*;

    fn run(exit_code: u8) -> EvaluationResult {
        EvaluationResult { exit_code, ..EvaluationResult::default() }
    }

    #[test]
    fn code_shows_its_last_expression_its_images_and_the_files_that_it_wrote() {
        let output = |kind: &str, text: Option<&str>, bytes| RunOutput {
            r#type: kind.into(),
            text: text.map(str::to_owned),
            bytes,
            ..RunOutput::default()
        };
        let shown = EvaluationResult {
            stdout: "hi\n".into(),
            outputs: vec![
                output("text/plain", Some("   a\n0  1"), None),
                output("table", None, None),
                output("image/png", None, Some(2100)),
            ],
            files: vec![RunFile { path: "a.csv".into(), bytes: 12 }],
            ..run(0)
        };
        assert_eq!(python(&shown, ""), "hi\n   a\n0  1\n[image/png, 2100 bytes]\n[wrote a.csv, 12 bytes]");
        assert_eq!(python(&run(0), ""), "[exit 0]");
    }

    #[test]
    fn code_that_prints_much_shows_both_ends_and_what_it_raised() {
        let text = |end: &str, message: &str| {
            let stderr = format!("Traceback{}...", "x".repeat(4084));
            python(&EvaluationResult { stderr, stderr_tail: Some(end.into()), ..run(1) }, message)
        };
        let failed = "Evaluation failed: ValueError: x.";
        let cut = text(&format!("{}\nValueError: x\n", "y".repeat(2034)), failed);
        assert!(cut.starts_with("Traceback") && cut.contains("x\n[… cut; the rest is not stored …]\ny"), "{cut}");
        assert!(cut.ends_with("y\nValueError: x\n[exit 1]"), "{cut}");
        let whole = text("y\nValueError: x\n", failed);
        assert!(whole.ends_with("xxy\nValueError: x\n[exit 1]"), "{whole}");
        let hidden = text(&"y".repeat(2048), failed);
        assert!(hidden.ends_with("yy\nValueError: x\n[exit 1]"), "{hidden}");
        let exited = text(&"y".repeat(2048), "Evaluation failed (exit code 1).");
        assert!(exited.ends_with("yy\n[exit 1]"), "{exited}");
    }
}
