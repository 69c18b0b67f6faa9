//! Hints for failed tools of the workspace.

/// Returns the hint for the error code of a tool.
pub fn tool_hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "path_empty" | "path_dots" | "path_segment" | "path_depth" => {
            "give a path from the root of the workspace, such as `src/main.py`"
        }
        "path_charset" => "use ASCII letters; the setting `workspace.path_charset = \"utf8\"` allows others",
        "path_escape" => "name a file of the workspace; links that lead outside are not followed",
        "file_not_found" | "path_not_found" | "directory_not_found" | "nothing_matched" => "look with `ls` or `glob`",
        "not_a_directory" => "name the directory, or read the file with `read_file`",
        "is_a_directory" => "list it with `ls`",
        "file_exists" => "change it with `edit_file`, or read it and write it with `mode: \"overwrite\"`",
        "read_required" | "stale_read" => "read it with `read_file`, then try again",
        "old_string_not_found" => "read the file again and copy the text without its line numbers",
        "old_string_ambiguous" => "give more of the text around it, or `replace_all: true`",
        "binary_file" => "read it with `encoding: \"base64\"`",
        "content_too_large" => "write it in parts with `mode: \"append\"`",
        "disk_full" => "remove what is not needed with `rm`",
        "invalid_regex" => "escape `(`, `[`, `{` and `.` with a backslash; there is no look-around",
        "invalid_command" => "give a program and its arguments as a list, such as [\"ls\", \"-l\"]",
        "cwd_not_found" | "cwd_not_directory" | "invalid_cwd" => "give a directory of the workspace",
        "timed_out" => "give it more time, or do less at once",
        "out_of_memory" => "do less at once, or raise `workspace.memory` or `run_code.memory` in the configuration",
        "workspace_lost" => "try again: the next call gets a new container",
        "busy" => "wait for calls that run, then try again",
        "language_unknown" => "use typescript, javascript, python or bash",
        "execution_mode_invalid" | "execution_mode_unavailable" => "set EXECUTION_MODE=container, or leave it unset",
        "not_supported" => "leave that field out",
        _ => return None,
    })
}
