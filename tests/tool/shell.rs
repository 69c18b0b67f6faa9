//! A person's terminal in a container, by the published command.

use coracle_types::EngineKind;
use serde_json::json;

use super::with_engine;
use crate::engines::ran;
use crate::guest::shell::{bracketed, on_a_terminal};

/// Prints in brackets that do not stand so in the script.
const SHOW: &str = r#"for it in "$FORWARDED" "$(id -u)" "$(pwd)"; do printf '<%s%s%s>' '[' "$it" ']'; done; exit
"#;

#[tokio::test]
async fn s63_a_users_own_shell_sees_what_exec_sees() {
    with_engine("", async |tool| {
        let value = "one 'two' $three";
        let name = tool.created(json!({ "env": { "FORWARDED": value }, "workdir": "/a place" })).await;
        let expected = tool.prints(&name, SHOW).await;
        assert_eq!(bracketed(&expected), [value, bracketed(&expected)[1], "/a place"], "{expected}");
        let reported = tool.call(json!({ "operation": "exec_interactive_hint", "container": name })).await;
        let command = reported["command"].as_str().unwrap();
        let user = reported["user"].as_str().unwrap();
        let line = match tool.case.engine() {
            EngineKind::Embedded => format!("coracle shell {name}"),
            engine => {
                format!("{engine} exec -it --user {user} --workdir '/a place' {name} /.coracle/guest shell /bin/sh")
            }
        };
        assert_eq!(command, line);
        let (shown, _) = on_a_terminal(&tool.as_typed(command), SHOW).await;
        assert_eq!(bracketed(&shown), bracketed(&expected), "{shown}");
        ran("s63", tool.case.engine());
    })
    .await;
}
