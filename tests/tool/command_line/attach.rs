//! `coracle attach`: a terminal that continues after the user disconnects.

use serde_json::{Value, json};

use super::typing::Typing;
use super::{prints, text, typed};
use crate::tool::{Tool, eventually, with_engine};

/// Ctrl-P Ctrl-Q.
const DETACH: &str = "\x10\x11";

async fn terminals(tool: &Tool<'_>, name: &str) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&prints(tool, &["attach", name, "--list", "--json"]).await).unwrap();
    listed["terminals"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_user_detaches_from_a_shell_and_attaches_again() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let mut first = Typing::start(tool, &["attach", &name]);
        first.until("Ctrl-P Ctrl-Q detaches").await;
        first.keys("kept=was-here; echo be''gun; busybox stty size\r").await;
        first.until("begun").await;
        first.until("30 90").await;
        first.keys(DETACH).await;
        let (code, shown) = first.end().await;
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains(&format!("detached; `coracle attach {name}` returns to it")), "{shown}");
        let open = terminals(tool, &name).await;
        assert_eq!(
            (open.len(), &open[0]["attached"], &open[0]["by_agent"]),
            (1, &0.into(), &false.into()),
            "{open:#?}"
        );

        let mut second = Typing::start(tool, &["attach", &name]);
        // The screen is drawn again before anything is typed.
        second.until("30 90").await;
        second.keys("echo \"<[$kept]>\"\r").await;
        second.until("<[was-here]>").await;
        second.keys("exit 7\r").await;
        assert_eq!(second.end().await.0, Some(7));
        assert!(terminals(tool, &name).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn sizes_and_interrupts_go_inside() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let mut typing = Typing::start(tool, &["attach", &name]);
        typing.keys("echo re''ady\r").await;
        typing.until("ready").await;
        typing.resize(120, 40).await;
        typing.keys("until busybox stty size | grep -q '40 120'; do sleep 0.1; done; echo si''zed\r").await;
        typing.until("sized").await;
        // What prints is what is interrupted: the shell itself ignores it while it starts something.
        typing.keys("sh -c \"echo sle''eping; exec sleep 300\"\r").await;
        typing.until("sleeping").await;
        typing.keys("\x03").await;
        typing.keys("echo inter''rupted; exit\r").await;
        typing.until("interrupted").await;
        assert_eq!(typing.end().await.0.map(|it| it > 128 || it == 0), Some(true));
    })
    .await;
}

#[tokio::test]
async fn a_program_that_draws_on_the_whole_screen_is_left_and_seen_again() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let program = r"printf '\033[?1049h\033[2J\033[5;9Hwho''le'; read -r it; printf '\033[?1049l'; exit 3";
        let mut first = Typing::start(tool, &["attach", &name, "--", "sh", "-c", program]);
        first.until("whole").await;
        first.keys(DETACH).await;
        let (_, shown) = first.end().await;
        assert!(shown.contains("\x1b[?1049l"), "the screen is given back: {shown:?}");
        let mut second = Typing::start(tool, &["attach", &name]);
        second.until("\x1b[?1049h").await;
        second.until("whole").await;
        second.keys("\r").await;
        assert_eq!(second.end().await.0, Some(3));
    })
    .await;
}

#[tokio::test]
async fn an_editor_is_left_and_seen_again() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        tool.prints(&name, "echo first line >/tmp/text").await;
        let mut first = Typing::start(tool, &["attach", &name, "--", "busybox", "vi", "/tmp/text"]);
        first.until("first line").await;
        first.keys(DETACH).await;
        assert_eq!(first.end().await.0, Some(0));
        let mut second = Typing::start(tool, &["attach", &name]);
        second.until("first line").await;
        second.keys("oadded\x1b").await;
        // It is back in command mode: an Escape counts only if nothing follows immediately.
        second.until("- /tmp/text [Modified]").await;
        second.keys(":wq\r").await;
        assert_eq!(second.end().await.0, Some(0));
        assert_eq!(tool.prints(&name, "cat /tmp/text").await, "first line\nadded");
    })
    .await;
}

#[tokio::test]
async fn a_shell_of_an_agent_is_joined_and_left_to_it() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let mut client = crate::tool::mcp::Client::start(&mut tool.command(["mcp"])).await;
        let call = async |client: &mut crate::tool::mcp::Client, call: Value| {
            client.result("containers", &call).await["structuredContent"].take()
        };
        let opened = call(&mut client, json!({ "operation": "shell_open", "container": name, "command": "cat" })).await;
        let shell = opened["shell"].as_str().unwrap_or_else(|| panic!("{opened:#}")).to_owned();
        let open = terminals(tool, &name).await;
        assert_eq!((open.len(), &open[0]["by_agent"]), (1, &true.into()), "{open:#?}");
        // Without its id, a person gets a terminal of their own.
        let id = open[0]["terminal"].as_str().unwrap();
        let mut person = Typing::start(tool, &["attach", &name, id]);
        person.until("back in terminal").await;
        person.keys("from a person\r").await;
        let wait = json!({ "operation": "shell_expect", "shell": shell, "pattern": "from a person\\nfrom a person" });
        assert_eq!(call(&mut client, wait).await["reason"], "match");
        person.keys(DETACH).await;
        assert_eq!(person.end().await.0, Some(0));
        let sent = call(&mut client, json!({ "operation": "shell_send", "shell": shell, "text": "still\n" })).await;
        assert_eq!(
            (&sent["running"], sent["output"].as_str().unwrap().contains("still")),
            (&true.into(), true),
            "{sent:#}"
        );
        let closed = call(&mut client, json!({ "operation": "shell_close", "shell": shell })).await;
        assert_eq!(closed["running"], false, "{closed:#}");
    })
    .await;
}

#[tokio::test]
async fn a_missing_terminal_or_a_wrong_id_is_reported() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let refused = typed(tool, &["attach", &name]).await;
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains("`attach` needs a terminal"), "{}", text(&refused.stderr));
        let (shown, code) = super::at_a_terminal(tool, &["attach", &name, "ffffffff"], "").await;
        assert_eq!(code, Some(1));
        assert!(shown.contains("no terminal `ffffffff` is open"), "{shown}");
        assert!(prints(tool, &["attach", &name, "--list"]).await.contains("no terminal is open"));
        let mut typing = Typing::start(tool, &["attach", &name, "--new"]);
        typing.until("new terminal").await;
        eventually("it is a job", std::time::Duration::from_secs(10), async || {
            tool.call(json!({ "operation": "jobs", "container": name })).await["count"] == 1
        })
        .await;
        let id = terminals(tool, &name).await[0]["terminal"].as_str().unwrap().to_owned();
        prints(tool, &["exec-cancel", &name, &id]).await;
        assert_ne!(typing.end().await.0, Some(0));
    })
    .await;
}
