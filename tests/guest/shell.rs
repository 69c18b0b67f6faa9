//! A person's shell, started by the engine.

use std::process::Stdio;
use std::time::Duration;

use coracle_protocol::EnsureUser;
use coracle_types::{ContainerPath, Exec, Ids, Secret};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::{AGENT, sh, until};
use crate::engines::{Running, engine_program, with_a_real_guest};

/// The output of a command line on a terminal of its own for that input, and its exit status. The terminal echoes the
/// input, too, and ends lines in its own way.
pub(crate) async fn on_a_terminal(command: &str, typed: &str) -> (String, Option<i32>) {
    let mut script = engine_program("script");
    script.args(["--quiet", "--return", "--command", command, "/dev/null"]).kill_on_drop(true);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(typed.as_bytes()).await.unwrap();
    // An end of input would reach the shell before it has read what was typed.
    let output = timeout(Duration::from_secs(60), child.wait_with_output()).await.expect("the shell ends").unwrap();
    drop(stdin);
    (String::from_utf8_lossy(&output.stdout).replace('\r', ""), output.status.code())
}

/// The text between brackets, which was not typed in that form.
pub(crate) fn bracketed(text: &str) -> Vec<&str> {
    text.split("<[").skip(1).filter_map(|it| it.split_once("]>")).map(|it| it.0).collect()
}

/// Prints a value in brackets that do not appear literally in the script.
const SHOW: &str = r#"for it in "$VSECRET" "$FROM_IMAGE" "$HOME" "$USER" "$SHELL" "$PATH" "$LANG" "$(pwd)" "$(id -u):$(id -g)" \
    "$(grep -E 'NoNewPrivs|Seccomp:' /proc/self/status | tr -s '[:space:]' ' ')" \
    "$(sh -c 'kill -PIPE $$; echo ignored' 2>/dev/null)"; do printf '<%s%s%s>' '[' "$it" ']'; done; exit 7
"#;

/// A shell as that user, by the command of `exec_interactive_hint`.
async fn shell(running: &Running<'_>, user: Ids, typed: &str) -> (String, Option<i32>) {
    let (engine, id) = (running.case.engine(), &running.id);
    let line = format!("{engine} exec -it --user {user} --workdir /tmp {} /.coracle/guest shell /bin/sh", id.as_str());
    on_a_terminal(&line, typed).await
}

#[tokio::test]
async fn a_shell_sees_what_commands_see_and_only_its_user_the_session() {
    with_a_real_guest(async |running| {
        if !running.case.engine().has_program() {
            return running.case.left_out(); // its shells are commands of the link
        }
        let link = running.link();
        link.set_session(&[("VSECRET".into(), Secret::new(b"a 'b' $c".to_vec()))]).await.unwrap();
        link.ensure_user(EnsureUser { uid: 1000, gid: 1000, workdir: "/tmp".into(), bound: vec![] }).await.unwrap();
        for user in [AGENT, Ids::ROOT] {
            let command = Exec { user, workdir: ContainerPath::parse("/tmp").unwrap(), ..sh(SHOW) };
            let expected = running.ran(command).await.stdout.text();
            assert_eq!(bracketed(&expected).len(), 11, "{expected}");
            let (shown, code) = shell(running, user, SHOW).await;
            assert_eq!(bracketed(&shown), bracketed(&expected), "{shown}");
            assert_eq!(code, Some(7));
        }
        let stranger = Ids { uid: 4242, gid: 4242 };
        let (shown, _) = shell(running, stranger, SHOW).await;
        assert_eq!(bracketed(&shown)[0], "", "{shown}");
        assert_eq!(bracketed(&shown)[8], "4242:4242", "{shown}");
        // After a restart the session has no user, so there is no session environment.
        running.case.runtime.stop(&running.id, Duration::ZERO).await.unwrap();
        running.case.runtime.start(&running.id).await.unwrap();
        until("the guest is there again", async || running.exec(sh("true")).await.is_ok()).await;
        link.set_session(&[("VSECRET".into(), Secret::new(b"later".to_vec()))]).await.unwrap();
        let (shown, _) = shell(running, AGENT, SHOW).await;
        assert_eq!(bracketed(&shown)[0], "", "{shown}");
    })
    .await;
}

#[tokio::test]
async fn a_shell_knows_its_terminal_and_a_missing_one_is_reported() {
    with_a_real_guest(async |running| {
        if !running.case.engine().has_program() {
            return running.case.left_out(); // its shells are commands of the link
        }
        let (shown, _) = shell(running, AGENT, "printf '<%s%s%s>' '[' \"$TERM\" ']'; exit\n").await;
        // The engine's `PATH`, or that of the tests.
        assert!(matches!(bracketed(&shown)[..], [kind] if !kind.is_empty()), "{shown}");
        let (engine, id) = (running.case.engine(), &running.id);
        let missing = format!("{engine} exec -it --user 1000:1000 {} /.coracle/guest shell /bin/none", id.as_str());
        let (shown, code) = on_a_terminal(&missing, "").await;
        assert!(shown.contains("cannot run `/bin/none`: No such file"), "{shown}");
        assert_ne!(code, Some(0));
    })
    .await;
}
