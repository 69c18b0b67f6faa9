//! A command on a separate terminal, which a test types into and reads from.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::shell_line;
use crate::engines::engine_program;
use crate::tool::Tool;

/// Time limit for expected output.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program on a terminal.
pub(super) struct Typing {
    child: Child,
    keys: ChildStdin,
    output: ChildStdout,
    shown: Vec<u8>,
    /// The end of the part that was checked.
    seen: usize,
    device: tempfile::TempDir,
}

impl Typing {
    /// Starts a command line on a terminal of 90 by 30.
    pub(super) fn start(tool: &Tool<'_>, words: &[&str]) -> Self {
        let device = tempfile::tempdir().unwrap();
        let name = device.path().join("tty");
        let line = format!("tty >'{}'; stty cols 90 rows 30; {}", name.display(), shell_line(tool, words));
        let mut script = engine_program("script");
        script.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]).kill_on_drop(true);
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, keys, output, shown: Vec::new(), seen: 0, device }
    }

    /// Types keys.
    pub(super) async fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
        self.keys.flush().await.unwrap();
    }

    /// Waits until a text is shown, behind all that was waited for before.
    pub(super) async fn until(&mut self, text: &str) {
        let begun = Instant::now();
        loop {
            let new = &self.shown[self.seen..];
            if let Some(at) = new.windows(text.len()).position(|it| it == text.as_bytes()) {
                self.seen += at + text.len();
                return;
            }
            let mut piece = [0; 4096];
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let read = timeout(left, self.output.read(&mut piece)).await;
            match read {
                Ok(Ok(count)) if count > 0 => self.shown.extend(&piece[..count]),
                other => panic!("no `{text}` ({other:?}) in:\n{}", String::from_utf8_lossy(&self.shown)),
            }
        }
    }

    /// Resizes the terminal.
    pub(super) async fn resize(&mut self, columns: u16, rows: u16) {
        let device = std::fs::read_to_string(self.device.path().join("tty")).unwrap();
        let size = [columns.to_string(), rows.to_string()];
        let mut stty = engine_program("stty");
        stty.args(["-F", device.trim(), "cols", &size[0], "rows", &size[1]]);
        assert!(stty.status().await.unwrap().success());
    }

    /// Its exit code, and all that was shown.
    pub(super) async fn end(mut self) -> (Option<i32>, String) {
        let mut rest = Vec::new();
        timeout(PATIENCE, self.output.read_to_end(&mut rest)).await.expect("it ends").unwrap();
        self.shown.extend(rest);
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap();
        (status.code(), String::from_utf8_lossy(&self.shown).into_owned())
    }
}
