//! What a model is told of its workspace, for a system prompt (workspace.md 5.3). Pure.

use coracle_runtime::ByteSize;

/// What there is to tell.
#[derive(Clone, Debug)]
pub struct Told<'a> {
    /// Who works in it.
    pub uid: u32,
    /// Where.
    pub workdir: &'a str,
    /// Name of the shell tool.
    pub shell: &'a str,
    /// What it is made of.
    pub image: &'a str,
    /// What it may use.
    pub memory: ByteSize,
    /// Cores.
    pub cpus: f64,
}

/// Seconds that a command may take.
const MOST_SECONDS: u32 = 120;

/// The block for a system prompt.
#[must_use]
pub fn prompt(told: &Told<'_>) -> String {
    let Told { uid, workdir, shell, image, memory, cpus } = told;
    let memory = memory_told(*memory);
    format!(
        "Workspace\n---------\n\
         You have a private Linux container, user {uid}, not root. `ls`, `read_file`, `write_file`, `edit_file`, `glob`, \
         `grep` and `rm` work on files under `{workdir}`; give paths relative to it. `{shell}` runs one program with its \
         arguments as a list, for at most {MOST_SECONDS} seconds; nothing keeps running after it. `evaluate_python` runs a \
         short script for at most 5 seconds. Long output is cut and kept: read the rest with `shell_output`. Network: \
         none. Only `{workdir}` outlives a restart of the container; you are told when one happened. Image: `{image}`, \
         {memory} memory, {cpus} CPU.\n"
    )
}

/// The same where no container can be had.
#[must_use]
pub fn unavailable(reason: &str, what_to_do: &str) -> String {
    format!("Workspace tools are unavailable: {reason}. {what_to_do}\n")
}

fn memory_told(memory: ByteSize) -> String {
    match memory.0 >> 20 {
        mib if mib % 1024 == 0 => format!("{} GiB", mib / 1024),
        mib => format!("{mib} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use coracle_runtime::ByteSize;
    use insta::assert_snapshot;

    use super::{Told, prompt, unavailable};

    #[test]
    fn w42_a_model_is_told_what_it_has_and_what_not() {
        let memory = ByteSize::mib(1024);
        let told =
            Told { uid: 65534, workdir: "/workspace", shell: "shell_execute", image: "python:3.12", memory, cpus: 1.0 };
        assert_snapshot!(prompt(&told), @r"
        Workspace
        ---------
        You have a private Linux container, user 65534, not root. `ls`, `read_file`, `write_file`, `edit_file`, `glob`, `grep` and `rm` work on files under `/workspace`; give paths relative to it. `shell_execute` runs one program with its arguments as a list, for at most 120 seconds; nothing keeps running after it. `evaluate_python` runs a short script for at most 5 seconds. Long output is cut and kept: read the rest with `shell_output`. Network: none. Only `/workspace` outlives a restart of the container; you are told when one happened. Image: `python:3.12`, 1 GiB memory, 1 CPU.
        ");
        assert_eq!(
            unavailable("no engine answers", "Run `coracle setup`."),
            "Workspace tools are unavailable: no engine answers. Run `coracle setup`.\n"
        );
    }
}
