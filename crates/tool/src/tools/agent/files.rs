//! Files: read, write, edit, search and find.

use coracle_context::arg_types::Name;
use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_types::Handle;
use coracle_workspace::{Alias, Effect, OpenMode, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::AgentTool;
use super::inner_call::InnerCall;

/// Read a text file, with line numbers. Example: {"path": "src/main.py", "offset": 200}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ReadFileTool {
    #[serde(alias = "file_path")]
    path: String,
    /// Lines to skip.
    #[schemars(with = "Option<u64>")]
    offset: Option<i64>,
    /// Lines to read.
    #[schemars(with = "Option<u64>", extend("default" = 2000))]
    limit: Option<i64>,
    /// Name; else your machine.
    #[schemars(with = "Option<Name>")]
    container: Option<Handle>,
}

/// Write a file; directories are made. To overwrite one, read it first. Example: {"path": "a.txt", "content": "hello\n"}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct WriteFileTool {
    #[serde(alias = "file_path")]
    path: String,
    content: String,
    /// How a file is written.
    #[schemars(with = "Option<String>", extend("default" = "create", "enum" = ["create", "overwrite", "append"]))]
    mode: Option<OpenMode>,
    executable: Option<bool>,
    /// Name; else your machine.
    #[schemars(with = "Option<Name>")]
    container: Option<Handle>,
}

/// Replace text in a file that you have read. `old_string` has to be unique. Example: {"path": "a.py", "old_string": "x = 1",
/// "new_string": "x = 2"}
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct EditFileTool {
    #[serde(alias = "file_path")]
    path: String,
    /// As in the file, without line numbers.
    old_string: String,
    new_string: String,
    /// Each occurrence.
    replace_all: Option<bool>,
    /// Name; else your machine.
    #[schemars(with = "Option<Name>")]
    container: Option<Handle>,
}

/// Find lines in files by a regular expression. Example: {"pattern": "def \\w+", "glob": "*.py"}
#[derive(Debug, Deserialize, JsonSchema)]
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
    #[schemars(with = "Option<Name>")]
    container: Option<Handle>,
}

/// Find files by a glob, such as `src/**/*.ts`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct FindFilesTool {
    pattern: String,
    /// Directory.
    path: Option<String>,
    /// Skip what git ignores.
    respect_gitignore: Option<bool>,
    /// Name; else your machine.
    #[schemars(with = "Option<Name>")]
    container: Option<Handle>,
}

/// A tool whose fields are those of a session tool.
macro_rules! session_tools {
    ($($tool:ident: $name:literal, $callee:ident { $($field:ident),* $(; $rest:ident)? };)*) => {$(
        impl AgentTool for $tool {
            const NAME: &'static str = $name;
            const EFFECT: Effect = <coracle_workspace::$callee as Tool>::EFFECT;
            const ALIASES: &'static [Alias] = <coracle_workspace::$callee as Tool>::ALIASES;

            fn inner_call(self, process: &Process, args: Map<String, Value>) -> Result<InnerCall, Failure> {
                let tool = coracle_workspace::$callee { $($field: self.$field,)* $($rest: None,)? };
                InnerCall::tool(tool, process, self.container, args)
            }
        }
    )*};
}

session_tools! {
    ReadFileTool: "read_file", ReadFile { path, offset, limit; encoding };
    WriteFileTool: "write_file", WriteFile { path, content, mode, executable; encoding };
    EditFileTool: "edit_file", EditFile { path, old_string, new_string, replace_all };
    SearchTool: "search", Grep { pattern, path, glob, case_insensitive, context, respect_gitignore };
    FindFilesTool: "find_files", Glob { pattern, path, respect_gitignore };
}
