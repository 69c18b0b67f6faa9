//! The arguments of the worker program.

use std::path::PathBuf;

use coracle_sandbox::protocol::RunLimits;

/// The mode of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerMode {
    /// Serves requests one after the other.
    Serve,
    /// Runs one request.
    Once(Box<RunArguments>),
}

/// The arguments of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunArguments {
    /// Runs with tools.
    pub agentic: bool,
    /// The file with the prompt.
    pub prompt_file: PathBuf,
    /// The model.
    pub model: String,
    /// The working directory.
    pub cwd: Option<String>,
    /// Additional text for the system prompt.
    pub instructions: Option<String>,
    /// A file with additional text for the system prompt.
    pub instructions_file: Option<PathBuf>,
    /// A file with the schema of the result.
    pub schema: Option<String>,
    /// Names of the available tools.
    pub tools: Option<Vec<String>>,
    /// Limits of the run.
    pub limits: RunLimits,
    /// Echoed in every message.
    pub session_id: Option<String>,
}

/// The usage message.
pub const USAGE: &str = "usage: worker agentic --prompt-file F --model M --cwd D \
     [--instructions T | --instructions-file F] [--schema F] [--tools a,b]\n       \
     worker generate --prompt-file F --model M [--instructions T | --instructions-file F] [--schema F]\n       \
     both: [--max-turns N] [--wall-seconds N] [--max-total-tokens N] [--session-id S]\n       \
     worker serve";

/// Parses the arguments after the program's name.
///
/// # Errors
/// The first invalid argument, as a sentence.
pub fn parse(words: &[String]) -> Result<WorkerMode, String> {
    let (mode, options) = words.split_first().ok_or("no mode")?;
    let agentic = match mode.as_str() {
        "serve" if options.is_empty() => return Ok(WorkerMode::Serve),
        "agentic" => true,
        "generate" => false,
        other => return Err(format!("unknown mode `{}`", other.escape_debug())),
    };
    let mut once = RunArguments { agentic, ..RunArguments::default() };
    let (mut prompt, mut model) = (None, None);
    let mut options = options.iter();
    while let Some(name) = options.next() {
        let value = options.next().ok_or_else(|| format!("`{name}` needs a value"))?.clone();
        let twice = match name.as_str() {
            "--prompt-file" => prompt.replace(PathBuf::from(value)).is_some(),
            "--model" => model.replace(value).is_some(),
            "--cwd" if agentic => once.cwd.replace(value).is_some(),
            "--instructions" => once.instructions.replace(value).is_some(),
            "--instructions-file" => once.instructions_file.replace(value.into()).is_some(),
            "--schema" => once.schema.replace(value).is_some(),
            "--tools" if agentic => {
                let names = value.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
                once.tools.replace(names).is_some()
            }
            "--max-turns" => once.limits.max_turns.replace(number(name, &value)?).is_some(),
            "--wall-seconds" => once.limits.wall_seconds.replace(number(name, &value)?).is_some(),
            "--max-total-tokens" => once.limits.max_total_tokens.replace(number(name, &value)?).is_some(),
            "--session-id" => once.session_id.replace(value).is_some(),
            other => return Err(format!("unknown option `{}`", other.escape_debug())),
        };
        if twice {
            return Err(format!("`{name}` is given twice"));
        }
    }
    if once.instructions.is_some() && once.instructions_file.is_some() {
        return Err("`--instructions` and `--instructions-file` exclude each other".into());
    }
    if agentic && once.cwd.is_none() {
        return Err("`--cwd` is required".into());
    }
    once.prompt_file = prompt.ok_or("`--prompt-file` is required")?;
    once.model = model.filter(|it| !it.is_empty()).ok_or("`--model` is required")?;
    Ok(WorkerMode::Once(Box::new(once)))
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("`{name}` is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<WorkerMode, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_arguments_select_the_mode_and_its_options() {
        assert_eq!(parsed("serve"), Ok(WorkerMode::Serve));
        let Ok(WorkerMode::Once(once)) = parsed("agentic --prompt-file p --model m --cwd /workspace --tools ls,rm")
        else {
            panic!()
        };
        assert_eq!((once.agentic, once.tools.unwrap().len()), (true, 2));
        for (line, expected) in [
            ("", "no mode"),
            ("dance", "unknown mode `dance`"),
            ("serve --model m", "unknown mode `serve`"),
            ("agentic --prompt-file p --model m", "`--cwd` is required"),
            ("generate --model m", "`--prompt-file` is required"),
            ("generate --prompt-file p --model m --cwd /", "unknown option `--cwd`"),
            ("generate --prompt-file p --model", "`--model` needs a value"),
            ("generate --prompt-file p --model m --max-turns many", "`--max-turns` is not a number"),
            ("generate --prompt-file p --model m --model m", "`--model` is given twice"),
            (
                "generate --prompt-file p --model m --instructions a --instructions-file b",
                "`--instructions` and `--instructions-file` exclude each other",
            ),
        ] {
            assert_eq!(parsed(line).unwrap_err(), expected);
        }
    }
}
