//! Runs a caller's command with plain exec: a shell sets its user, directory, variables and input, since the API has no
//! fields for them.

use std::time::{Duration, Instant};

use coracle_host::drain::{Drain, DrainOutcome};
use coracle_runtime::plain_exec::{END_TREE, ENTER, IS_DIR, MARK};
use coracle_types::{
    ContainerId, ContainerStatus, EngineKind, Error, Exec, ExecOutput, Exit, Ids, Input, Result, random_hex,
};
use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use super::command::{run, spawn};
use super::exit_line::REPORT_EXIT;
use super::process::Stdin;
use crate::cluster::Cluster;
use crate::find::find_pod;
use crate::pod::{container_of, status};
use crate::wait::{END_REPORT_TIMEOUT, POLL_INTERVAL};

/// Changes to the user `$1`:`$2`, with a program of the image, and executes the rest of the arguments.
const AS_USER: &str = r#"uid=$1 gid=$2; shift 2
if [ "$(id -u)" = "$uid" ]; then exec "$@"; fi
if setpriv --version >/dev/null 2>&1; then exec setpriv --reuid "$uid" --regid "$gid" --clear-groups "$@"; fi
if command -v chpst >/dev/null 2>&1; then exec chpst -u ":$uid:$gid" "$@"; fi
if command -v python3 >/dev/null 2>&1; then
  exec python3 -c 'import os, sys
uid, gid = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([]); os.setgid(gid); os.setuid(uid); os.execvp(sys.argv[3], sys.argv[3:])' "$uid" "$gid" "$@"
fi
echo "the image has none of setpriv, chpst and python3, by which a command gets another user" >&2
exit 126"#;

/// Reads `$1` bytes of its input, which are variables as words of a shell: in the URL of the request they would be in
/// logs of the cluster. `dd` reads no byte more, unlike `head`. The command has no input.
const WITH_VARIABLES: &str = r#"count=$1; shift
eval "set -- env $(dd bs=1 count="$count" 2>/dev/null) \"\$@\""; exec "$@" </dev/null"#;

/// The same if the rest of the input is the command's.
const WITH_INPUT_AND_VARIABLES: &str = r#"count=$1; shift
eval "set -- env $(dd bs=1 count="$count" 2>/dev/null) \"\$@\""; exec "$@""#;

/// Passes exactly `$1` bytes to the command, since the end of the input is not transmitted. Unread input is discarded:
/// the connection transmits no output while its input is blocked.
const WITH_INPUT: &str = r#"count=$1; shift; head -c "$count" | { "$@"; code=$?; cat >/dev/null 2>&1; exit "$code"; }"#;

/// Maximum length of an argument: the API server gets all arguments in the URL of the request.
const MAX_WORD: usize = 96 << 10;

/// Exit codes after TERM or KILL, as when a container ends.
const ENDED: [i32; 2] = [128 + 15, 128 + 9];

/// Maximum size of an input of unknown length, which is read first.
const MAX_INPUT: u64 = 64 << 20;

pub(crate) async fn exec(cluster: &Cluster, id: &ContainerId, mut exec: Exec) -> Result<ExecOutput> {
    exec.check_without_guest(EngineKind::Kubernetes)?;
    let pod = find_pod(cluster, &id.into()).await?;
    if status(&pod) != ContainerStatus::Running {
        return Err(not_running(&pod, None));
    }
    let (mark, begun) = (random_hex::<16>(), Instant::now());
    let input = whole(exec.stdin.take()).await?;
    let variables = variables(&exec);
    let argv = words(&exec, &mark, &variables, input.as_deref());
    let variable_sizes = exec.env.iter().map(|(name, value)| name.len() + value.len());
    if let Some(long) = argv.iter().map(String::len).chain(variable_sizes).find(|it| *it > MAX_WORD) {
        let source = std::io::Error::other(format!("{long} bytes in one argument"));
        return Err(Error::Host { what: "the command or a variable is longer than 96 KiB".into(), source });
    }
    let input = [variables.into_bytes(), input.unwrap_or_default()].concat();
    let mut process = match spawn(cluster, &pod, &argv, !input.is_empty()).await {
        Err(err) => return Err(not_started(cluster, id, err).await),
        Ok(process) => process.with_exit_line(&mark),
    };
    let feeder = feed(process.stdin(), input);
    let mut drain = Drain::new(&mut process, exec.keep_bytes, exec.live.take());
    let target = PodCommand { cluster, pod: &pod, exec: &exec };
    let end = drain.until_end(&mut process, &exec.limits, &exec.cancel).await;
    let tree_ended = match end {
        DrainOutcome::Exited(_) => None,
        _ => Some(drain.while_reading(target.end_tree(&mark)).await),
    };
    let outputs = drain.finish(&mut process).await;
    feeder.abort();
    let output = ExecOutput::plain(end.into(), outputs, tree_ended, begun.elapsed());
    target.judge(id, end, output).await
}

/// Returns why a command did not start. A node refuses commands in a container that has just ended before it reports
/// the end.
async fn not_started(cluster: &Cluster, id: &ContainerId, refused: Error) -> Error {
    if !matches!(refused, Error::Engine { .. }) {
        return refused;
    }
    match ended_pod(cluster, id, END_REPORT_TIMEOUT).await {
        Ok(Some(pod)) => not_running(&pod, None),
        Ok(None) => refused,
        Err(err) => err,
    }
}

/// Writes the input while output is read: a command that ends early does not read the rest.
fn feed(stdin: Option<Stdin>, input: Vec<u8>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let Some(mut stdin) = stdin else { return };
        if stdin.write_all(&input).await.is_ok() {
            let _ = stdin.flush().await;
        }
        // The input stays open until the task is aborted with the command.
        std::future::pending::<()>().await;
    })
}

/// Reads the whole input, since its length is sent first. An empty one counts as none.
async fn whole(input: Option<Input>) -> Result<Option<Vec<u8>>> {
    let bytes = match input {
        None => return Ok(None),
        Some(Input::Bytes(bytes)) => bytes,
        Some(Input::Stream(stream)) => read_whole(stream).await?,
    };
    Ok(Some(bytes).filter(|it| !it.is_empty()))
}

async fn read_whole(stream: impl AsyncRead + Unpin) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = stream.take(MAX_INPUT + 1).read_to_end(&mut bytes).await;
    read.map_err(|source| Error::Host { what: "cannot read the input of the command".into(), source })?;
    match bytes.len() as u64 > MAX_INPUT {
        true => Err(Error::TooLarge { max_bytes: MAX_INPUT }),
        false => Ok(bytes),
    }
}

/// Renders the variables of a command as words of a shell.
fn variables(exec: &Exec) -> String {
    let quoted = |(name, value): (_, _)| format!("'{}'", format!("{name}={value}").replace('\'', r"'\''"));
    exec.env.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Wraps the command in the shells that prepare it.
fn words(exec: &Exec, mark: &str, variables: &str, input: Option<&[u8]>) -> Vec<String> {
    let shell = |script: &str, arguments: Vec<String>| {
        let words = ["/bin/sh", "-c", script, "coracle"].map(str::to_owned);
        words.into_iter().chain(arguments).collect::<Vec<_>>()
    };
    let command = exec.command.clone().into_argv();
    let input = input.map(|it| shell(WITH_INPUT, vec![it.len().to_string()]));
    let enter = shell(ENTER, vec![exec.workdir.to_string()]);
    let script = if input.is_some() { WITH_INPUT_AND_VARIABLES } else { WITH_VARIABLES };
    let count = variables.len();
    let variables = (count > 0).then(|| shell(script, vec![count.to_string()]));
    let env = ["env".to_owned(), format!("{MARK}={mark}")].into_iter().chain(variables.into_iter().flatten());
    let Ids { uid, gid } = exec.user;
    let user = shell(AS_USER, vec![uid.to_string(), gid.to_string()]);
    let report = shell(REPORT_EXIT, vec![mark.to_owned()]);
    let command = report.into_iter().chain(input.into_iter().flatten()).chain(command);
    user.into_iter().chain(env).chain(enter).chain(command).collect()
}

/// A command of a caller in a Pod.
#[derive(Clone, Copy)]
struct PodCommand<'a> {
    cluster: &'a Cluster,
    pod: &'a Pod,
    exec: &'a Exec,
}

impl PodCommand<'_> {
    /// Ends every process with the mark. Closing the connection would end none of them.
    async fn end_tree(self, mark: &str) -> bool {
        let tenths = self.exec.limits.grace.as_millis().div_ceil(100).to_string();
        let Ids { uid, gid } = self.exec.user;
        let (uid, gid) = (uid.to_string(), gid.to_string());
        let user = ["/bin/sh", "-c", AS_USER, "coracle", &uid, &gid];
        let script = ["/bin/sh", "-c", END_TREE, "coracle", mark, &tenths];
        let words: Vec<_> = user.into_iter().chain(script).map(str::to_owned).collect();
        match run(self.cluster, self.pod, &words).await {
            Ok(it) if it.exit == Exit::Code(0) => true,
            Ok(it) => {
                tracing::warn!(exit = ?it.exit, "some of the command's processes could not be ended");
                false
            }
            Err(err) => {
                tracing::warn!(%err, "the command's processes could not be ended");
                false
            }
        }
    }

    /// Interprets an exit code that may come from one of the wrapping shells.
    async fn judge(self, id: &ContainerId, end: DrainOutcome, output: ExecOutput) -> Result<ExecOutput> {
        let DrainOutcome::Exited(code) = end else { return Ok(output) };
        if (0..126).contains(&code) {
            return Ok(output);
        }
        if !(0..=128).contains(&code) {
            let within = if code < 0 || ENDED.contains(&code) { END_REPORT_TIMEOUT } else { Duration::ZERO };
            return match ended_pod(self.cluster, id, within).await? {
                Some(pod) => Err(not_running(&pod, Some(output))),
                None if code < 0 => Err(lost(output)),
                None => Ok(output),
            };
        }
        let workdir = &self.exec.workdir;
        let probe = ["/bin/sh", "-c", IS_DIR, "coracle", workdir.as_str()].map(str::to_owned);
        match run(self.cluster, self.pod, &probe).await {
            Ok(it) if it.exit == Exit::Code(0) => Ok(output),
            Ok(it) if it.exit == Exit::Code(1) => Err(Error::NoSuchPath(workdir.clone())),
            // A container that has ended looks like one without a shell, or refuses the probe.
            other => match ended_pod(self.cluster, id, END_REPORT_TIMEOUT).await? {
                Some(pod) => Err(not_running(&pod, Some(output))),
                None => other.and(Err(Error::NoShell)),
            },
        }
    }
}

/// Returns the Pod, if its container has ended, or ends within that time.
async fn ended_pod(cluster: &Cluster, id: &ContainerId, within: Duration) -> Result<Option<Pod>> {
    let begun = Instant::now();
    loop {
        let pod = find_pod(cluster, &id.into()).await?;
        if status(&pod) != ContainerStatus::Running {
            return Ok(Some(pod));
        }
        if begun.elapsed() >= within {
            return Ok(None);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn lost(output: ExecOutput) -> Error {
    Error::GuestLost { reason: "the connection to the command broke".into(), output: Some(Box::new(output)) }
}

fn not_running(pod: &Pod, output: Option<ExecOutput>) -> Error {
    let ended = container_of(pod).map(|it| it.not_running());
    match ended {
        Ok(Error::NotRunning { status, exit_code, oom_killed, .. }) => Error::NotRunning {
            status,
            exit_code,
            oom_killed,
            output: output.filter(|it| it.stdout.total_bytes() > 0).map(Box::new),
        },
        Ok(err) | Err(err) => err,
    }
}

#[cfg(test)]
mod tests {
    use coracle_types::{Command, ContainerPath};

    use super::*;

    #[test]
    fn a_command_is_wrapped_for_its_user_variables_directory_and_input() {
        let mut exec = Exec::new(
            Command::Argv(vec!["cat".into(), "$x".into()]),
            Ids { uid: 7, gid: 8 },
            ContainerPath::parse("/work").unwrap(),
        );
        exec.env.insert("A".into(), "b 'c".into());
        let variables = variables(&exec);
        assert_eq!(variables, r"'A=b '\''c'");
        let words = words(&exec, "the-mark", &variables, Some(b"12345"));
        let values: Vec<_> =
            words.iter().map(String::as_str).filter(|it| !it.contains('\n') && it.len() < 40).collect();
        assert_eq!(
            values,
            [
                "/bin/sh",
                "-c",
                "coracle",
                "7",
                "8",
                "env",
                "CORACLE_MARK=the-mark",
                "/bin/sh",
                "-c",
                "coracle",
                "11",
                "/bin/sh",
                "-c",
                "coracle",
                "/work",
                "/bin/sh",
                "-c",
                "coracle",
                "the-mark",
                "/bin/sh",
                "-c",
                "coracle",
                "5",
                "cat",
                "$x"
            ]
        );
    }

    #[tokio::test]
    async fn an_input_of_unknown_length_is_read_first() {
        let stream = Input::Stream(Box::new(&b"all of it"[..]));
        assert_eq!(whole(Some(stream)).await.unwrap().as_deref(), Some(&b"all of it"[..]));
        assert_eq!(whole(Some(Input::Bytes(Vec::new()))).await.unwrap(), None);
        let endless = Input::Stream(Box::new(tokio::io::repeat(0)));
        assert!(matches!(whole(Some(endless)).await, Err(Error::TooLarge { .. })));
    }
}
