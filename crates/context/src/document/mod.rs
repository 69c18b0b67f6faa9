//! A response for a user: lines, facts and tables, before a front end adds widths, colours and symbols.
//!
//! **Invariant:** a text contains no control character except line feed and tab: output of a container or an engine
//! cannot control the reader's terminal.

mod reports;
mod table;
mod text;

use std::any::Any;

use jiff::Timestamp;

use crate::model_text::push_line;

pub use self::table::{Column, DocumentTable};
pub use self::text::{Span, Style, StyledText, Symbol};
pub use self::text::{joined, optional, word};
pub use coracle_runtime::shell_word;
pub use coracle_types::{is_deceptive, sanitize};

/// A response that a user can read. Our own code gets its type back through [`Any`].
pub trait Render: Any {
    /// Renders the document at that time.
    fn render(&self, now: Timestamp) -> Document;

    /// Renders the text for a model in the toolset `agent`: the output unchanged, then notes in brackets.
    fn render_for_model(&self) -> String {
        let text = self.render(Timestamp::now()).for_model();
        if text.trim().is_empty() { "[done]".to_owned() } else { text }
    }
}

/// The text of one response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// The answer, from the top.
    pub blocks: Vec<Block>,
    /// Notes for standard error.
    pub notes: Vec<StyledText>,
    /// The output of a program, which is written unchanged.
    pub output: Option<ProgramOutput>,
    /// Where the duration of the call is shown.
    pub duration: DurationPlace,
    /// The exit code of the command line.
    pub exit_code: u8,
    /// Whether a step of the provisioning report failed.
    pub is_incomplete: bool,
}

/// A part of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A line.
    Line(StyledText),
    /// Names and values in two columns. Facts without a value are left out.
    Facts(Vec<(&'static str, StyledText)>),
    /// Rows in columns.
    Table(DocumentTable),
    /// A step of a provisioning report, left out if it was shown while the call ran.
    Step {
        /// Its name in the report.
        name: String,
        /// The step, then its items.
        lines: Vec<StyledText>,
    },
}

/// The output of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramOutput {
    /// A command's streams, left out if they were shown while it ran.
    Command {
        /// Its standard output.
        stdout: Vec<u8>,
        /// Its standard error.
        stderr: Vec<u8>,
        /// Its exit code, if it has ended.
        exit_code: Option<u8>,
    },
    /// A patch. A pipe gets it unchanged; for a terminal it is escaped.
    Patch(String),
    /// Retained output of a job. Notes begin on a new line behind it.
    Job(Vec<u8>),
}

/// Where the duration of the call is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DurationPlace {
    /// Nowhere.
    #[default]
    None,
    /// At the end of the first line.
    FirstLine,
    /// At the end of the last line.
    LastLine,
}

impl Document {
    /// One line.
    #[must_use]
    pub fn line(line: impl Into<StyledText>) -> Self {
        Self::default().then(line)
    }

    /// A document with only a table.
    #[must_use]
    pub fn table(columns: &[Column], rows: Vec<Vec<StyledText>>) -> Self {
        let table = DocumentTable { columns: columns.to_vec(), rows };
        Self { blocks: vec![Block::Table(table)], ..Self::default() }
    }

    /// A table of items, or a line if there are none.
    #[must_use]
    pub fn rows<T>(columns: &[Column], items: &[T], row: impl Fn(&T) -> Vec<StyledText>, none: &str) -> Self {
        if items.is_empty() { Self::line(none) } else { Self::table(columns, items.iter().map(row).collect()) }
    }

    /// A document with only notes for standard error.
    #[must_use]
    pub fn of_output(output: ProgramOutput) -> Self {
        Self { output: Some(output), ..Self::default() }
    }

    /// Adds a line.
    #[must_use]
    pub fn then(self, line: impl Into<StyledText>) -> Self {
        self.and_lines([line.into()])
    }

    /// Adds lines.
    #[must_use]
    pub fn and_lines(mut self, lines: impl IntoIterator<Item = StyledText>) -> Self {
        self.blocks.extend(lines.into_iter().map(Block::Line));
        self
    }

    /// Adds facts below.
    #[must_use]
    pub fn facts<const N: usize>(mut self, facts: [(&'static str, StyledText); N]) -> Self {
        self.blocks.push(Block::Facts(facts.into()));
        self
    }

    /// Adds a note for standard error.
    #[must_use]
    pub fn note(mut self, note: impl Into<StyledText>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Shows the duration of the call at the end of the first line.
    #[must_use]
    pub fn timed(self) -> Self {
        Self { duration: DurationPlace::FirstLine, ..self }
    }

    /// Returns everything as one text for a model.
    pub fn for_model(&self) -> String {
        let mut text = match &self.output {
            Some(ProgramOutput::Job(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            Some(ProgramOutput::Patch(text)) => text.clone(),
            Some(ProgramOutput::Command { stdout, .. }) => String::from_utf8_lossy(stdout).into_owned(),
            None => String::new(),
        };
        push_line(&mut text, &self.to_string());
        for note in &self.notes {
            // Notes name options of the command line, and models use fields.
            push_line(&mut text, &format!("[{note}]").replace("`--offset`", "`offset`"));
        }
        text
    }

    /// Shows the duration of the call at the end of the last line.
    #[must_use]
    pub fn timed_at_the_end(self) -> Self {
        Self { duration: DurationPlace::LastLine, ..self }
    }
}

/// The text as written to a pipe, with the symbols of a terminal.
impl std::fmt::Display for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines = self.blocks.iter().flat_map(Block::plain_lines).collect::<Vec<_>>();
        f.write_str(&lines.join("\n"))
    }
}

impl Block {
    fn plain_lines(&self) -> Vec<String> {
        match self {
            Self::Line(line) => vec![line.to_string()],
            Self::Step { lines, .. } => lines.iter().map(ToString::to_string).collect(),
            Self::Facts(facts) => {
                let facts: Vec<_> = facts.iter().filter(|it| !it.1.is_empty()).collect();
                let width = facts.iter().map(|it| it.0.len()).max().unwrap_or(0);
                facts.iter().map(|(name, value)| format!("  {name:<width$}  {value}")).collect()
            }
            Self::Table(table) => table.plain_lines(),
        }
    }
}

/// Renders a document at a fixed time, for tests.
#[cfg(any(test, feature = "testing"))]
#[expect(clippy::unwrap_used, reason = "only tests call it")]
pub fn rendered(response: &impl Render, now: &str) -> String {
    response.render(now.parse().unwrap()).to_string()
}

/// Operations in tests answer with plain values.
#[cfg(any(test, feature = "testing"))]
impl Render for serde_json::Value {
    fn render(&self, _: Timestamp) -> Document {
        Document::line(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::{Document, ProgramOutput};

    #[test]
    fn notes_for_a_model_name_fields_and_not_options() {
        let page = Document::of_output(ProgramOutput::Job(b"hi".to_vec())).note("go on with `--offset` 99");
        assert_eq!(page.for_model(), "hi\n[go on with `offset` 99]");
    }
}
