//! The reply of a kernel about a run. It comes from inside, so it is validated before it is passed on.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Things that a run shows.
const MAX_OUTPUTS: usize = 32;

/// Bytes of a text and of an image.
const MAX_TEXT: usize = 128 << 10;
const MAX_IMAGE: usize = 3 << 20;

/// Rows, columns and files in an answer.
const MAX_ROWS: usize = 100;
const MAX_COLUMNS: usize = 50;
const MAX_FILES: usize = 50;

/// A reply of the driver.
#[derive(Debug, Deserialize)]
pub(super) struct DriverReply {
    /// The version of the interpreter, once, when it is ready.
    pub(super) ready: Option<String>,
    pub(super) run: Option<u64>,
    error: Option<RunError>,
    value: Option<String>,
    #[serde(default)]
    outputs: Vec<RunOutput>,
    #[serde(default)]
    files: Vec<RunFile>,
    #[serde(default)]
    files_omitted: u64,
}

/// What a run raised.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct RunError {
    /// The class.
    pub(crate) name: String,
    /// Its text.
    pub(crate) message: String,
}

/// What a run shows beside what it prints: a text, an image or a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunOutput {
    /// `text/plain`, `text/html`, `text/markdown`, `text/latex`, `image/png`, `image/jpeg`, `image/svg+xml` or `table`.
    pub r#type: String,
    /// A text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// An image as base64. Over MCP it is content of its own instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Its size there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The names of a table's columns, at most 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Its rows, at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<Vec<Value>>>,
    /// The labels of its rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<Vec<Value>>,
    /// All rows that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_count: Option<u64>,
}

/// A file that a run wrote in its working directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// Its path there.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

/// A run as the kernel tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KernelReply {
    pub(crate) error: Option<RunError>,
    /// The value of the last expression.
    pub(crate) value: Option<String>,
    pub(crate) outputs: Vec<RunOutput>,
    pub(crate) files: Vec<RunFile>,
    pub(crate) files_omitted: u64,
}

impl DriverReply {
    /// Reads a reply; `None` for what is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(super) fn into_run(mut self) -> KernelReply {
        self.outputs.truncate(MAX_OUTPUTS);
        let outputs = self.outputs.into_iter().filter_map(RunOutput::checked).collect();
        let fits = |it: &RunFile| it.path.len() <= 4096;
        let files = self.files.into_iter().filter(fits).take(MAX_FILES).collect();
        let error = self.error.map(|it| RunError { name: shortened(it.name), message: shortened(it.message) });
        let value = self.value.map(shortened);
        KernelReply { error, value, outputs, files, files_omitted: self.files_omitted }
    }
}

impl RunOutput {
    fn checked(self) -> Option<Self> {
        let Self { r#type, text, data, bytes: _, columns, rows, index, row_count } = self;
        let plain = Self { r#type, ..Self::default() };
        match plain.r#type.as_str() {
            "text/plain" | "text/html" | "text/markdown" | "text/latex" => {
                Some(Self { text: Some(shortened(text?)), ..plain })
            }
            // Half a drawing is none.
            "image/svg+xml" => Some(Self { text: Some(text.filter(|it| it.len() <= MAX_TEXT)?), ..plain }),
            "image/png" | "image/jpeg" => {
                let is_image = |it: &String| STANDARD.decode(it).is_ok_and(|it| it.len() <= MAX_IMAGE);
                Some(Self { data: Some(data.filter(is_image)?), ..plain })
            }
            "table" => {
                let columns: Vec<String> = columns?.into_iter().take(MAX_COLUMNS).map(shortened).collect();
                let row = |it: Vec<Value>| it.into_iter().take(MAX_COLUMNS).collect();
                let rows = rows?.into_iter().take(MAX_ROWS).map(row).collect();
                let index = index.map(|it| it.into_iter().take(MAX_ROWS).collect());
                Some(Self { columns: Some(columns), rows: Some(rows), index, row_count, ..plain })
            }
            _ => None,
        }
    }

    /// As a model reads it. An image stands beside the text.
    pub(crate) fn render(&self) -> Option<String> {
        match self.r#type.as_str() {
            "text/plain" | "text/markdown" | "text/latex" => self.text.clone(),
            "image/png" | "image/jpeg" | "image/svg+xml" => Some(format!("[{}]", self.r#type)),
            _ => None,
        }
    }
}

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DriverReply, MAX_IMAGE, RunOutput};

    fn outputs(given: &Value) -> Vec<RunOutput> {
        let reply =
            json!({ "run": 1, "error": null, "value": null, "outputs": given, "files": [], "files_omitted": 0 });
        DriverReply::parse(reply.to_string().as_bytes()).unwrap().into_run().outputs
    }

    #[test]
    fn what_is_shown_is_of_a_known_kind_and_within_its_limits() {
        let shown = outputs(&json!([
            { "type": "text/plain", "text": "1", "data": "dropped" },
            { "type": "image/png", "data": "iVBORw==" },
            { "type": "image/png", "data": "not base64" },
            { "type": "image/png" },
            { "type": "text/javascript", "text": "alert(1)" },
            { "type": "text/markdown", "text": "# a" },
            { "type": "table", "columns": ["a"], "rows": [[1]], "index": [0], "row_count": 1 },
        ]));
        let kinds: Vec<&str> = shown.iter().map(|it| it.r#type.as_str()).collect();
        assert_eq!(kinds, ["text/plain", "image/png", "text/markdown", "table"]);
        assert_eq!((shown[0].data.as_ref(), shown[1].data.as_deref()), (None, Some("iVBORw==")));
        let large = outputs(&json!([{ "type": "image/png", "data": "AAAA".repeat(MAX_IMAGE / 3 + 1) }]));
        assert_eq!(large, []);
        let many = vec![json!({ "type": "text/plain", "text": "x" }); 100];
        assert_eq!(outputs(&many.into()).len(), 32);
        let long = outputs(&json!([{ "type": "text/plain", "text": "ä".repeat(100_000) }]));
        assert!(long[0].text.as_ref().unwrap().len() <= 128 << 10);
    }

    #[test]
    fn no_other_bytes_are_a_reply() {
        for bytes in [&b""[..], b"{", b"[]", b"{\"run\": -1}", b"\xff"] {
            assert!(DriverReply::parse(bytes).is_none(), "{bytes:?}");
        }
    }
}
