//! Finds the start of the command in `exec NAME PROGRAM ARGUMENT…`, so that its arguments are not parsed as options.

use std::ffi::OsString;

use clap::Command;

/// Subcommands that run a command, with the number of arguments that come before it.
const RUNNING: &[(&str, usize)] =
    &[("exec", 1), ("exec-background", 1), ("race", 1), ("shell", 1), ("shell-execute", 0)];

/// Inserts `--` before a program and its arguments. A single argument of `exec` stays a text for `/bin/sh`.
pub(super) fn with_escape(root: &Command, words: &[OsString]) -> Vec<OsString> {
    let mut words = words.to_vec();
    if let Some(at) = program_at(root, &words) {
        words.insert(at, "--".into());
    }
    words
}

fn program_at(root: &Command, words: &[OsString]) -> Option<usize> {
    let (mut command, mut own_arguments) = (root, None);
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let text = word.to_str().unwrap_or_default();
        if text == "--" {
            return None;
        }
        if text.len() > 1 && text.starts_with('-') {
            at += usize::from(takes_next(root, command, text));
            if text == "--container" || text.starts_with("--container=") {
                own_arguments = own_arguments.map(|count: usize| count.saturating_sub(1));
            }
        } else if let Some(count) = own_arguments {
            if count == 0 {
                let takes_text = ["exec", "exec-background", "race"].contains(&command.get_name());
                let rest = &words[at + 1..];
                let stands_alone = rest.iter().all(|word| word != "--");
                let is_text = takes_text && stands_alone && (rest.is_empty() || text.contains(char::is_whitespace));
                return (!is_text).then_some(at);
            }
            own_arguments = Some(count - 1);
        } else {
            command = command.find_subcommand(text)?;
            own_arguments = RUNNING.iter().find(|(name, _)| *name == command.get_name()).map(|(_, count)| *count);
        }
        at += 1;
    }
    None
}

/// Whether an option takes the next argument as its value.
fn takes_next(root: &Command, command: &Command, option: &str) -> bool {
    let takes_value = |is_meant: &dyn Fn(&clap::Arg) -> bool| {
        let found = command.get_arguments().chain(root.get_arguments()).find(|arg| is_meant(arg));
        found.is_some_and(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set())
    };
    let Some(long) = option.strip_prefix("--") else {
        let shorts: Vec<char> = option.chars().skip(1).collect();
        let with_value = shorts.iter().position(|short| takes_value(&|arg| arg.get_short() == Some(*short)));
        return with_value.is_some_and(|at| at + 1 == shorts.len());
    };
    takes_value(&|arg| {
        arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use coracle::operations;

    use super::with_escape;
    use crate::command::command;

    #[test]
    fn a_program_and_its_arguments_need_no_dashes() {
        for (typed, read) in [
            ("exec web ls -la", "exec web -- ls -la"),
            ("exec web make test --json", "exec web -- make test --json"),
            ("exec -it web python3 -i", "exec -it web -- python3 -i"),
            ("exec -w /tmp -e A=1 web env -0", "exec -w /tmp -e A=1 web -- env -0"),
            ("exec -ie A=1 web env -0", "exec -ie A=1 web -- env -0"),
            ("exec --timeout 3 web ls -l", "exec --timeout 3 web -- ls -l"),
            ("exec --timeout=3 --as-root web ls -l", "exec --timeout=3 --as-root web -- ls -l"),
            ("exec web --timeout 3 ls -l", "exec web --timeout 3 -- ls -l"),
            ("exec --container web ls -l", "exec --container web -- ls -l"),
            ("--engine docker exec web ls -l", "--engine docker exec web -- ls -l"),
            ("exec web --session s ls -l", "exec web --session s -- ls -l"),
            ("exec-background web sleep 9", "exec-background web -- sleep 9"),
            ("race web -n 2 make test", "race web -n 2 -- make test"),
            ("shell web python3", "shell web -- python3"),
            ("shell --as-root web", "shell --as-root web"),
            ("workspace shell-execute ls -l", "workspace shell-execute -- ls -l"),
            ("exec web ls", "exec web ls"),
            ("exec web -- ls -l", "exec web -- ls -l"),
            ("exec web sh -c -- ls", "exec web -- sh -c -- ls"),
            ("exec web ./my$tool -- x", "exec web -- ./my$tool -- x"),
            ("exec web pytest -- tests/x", "exec web -- pytest -- tests/x"),
            ("exec --container web -- pytest -- tests/x", "exec --container web -- pytest -- tests/x"),
            ("exec web", "exec web"),
            ("list exec web ls", "list exec web ls"),
        ] {
            let words = |line: &str| -> Vec<OsString> {
                std::iter::once("coracle").chain(line.split(' ')).map(OsString::from).collect()
            };
            let root = command(operations::ALL, &words(typed));
            assert_eq!(with_escape(&root, &words(typed)), words(read), "{typed}");
        }
    }

    #[test]
    fn options_may_stand_behind_a_text_for_the_shell() {
        let words = ["coracle", "exec", "web", "cd src && make", "--json"].map(OsString::from);
        assert_eq!(with_escape(&command(operations::ALL, &words), &words), words);
    }
}
