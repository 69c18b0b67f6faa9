//! `coracle exec -it` and `coracle shell web -- …`.

use serde_json::json;

use super::{at_a_terminal, text, typed};
use crate::guest::shell::bracketed;
use crate::tool::with_engine;

/// Prints in brackets that do not appear literally in the arguments.
const SHOW: &str = r#"test -t 0 && test -t 1 && for it in "$FORWARDED" "$TERM" "$(pwd)" "$1"; do printf '<%s%s%s>' '[' "$it" ']'; done; exit 7"#;

#[tokio::test]
async fn a_command_gets_the_users_terminal_and_returns_its_code() {
    with_engine("", async |tool| {
        let value = "one 'two' $three";
        let name = tool.created(json!({ "env": { "FORWARDED": value }, "workdir": "/a place" })).await;
        let expected = [value, "vt220", "/a place", "a b"];
        for words in [["shell", &name, "--"], ["exec", "-it", &name]] {
            let dashes: &[&str] = if words[0] == "exec" { &["--"] } else { &[] };
            let words = [&words[..], dashes, &["sh", "-c", SHOW, "sh", "a b"]].concat();
            let (shown, code) = at_a_terminal(tool, &words, "").await;
            assert_eq!((bracketed(&shown), code), (expected.to_vec(), Some(7)), "{words:?}: {shown}");
        }
        let words = ["exec", "-t", "--workdir", "/tmp", &name, "--", "sh", "-c", SHOW];
        assert_eq!(bracketed(&at_a_terminal(tool, &words, "").await.0)[2], "/tmp");
        let (shown, code) = at_a_terminal(tool, &["exec", "-it", &name, "read it; exit $it"], "9\n").await;
        assert_eq!(code, Some(9), "{shown}");
    })
    .await;
}

#[tokio::test]
async fn without_a_terminal_it_is_reported_and_input_still_arrives() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let refused = typed(tool, &["exec", "-it", &name, "--", "true"]).await;
        assert_eq!(refused.status.code(), Some(125));
        let stderr = text(&refused.stderr);
        assert!(
            stderr.contains("needs a terminal") && stderr.contains(&format!("coracle exec -i {name} --")),
            "{stderr}"
        );
        let limited = typed(tool, &["exec", "-it", "--timeout", "3", &name, "--", "true"]).await;
        assert!(text(&limited.stderr).contains("`--timeout` does not go with `-t`"), "{}", text(&limited.stderr));
        let piped = tool.run(["exec", "-i", &name, "--", "cat"], b"through\n").await;
        assert_eq!((text(&piped.stdout), piped.status.code()), ("through\n".to_owned(), Some(0)));
        // The typed text, echoed by the terminal and printed by the command.
        let (shown, code) = at_a_terminal(tool, &["exec", "-i", &name, "--", "head", "-n1"], "typed\n").await;
        assert_eq!((shown.matches("typed").count(), code), (2, Some(0)), "{shown}");
    })
    .await;
}
