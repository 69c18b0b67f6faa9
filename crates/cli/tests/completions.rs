//! Completions in the shells that they are for, and pages for `man`.
#![expect(clippy::unwrap_used, reason = "a test ends where its expectation is not met")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use coracle_skips::skip;
use tempfile::TempDir;

/// Asks bash as it calls the function for a word.
const BASH: &str = r#"
source "$1/coracle"
read -ra COMP_WORDS <<< "$2"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_coracle coracle "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

const FISH: &str = "source $argv[1]/coracle; complete --do-complete $argv[2]";

/// Asks zsh as the key for completion does: on a terminal of its own, and prints the matches one by one.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D"
zpty -w shell 'compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
    local -a hits; builtin compadd -A hits "$@"; print -l "match:"$^hits
}; comppostfuncs=(over); over() { exit }'
zpty -w -n shell "$2"$'\t'
while zpty -r shell it; do print -r -- "$it"; done
"#;

/// The shell, or none and a note that the test is skipped.
fn program(shell: &str) -> Option<PathBuf> {
    let dirs = ["/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin"];
    let found = dirs.map(|dir| Path::new(dir).join(shell)).into_iter().find(|it| it.is_file());
    if found.is_none() {
        skip(&format!("needs {shell}"));
    }
    found
}

/// Standard output of a program, which must succeed.
#[expect(clippy::disallowed_methods, reason = "a foreign shell, and the program as a user starts it")]
fn prints(program: &Path, words: &[&str], home: &Path) -> String {
    let mut command = Command::new(program);
    command.args(words).env("HOME", home).env("TERM", "dumb").env("LC_ALL", "C.UTF-8");
    let output = command.current_dir(home).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn coracle(words: &[&str], home: &Path) -> String {
    prints(Path::new(env!("CARGO_BIN_EXE_coracle")), words, home)
}

/// What a shell offers for a line.
fn offers(shell: &str, program: &Path, dir: &Path, line: &str) -> Vec<String> {
    let place = dir.to_str().unwrap();
    let output = match shell {
        "bash" => prints(program, &["--norc", "--noprofile", "-c", BASH, "bash", place, line], dir),
        "fish" => prints(program, &["--no-config", "-c", FISH, place, line], dir),
        _ => prints(program, &["-f", "-c", ZSH, "zsh", place, line], dir),
    };
    // zsh's line has what the terminal shows before it.
    let word = |it: &str| it.trim().rsplit("match:").next()?.split('\t').next().map(str::to_owned);
    output.lines().filter_map(word).collect()
}

fn completes(shell: &str) {
    let Some(program) = program(shell) else { return };
    let dir = TempDir::new().unwrap();
    let name = if shell == "zsh" { "_coracle" } else { "coracle" };
    std::fs::write(dir.path().join(name), coracle(&["completions", shell], dir.path())).unwrap();
    for (line, expected) in [
        ("coracle cre", &["create", "create-network"][..]),
        ("coracle create --purp", &["--purpose"]),
        ("coracle worktree pus", &["push"]),
        ("coracle list --engine emb", &["embedded"]),
    ] {
        let matches = offers(shell, &program, dir.path(), line);
        for it in expected {
            assert!(matches.iter().any(|found| found == it), "{shell} offers {matches:?} for `{line}`");
        }
        assert!(!matches.iter().any(|it| it == "destroy"), "{shell} offers {matches:?} for `{line}`");
    }
}

#[test]
fn bash_completes_commands_and_options() {
    completes("bash");
}

#[test]
fn zsh_completes_commands_and_options() {
    completes("zsh");
}

#[test]
fn fish_completes_commands_and_options() {
    completes("fish");
}

#[test]
fn each_command_has_a_page_for_man() {
    let dir = TempDir::new().unwrap();
    let pages = dir.path().join("pages");
    coracle(&["man-pages", pages.to_str().unwrap()], dir.path());
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap_or_else(|err| panic!("{name}: {err}"));
    assert!(page("coracle.1").contains("coracle\\-create(1)"));
    assert!(page("coracle-create.1").contains("\\-\\-setup\\-command"));
    assert!(page("coracle-worktree-push.1").contains("coracle\\-worktree\\-push"));
    assert!(!pages.join("coracle-man-pages.1").exists(), "it is not offered");
}
