//! The exit code of a command as a line at the end of its error output.
//!
//! A node reports the end of a command only when every process that has its outputs open has ended, including
//! background processes.

use coracle_host::drain::ProgramPipe;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::sync::oneshot;

/// Runs the arguments after the mark `$1`, and prints the mark and their exit code.
pub(super) const REPORT_EXIT: &str =
    r#"mark=$1; shift; "$@"; code=$?; printf '\n%s %s\n' "$mark" "$code" >&2; exit "$code""#;

/// Size of a read, and of the buffer.
const PART: usize = 64 << 10;

/// Maximum length of an exit code with its line feed.
const MAX_CODE: usize = 4;

/// Removes that line from the error output, and returns its exit code as soon as the line arrives.
pub(super) fn without_exit_line(mut pipe: ProgramPipe, mark: &str) -> (ProgramPipe, oneshot::Receiver<i32>) {
    let mut filter = ExitLineFilter { start: format!("\n{mark} ").into_bytes(), held: Vec::new() };
    let (mut into, output) = duplex(PART);
    let (sender, code) = oneshot::channel();
    tokio::spawn(async move {
        let (mut sender, mut part) = (Some(sender), vec![0; PART]);
        while let Ok(count @ 1..) = pipe.read(&mut part).await {
            let passed = match &sender {
                Some(_) => filter.pass(&part[..count]),
                None => FilteredOutput { bytes: part[..count].to_vec(), code: None },
            };
            if let Some(code) = passed.code
                && let Some(sender) = sender.take()
            {
                let _ = sender.send(code);
            }
            if into.write_all(&passed.bytes).await.is_err() {
                return;
            }
        }
        let _ = into.write_all(&filter.held).await;
    });
    (Box::new(output), code)
}

struct FilteredOutput {
    bytes: Vec<u8>,
    code: Option<i32>,
}

/// Holds back only bytes that may be part of the line.
struct ExitLineFilter {
    start: Vec<u8>,
    held: Vec<u8>,
}

impl ExitLineFilter {
    fn pass(&mut self, bytes: &[u8]) -> FilteredOutput {
        self.held.extend_from_slice(bytes);
        let begins = |at: usize| self.start.iter().zip(&self.held[at..]).all(|(a, b)| a == b);
        let Some(at) = (0..self.held.len()).find(|at| self.held[*at] == b'\n' && begins(*at)) else {
            return FilteredOutput { bytes: std::mem::take(&mut self.held), code: None };
        };
        let rest = self.held.get(at + self.start.len()..).unwrap_or_default();
        let end = rest.iter().take(MAX_CODE).position(|it| *it == b'\n');
        let code = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok()?.parse().ok());
        let behind = end.map(|end| at + self.start.len() + end + 1);
        if end.is_none() && rest.len() < MAX_CODE {
            return FilteredOutput { bytes: self.held.drain(..at).collect(), code: None };
        }
        let mut bytes = std::mem::take(&mut self.held);
        if let (Some(_), Some(behind)) = (code, behind) {
            bytes.drain(at..behind);
        }
        FilteredOutput { bytes, code }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_wherever_it_is_split() {
        let text = b"a\n\nmar\n\nmark 42\nlate";
        for size in 1..=text.len() {
            let mut filter = ExitLineFilter { start: b"\nmark ".to_vec(), held: Vec::new() };
            let (mut bytes, mut code) = (Vec::new(), None);
            for part in text.chunks(size) {
                if code.is_some() {
                    bytes.extend_from_slice(part);
                    continue;
                }
                let passed = filter.pass(part);
                bytes.extend(passed.bytes);
                code = passed.code;
            }
            assert_eq!((code, bytes.as_slice()), (Some(42), &b"a\n\nmar\nlate"[..]), "{size}");
        }
    }

    #[test]
    fn output_that_cannot_be_the_line_is_forwarded_at_once() {
        let mut filter = ExitLineFilter { start: b"\nmark ".to_vec(), held: Vec::new() };
        assert_eq!(filter.pass(b"prompt$ ").bytes, b"prompt$ ");
        assert_eq!(filter.pass(b"x\nmar").bytes, b"x");
        assert_eq!(filter.pass(b"ble\n").bytes, b"\nmarble");
    }

    #[test]
    fn a_line_without_a_code_is_output() {
        let mut filter = ExitLineFilter { start: b"\nmark ".to_vec(), held: Vec::new() };
        assert_eq!(filter.pass(b"\nmark long").bytes, b"\nmark long");
        assert_eq!(filter.pass(b"\nmark x\n").bytes, b"\nmark x\n");
    }

    #[tokio::test]
    async fn bytes_that_are_held_back_at_the_end_are_output() {
        let (mut output, code) = without_exit_line(Box::new(&b"x\nmark"[..]), "mark");
        let mut text = String::new();
        output.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "x\nmark");
        assert!(code.await.is_err());
    }
}
