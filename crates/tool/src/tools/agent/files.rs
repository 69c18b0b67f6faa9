//! Files: read, write, edit, search and find.

use coracle_workspace::{Alias, Effect, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AgentTool;
use super::inner_call::InnerCall;
use crate::failure::Failure;

/// Read a text file, with line numbers. Example: {"path": "src/main.py", "offset": 200}
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub(super) struct ReadFileTool {
    #[serde(alias = "file_path")]
    path: String,
    /// Lines to skip.
    offset: Option<u64>,
    /// Lines to read.
    #[schemars(extend("default" = 2000))]
    limit: Option<u64>,
    /// Name; else your machine.
    container: Option<String>,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum WriteMode {
    Create,
    Overwrite,
    Append,
}

/// Write a file; directories are made. To overwrite one, read it first. Example: {"path": "a.txt", "content": "hello\n"}
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub(super) struct WriteFileTool {
    #[serde(alias = "file_path")]
    path: String,
    content: String,
    #[schemars(extend("default" = "create"))]
    mode: Option<WriteMode>,
    executable: Option<bool>,
    /// Name; else your machine.
    container: Option<String>,
}

/// Replace text in a file that you have read. `old_string` has to be unique. Example: {"path": "a.py", "old_string": "x = 1",
/// "new_string": "x = 2"}
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub(super) struct EditFileTool {
    #[serde(alias = "file_path")]
    path: String,
    /// As in the file, without line numbers.
    old_string: String,
    new_string: String,
    /// Each occurrence.
    replace_all: Option<bool>,
    /// Name; else your machine.
    container: Option<String>,
}

/// Find lines in files by a regular expression. Example: {"pattern": "def \\w+", "glob": "*.py"}
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub(super) struct SearchTool {
    pattern: String,
    /// Directory or file.
    path: Option<String>,
    /// Only files of this name.
    glob: Option<String>,
    case_insensitive: Option<bool>,
    /// Lines around a match, at most 5.
    context: Option<u32>,
    /// Skip what git ignores.
    respect_gitignore: Option<bool>,
    /// Name; else your machine.
    container: Option<String>,
}

/// Find files by a glob, such as `src/**/*.ts`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub(super) struct FindFilesTool {
    pattern: String,
    /// Directory.
    path: Option<String>,
    /// Skip what git ignores.
    respect_gitignore: Option<bool>,
    /// Name; else your machine.
    container: Option<String>,
}

/// A tool that passes its fields on as they are.
macro_rules! passed_on {
    ($($tool:ident: $name:literal, $callee:ident;)*) => {$(
        impl AgentTool for $tool {
            const NAME: &'static str = $name;
            const EFFECT: Effect = <coracle_workspace::$callee as Tool>::EFFECT;
            const ALIASES: &'static [Alias] = <coracle_workspace::$callee as Tool>::ALIASES;

            fn inner_call(self) -> Result<InnerCall, Failure> {
                InnerCall::tool(<coracle_workspace::$callee as Tool>::NAME, self)
            }
        }
    )*};
}

passed_on! {
    ReadFileTool: "read_file", ReadFile;
    WriteFileTool: "write_file", WriteFile;
    EditFileTool: "edit_file", EditFile;
    SearchTool: "search", Grep;
    FindFilesTool: "find_files", Glob;
}
