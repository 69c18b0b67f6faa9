//! The description of the workspace for a model's system prompt. Pure.

use std::fmt::Write as _;

use coracle_types::{ByteSize, is_deceptive};

use crate::ImportEstimate;

/// Facts for the prompt.
#[derive(Clone, Debug)]
pub struct PromptContext<'a> {
    /// The uid of its commands.
    pub uid: u32,
    /// The working directory.
    pub workdir: &'a str,
    /// Name of the shell tool.
    pub shell: &'a str,
    /// Its image.
    pub image: &'a str,
    /// Its limits of memory and cores.
    pub memory: ByteSize,
    /// Cores.
    pub cpus: f64,
    /// Names that its commands reach; none without a network.
    pub network: &'a [String],
    /// Directories of the host in it.
    pub mounts: Vec<PromptMount>,
}

/// A directory of the host in a workspace.
#[derive(Clone, Debug)]
pub struct PromptMount {
    /// Its name: never its path on the host.
    pub name: String,
    /// Its path in the workspace; empty for the workspace itself.
    pub at: String,
    /// Size of the copied files, before or after the copy. `None` for a bind mount, which changes.
    pub estimate: Option<ImportEstimate>,
    /// Patterns of what is copied; all without one.
    pub include: Vec<String>,
    /// Patterns of what is not.
    pub exclude: Vec<String>,
}

/// Seconds that a command may take.
const MAX_SECONDS: u32 = 120;

/// The block for a system prompt.
#[must_use]
pub fn prompt(context: &PromptContext<'_>) -> String {
    let PromptContext { uid, workdir, shell, image, memory, cpus, network, mounts } = context;
    let mounts = table(mounts);
    let memory = memory_text(*memory);
    let network = if network.is_empty() { "none".to_owned() } else { format!("only {}", network.join(", ")) };
    format!(
        "Workspace\n---------\n\
         You have a private Linux container, user {uid}, not root. `ls`, `read_file`, `write_file`, `edit_file`, `glob`, \
         `grep` and `rm` work on files under `{workdir}`; give paths relative to it. `{shell}` runs one program with its \
         arguments as a list, for at most {MAX_SECONDS} seconds; nothing keeps running after it. `evaluate_python` runs a \
         short script for at most 5 seconds. Long output is cut and stored: read the rest with `shell_output`. Network: \
         {network}. Only `{workdir}` outlives a restart of the container; you are told when one happened. Image: `{image}`, \
         {memory} memory, {cpus} CPU.\n{mounts}"
    )
}

/// The directories of the host, and what they begin with.
fn table(mounts: &[PromptMount]) -> String {
    let mut text = String::new();
    if mounts.is_empty() {
        return text;
    }
    text.push_str("\n| Host path | In the workspace | Files | Bytes | Filter |\n|---|---|---|---|---|\n");
    for PromptMount { name, at, estimate, include, exclude } in mounts {
        let (files, bytes) = match estimate {
            Some(it) => (grouped(it.files), grouped(it.bytes)),
            None => ("as on the host".to_owned(), "as on the host".to_owned()),
        };
        let at = if at.is_empty() { "/" } else { at };
        let filter = filter(include, exclude);
        let _ = writeln!(text, "| {} | {} | {files} | {bytes} | {filter} |", quoted(name), quoted(at));
    }
    for ImportEstimate { names, more_names, .. } in mounts.iter().filter_map(|it| it.estimate.as_ref()) {
        let shown: Vec<String> = names.iter().map(|it| quoted(it)).collect();
        let more = if *more_names > 0 { format!(" … (+{more_names} more)") } else { String::new() };
        let contents = if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") };
        let _ = write!(text, "\nContents: {contents}{more}\n");
    }
    text
}

fn filter(include: &[String], exclude: &[String]) -> String {
    let listed = |word: &str, all: &[String]| {
        let all: Vec<String> = all.iter().map(|it| it.trim()).filter(|it| !it.is_empty()).map(quoted).collect();
        (!all.is_empty()).then(|| format!("{word} {}", all.join(", ")))
    };
    let parts: Vec<String> = [listed("only", include), listed("without", exclude)].into_iter().flatten().collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join(", ") }
}

/// Formats text as code within a table. A name may contain any character, and must not end the code, the cell or the
/// line.
fn quoted(name: &str) -> String {
    let mut text = String::from("`");
    for c in name.chars() {
        let is_plain = !is_deceptive(c) && !matches!(c, '`' | '|');
        if is_plain { text.push(c) } else { text.extend(c.escape_unicode()) }
    }
    text + "`"
}

/// Adds commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The prompt without a container.
#[must_use]
pub fn unavailable(reason: &str, what_to_do: &str) -> String {
    format!("Workspace tools are unavailable: {reason}. {what_to_do}\n")
}

fn memory_text(memory: ByteSize) -> String {
    match memory.0 >> 20 {
        mib if mib % 1024 == 0 => format!("{} GiB", mib / 1024),
        mib => format!("{mib} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use coracle_types::ByteSize;
    use insta::assert_snapshot;

    use super::{PromptContext, PromptMount, grouped, prompt, quoted, unavailable};
    use crate::ImportEstimate;

    #[test]
    fn w42_a_model_is_informed_of_its_means_and_limits() {
        let memory = ByteSize::mib(1024);
        let context = PromptContext {
            uid: 65534,
            workdir: "/workspace",
            shell: "shell_execute",
            image: "python:3.12",
            memory,
            cpus: 1.0,
            network: &[],
            mounts: Vec::new(),
        };
        assert_snapshot!(prompt(&context), @r"
        Workspace
        ---------
        You have a private Linux container, user 65534, not root. `ls`, `read_file`, `write_file`, `edit_file`, `glob`, `grep` and `rm` work on files under `/workspace`; give paths relative to it. `shell_execute` runs one program with its arguments as a list, for at most 120 seconds; nothing keeps running after it. `evaluate_python` runs a short script for at most 5 seconds. Long output is cut and stored: read the rest with `shell_output`. Network: none. Only `/workspace` outlives a restart of the container; you are told when one happened. Image: `python:3.12`, 1 GiB memory, 1 CPU.
        ");
        let names = ["pypi".to_owned(), "docs.example.com".to_owned()];
        assert!(
            prompt(&PromptContext { network: &names, ..context })
                .contains("Network: only pypi, docs.example.com. Only")
        );
        assert_eq!(
            unavailable("no engine answers", "Run `coracle setup`."),
            "Workspace tools are unavailable: no engine answers. Run `coracle setup`.\n"
        );
    }

    #[test]
    fn w42_directories_of_the_host_are_a_table_with_what_they_begin_with() {
        let paths: Vec<String> = (0..25).map(|it| format!("f{it:02}")).chain(["x/a".into(), "x/b".into()]).collect();
        let copied = PromptMount {
            name: "project".into(),
            at: String::new(),
            estimate: Some(ImportEstimate::from_files(paths.iter().map(String::as_str), 1_203_441)),
            include: vec![" ".into()],
            exclude: vec!["*.log".into()],
        };
        let bound = PromptMount {
            name: "a|b".into(),
            at: "src".into(),
            estimate: None,
            include: vec!["**/*.py".into()],
            exclude: Vec::new(),
        };
        assert_snapshot!(super::table(&[copied, bound]).trim_start(), @r"
        | Host path | In the workspace | Files | Bytes | Filter |
        |---|---|---|---|---|
        | `project` | `/` | 27 | 1,203,441 | without `*.log` |
        | `a\u{7c}b` | `src` | as on the host | as on the host | only `**/*.py` |

        Contents: `f00`, `f01`, `f02`, `f03`, `f04`, `f05`, `f06`, `f07`, `f08`, `f09`, `f10`, `f11`, `f12`, `f13`, `f14`, `f15`, `f16`, `f17`, `f18`, `f19` … (+6 more)
        ");
        assert_eq!(quoted("a`\n\u{202e}"), "`a\\u{60}\\u{a}\\u{202e}`");
        assert_eq!([0, 999, 1000, 1_000_000].map(grouped), ["0", "999", "1,000", "1,000,000"]);
    }
}
