//! `coracle setup`: installs an engine on a machine without one.
//!
//! **Invariant:** each command and each file is shown first, and nothing is done without a yes.
//! **Invariant:** the user's settings of Podman stay: only the file with Coracle's mark is written.

mod detect;
mod plan;

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use coracle_context::host_system::{MissingPrerequisite, guidance, system};
use coracle_context::{Code, Failure, Host};
use coracle_host::find_program::find_program;
use coracle_host::fs::replace_as;
use coracle_host::process::{Invocation, exit_of};

use self::detect::HostProbe;
use self::plan::{SetupPlan, SetupStep, plan};

/// Sets up an engine, or prints what the user must do. `yes` answers every question.
///
/// # Errors
/// An unsupported system; a no, or no terminal; a failed command; an engine that does not answer.
pub(crate) async fn run(yes: bool, host: &Host, out: &mut dyn Write) -> Result<(), Failure> {
    let place = HostProbe(host);
    match plan(&place.machine().await) {
        SetupPlan::Ready(engine) => {
            print(out, &format!("{engine} answers; there is nothing to do\n"))?;
            return hints(place, out);
        }
        SetupPlan::Theirs => {
            print(out, &guidance(&system(), MissingPrerequisite::Engine))?;
            return Err(Failure::new(Code::EngineUnavailable, "`setup` does not act on this system")
                .hint("follow the guidance above, then call `coracle preflight`"));
        }
        SetupPlan::NotRoot(commands) => {
            print(out, &format!("As root:\n{}", commands.concat()))?;
            return Err(Failure::new(
                Code::EngineUnavailable,
                "only root may install packages, and there is no `sudo`",
            )
            .hint("run the commands above as root, then `coracle setup` again"));
        }
        SetupPlan::Steps(steps) => {
            for step in &steps {
                act(step, yes, place, out).await?;
            }
        }
    }
    let Some(engine) = place.podman().await else {
        return Err(Failure::new(Code::EngineUnavailable, "Podman does not answer, or is older than 4.3")
            .hint("`podman info` says why"));
    };
    print(out, &format!("{engine} is ready; try: coracle create\n"))?;
    hints(place, out)
}

fn hints(place: HostProbe<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    place.hints().iter().try_for_each(|it| print(out, it))
}

async fn act(step: &SetupStep, yes: bool, place: HostProbe<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    print(out, &format!("{}:\n{}", step.why(), step.shown()))?;
    consent(yes, place.0.stdin_is_terminal, out)?;
    match step {
        SetupStep::Run { words, why } => start(words, why, place).await,
        SetupStep::Write { path, text, .. } => write(path, text)
            .map_err(|err| Failure::new(Code::Internal, format!("cannot write `{}`: {err}", path.display()))),
    }
}

/// Asks the user at the terminal. Without a terminal there is no consent.
fn consent(yes: bool, terminal: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !terminal {
        return Err(Failure::new(Code::ConfirmRequired, "there is no terminal to confirm it")
            .hint("`coracle setup --yes` does it without asking"));
    }
    print(out, "Do it? [y/N] ")?;
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|err| Failure::new(Code::Internal, format!("cannot read the answer: {err}")))?;
    if matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(Code::Cancelled, "not confirmed; nothing further was done"))
}

/// Runs a program with its output on standard error: standard output is for answers.
const ON_STDERR: &str = r#"exec "$@" >&2"#;

async fn start(words: &[String], why: &str, place: HostProbe<'_>) -> Result<(), Failure> {
    let Some((name, words)) = words.split_first() else { return Ok(()) };
    match exit_of(invocation(name, words, place)?.run_on_terminal().await?) {
        0 => Ok(()),
        exit => Err(Failure::new(Code::EngineUnavailable, format!("`{name}` ended with {exit} ({why})"))
            .hint("what it printed stands above; with old package lists, `apt-get update` helps")),
    }
}

fn invocation(name: &str, words: &[String], place: HostProbe<'_>) -> Result<Invocation, Failure> {
    let program = find_program(name)?.into_os_string();
    let shell = ["-c", ON_STDERR, "sh"].map(OsString::from);
    let words = shell.into_iter().chain([program]).chain(words.iter().map(OsString::from));
    let mut invocation = Invocation::new(find_program("sh")?, words);
    invocation.env = place.env();
    Ok(invocation)
}

/// Writes atomically, because Podman reads the file at every start.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    replace_as(path, text.as_bytes(), fs::Permissions::from_mode(0o644))
}

fn print(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(|err| Failure::new(Code::Internal, format!("cannot print: {err}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coracle_host::process::{Stdin, run};
    use coracle_types::Secret;

    use super::*;

    #[tokio::test]
    async fn programs_have_the_persons_proxy_and_print_to_standard_error() {
        let mut host = Host::below(Path::new("/"));
        host.env.insert("http_proxy".into(), Secret::new(b"http://proxy:3128".to_vec()));
        let words = ["-c", "echo $1 $http_proxy", "sh", "a b"].map(str::to_owned);
        let invocation = invocation("sh", &words, HostProbe(&host)).unwrap();
        let output = run("setup", &invocation, Stdin::Empty, (Duration::from_secs(60), 1 << 10)).await.unwrap();
        assert_eq!((output.stdout.text().as_str(), output.stderr.text().as_str()), ("", "a b http://proxy:3128\n"));
    }

    #[test]
    fn settings_are_written_whole_into_a_folder_that_may_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("containers.conf.d/50-coracle.conf");
        write(&path, "[engine]\n").unwrap();
        write(&path, "[engine]\nruntime = \"runc\"\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[engine]\nruntime = \"runc\"\n");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
