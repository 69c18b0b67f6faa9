//! The shells of a session: programs on terminals in containers, driven from call to call.

use std::time::Duration;

use coracle::CallInput;
use coracle_context::Frontend;
use coracle_runtime::fake::Reply;
use coracle_types::Exit;
use serde_json::{Value, json};

use super::debian::{DEBIAN, debian};
use super::mcp::Client;
use super::{Tool, eventually, with_rootful_engine, without_engine};

/// A client, and a container with Python.
async fn with_python(tool: &Tool<'_>, more: Value) -> (Client, String) {
    let mut call = json!({ "image": debian(tool.case).await });
    super::merge(call.as_object_mut().unwrap(), more);
    let mut client = Client::start(&mut tool.command(["mcp"])).await;
    let created = client.result("containers", &tool.create_call(call)).await["structuredContent"].take();
    let name = created["container"].as_str().unwrap_or_else(|| panic!("{created:#}")).to_owned();
    (client, name)
}

async fn operation(client: &mut Client, operation: &str, more: Value) -> Value {
    let mut call = json!({ "operation": operation });
    super::merge(call.as_object_mut().unwrap(), more);
    client.result("containers", &call).await["structuredContent"].take()
}

async fn open(client: &mut Client, container: &str, more: Value) -> (String, Value) {
    let mut call = json!({ "container": container });
    super::merge(call.as_object_mut().unwrap(), more);
    let opened = operation(client, "shell_open", call).await;
    assert_eq!(opened["success"], true, "{opened:#}");
    (opened["shell"].as_str().unwrap().to_owned(), opened)
}

async fn send(client: &mut Client, shell: &str, text: &str) -> String {
    let sent = operation(client, "shell_send", json!({ "shell": shell, "text": text })).await;
    assert_eq!(sent["success"], true, "{sent:#}");
    sent["output"].as_str().unwrap().to_owned()
}

/// The processes of a program inside.
async fn count(client: &mut Client, container: &str, words: &str) -> String {
    let script = format!("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o '{words}' | wc -l");
    // The script itself names it, and the shell of that.
    let ran = operation(client, "exec", json!({ "container": container, "command": ["sh", "-c", script] })).await;
    ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran:#}")).trim().to_owned()
}

const PROGRAM: &str =
    "def area(width, height):\n    size = width * height\n    return size\n\nprint('area', area(6, 7))\n";

#[tokio::test]
async fn a_repl_and_a_debugger_are_driven_to_a_value() {
    with_rootful_engine("", async |tool| {
        let (mut client, name) = with_python(tool, json!({ "config_files": { "/srv/area.py": PROGRAM } })).await;
        let python = json!({ "command": ["python3", "-q"] });
        let (repl, opened) = open(&mut client, &name, python).await;
        assert_eq!((&opened["output"], &opened["reason"]), (&">>> ".into(), &"quiet".into()), "{opened:#}");
        assert_eq!(send(&mut client, &repl, "x = 6\n").await, "x = 6\n>>> ");
        assert_eq!(send(&mut client, &repl, "x * 7\n").await, "x * 7\n42\n>>> ");
        assert_eq!(send(&mut client, &repl, "for i in range(2): print(i)\n\n").await.matches('\n').count(), 4);

        let (pdb, _) = open(&mut client, &name, json!({ "command": "python3 -m pdb /srv/area.py" })).await;
        send(&mut client, &pdb, "b area\nc\n").await;
        let at = send(&mut client, &pdb, "n\nn\n").await;
        assert!(at.contains("return size") && at.ends_with("(Pdb) "), "{at}");
        assert_eq!(send(&mut client, &pdb, "p size\n").await, "p size\n42\n(Pdb) ");
        // Two terminals, and each continues where it was.
        assert_eq!(send(&mut client, &repl, "x\n").await, "x\n6\n>>> ");
        let closed = operation(&mut client, "shell_close", json!({ "shell": repl })).await;
        assert_eq!((&closed["running"], &closed["tree_ended"]), (&false.into(), &true.into()), "{closed:#}");
        send(&mut client, &pdb, "c\nq\n").await;
        let ended = operation(&mut client, "shell_expect", json!({ "shell": pdb, "pattern": "never" })).await;
        assert_eq!((&ended["reason"], &ended["exit_code"]), (&"ended".into(), &0.into()), "{ended:#}");
        let late = operation(&mut client, "shell_send", json!({ "shell": pdb, "text": "x" })).await;
        assert_eq!(late["code"], "shell_ended", "{late:#}");
        client.end().await;
    })
    .await;
}

#[tokio::test]
async fn keys_interrupt_and_a_wait_that_is_over_keeps_the_text() {
    with_rootful_engine("", async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let created = client.result("containers", &tool.create_call(json!({}))).await["structuredContent"].take();
        let name = created["container"].as_str().unwrap().to_owned();
        let (shell, _) = open(&mut client, &name, json!({ "env": { "PS1": "ready> " } })).await;
        send(&mut client, &shell, "echo before; sleep 4711; echo never\n").await;
        let expect = |pattern: &str, timeout: f64| json!({ "shell": shell, "pattern": pattern, "timeout": timeout });
        let late = operation(&mut client, "shell_expect", expect("^never$", 0.3)).await;
        assert_eq!((&late["success"], &late["reason"]), (&true.into(), &"timeout".into()), "{late:#}");
        let sent = operation(&mut client, "shell_send", json!({ "shell": shell, "keys": "ctrl-c" })).await;
        assert!(sent["output"].as_str().unwrap().ends_with("ready> "), "{sent:#}");
        assert_eq!(count(&mut client, &name, "sleep [4]711").await, "0");

        let call =
            json!({ "shell": shell, "text": "(sleep 1; echo one two; sleep 1; echo three) &\n", "timeout": 0.1 });
        operation(&mut client, "shell_send", call).await;
        let late = operation(&mut client, "shell_expect", expect("four", 2.5)).await;
        assert!(late["output"].as_str().unwrap().contains("one two\nthree\n"), "{late:#}");
        let matched = operation(&mut client, "shell_expect", expect(r"o\w+ t", 5.0)).await;
        assert_eq!((&matched["reason"], &matched["match"]), (&"match".into(), &"one t".into()), "{matched:#}");
        assert!(matched["output"].as_str().unwrap().ends_with("one t"), "{matched:#}");
        let rest = operation(&mut client, "shell_read", json!({ "shell": shell })).await;
        assert!(rest["output"].as_str().unwrap().starts_with("wo\nthree\n"), "{rest:#}");
        let wrong = operation(&mut client, "shell_send", json!({ "shell": shell, "keys": ["hyper-x"] })).await;
        assert_eq!(
            (&wrong["code"], &wrong["details"]["field"]),
            (&"invalid_input".into(), &"keys".into()),
            "{wrong:#}"
        );
        client.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_program_that_draws_is_shown_as_its_screen() {
    with_rootful_engine("", async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let created = client.result("containers", &tool.create_call(json!({}))).await["structuredContent"].take();
        let name = created["container"].as_str().unwrap().to_owned();
        let size =
            json!({ "command": "printf 'one\\ntwo\\n' > /tmp/f; vi /tmp/f; stty size", "columns": 40, "rows": 8 });
        let (vi, opened) = open(&mut client, &name, size).await;
        let screen = opened["screen"].as_str().unwrap_or_else(|| panic!("{opened:#}"));
        assert!(screen.starts_with("one\ntwo\n~\n") && screen.lines().count() == 8, "{opened:#}");
        assert_eq!((&opened["cursor"], &opened["output"]), (&json!([1, 1]), &"".into()), "{opened:#}");
        let sent =
            operation(&mut client, "shell_send", json!({ "shell": vi, "text": "Athree", "keys": ["escape", "down"] }));
        let sent = sent.await;
        assert!(sent["screen"].as_str().unwrap().starts_with("onethree\ntwo\n~\n"), "{sent:#}");
        let seen = operation(&mut client, "shell_expect", json!({ "shell": vi, "pattern": "onethree" })).await;
        assert_eq!((&seen["reason"], &seen["match"]), (&"match".into(), &"onethree".into()), "{seen:#}");
        let left = operation(&mut client, "shell_send", json!({ "shell": vi, "text": ":q!\n" })).await;
        assert_eq!((&left["reason"], &left["exit_code"]), (&"ended".into(), &0.into()), "{left:#}");
        assert!(left["screen"].is_null() && left["output"].as_str().unwrap().contains("8 40"), "{left:#}");
        client.end().await;
    })
    .await;
}

#[tokio::test]
async fn secrets_are_taken_out_of_what_a_shell_shows() {
    const SECRET: &str = "a-password-of-create";
    with_rootful_engine("[exec]\nredact = true\n", async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let call = tool.create_call(json!({ "env": { "DB_PASSWORD": SECRET } }));
        let created = client.result("containers", &call).await["structuredContent"].take();
        let name = created["container"].as_str().unwrap().to_owned();
        let (shell, _) = open(&mut client, &name, json!({})).await;
        let text = "for i in 1 2 3; do printf a-pass; sleep 0.1; echo word-of-create; done; echo $DB_PASSWORD\n";
        let sent = operation(&mut client, "shell_send", json!({ "shell": shell, "text": text })).await;
        let read = operation(&mut client, "shell_read", json!({ "shell": shell, "screen": true })).await;
        for answer in [&sent, &read] {
            assert!(!answer.to_string().contains("word-of-create\\n"), "{answer:#}");
            assert!(!answer.to_string().contains(SECRET), "{answer:#}");
        }
        assert_eq!(sent["output"].as_str().unwrap().matches("[redacted:DB_PASSWORD]").count(), 4, "{sent:#}");
        assert_eq!(read["screen"].as_str().unwrap().matches("[redacted:DB_PASSWORD]").count(), 4, "{read:#}");
        client.end().await;
        // The audit log has neither input nor output.
        let log = std::fs::read_dir(tool.state().join("audit")).unwrap();
        let log: String = log.filter_map(|it| std::fs::read_to_string(it.unwrap().path()).ok()).collect();
        assert!(log.contains("shell_send") && !log.contains("printf"), "{log}");
    })
    .await;
}

#[tokio::test]
async fn a_shell_ends_with_all_that_it_started_and_with_its_container_and_its_session() {
    with_rootful_engine("", async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let create = tool.create_call(json!({ "persistent": true }));
        let created = client.result("containers", &create).await["structuredContent"].take();
        let name = created["container"].as_str().unwrap().to_owned();
        let (shell, _) = open(&mut client, &name, json!({})).await;
        send(&mut client, &shell, "sleep 4712 & (trap '' HUP TERM; sleep 4712)\n").await;
        assert_eq!(count(&mut client, &name, "sleep [4]712").await, "2");
        let closed = operation(&mut client, "shell_close", json!({ "shell": shell })).await;
        assert_eq!((&closed["success"], &closed["tree_ended"]), (&true.into(), &true.into()), "{closed:#}");
        assert_eq!(count(&mut client, &name, "sleep [4]712").await, "0");
        let gone = operation(&mut client, "shell_read", json!({ "shell": shell })).await;
        assert_eq!(
            (&gone["code"], &gone["details"]["shell"]),
            (&"no_such_shell".into(), &shell.as_str().into()),
            "{gone:#}"
        );

        // One terminal stays open when the session ends, in a container that stays.
        let (last, _) = open(&mut client, &name, json!({ "command": ["sleep", "4713"] })).await;
        assert_ne!(last, shell);
        client.end().await;
        let ended = async || tool.exec(&name, "pgrep -f 'sleep [4]713'").await["stdout"] == "";
        eventually("the shell ends with its session", Duration::from_secs(10), ended).await;

        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let (one, _) = open(&mut client, &name, json!({})).await;
        let other = client.result("containers", &tool.create_call(json!({}))).await["structuredContent"].take();
        let (two, _) = open(&mut client, other["container"].as_str().unwrap(), json!({})).await;
        let destroyed = operation(&mut client, "destroy", json!({ "container": name })).await;
        assert_eq!(destroyed["success"], true, "{destroyed:#}");
        let gone = operation(&mut client, "shell_send", json!({ "shell": one, "text": "x\n" })).await;
        assert_eq!(gone["code"], "no_such_shell", "{gone:#}");
        assert!(gone["hint"].as_str().unwrap().contains(&format!("`{two}` in ")), "{gone:#}");
        client.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_session_has_so_many_shells_and_a_single_call_has_none() {
    without_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let open = json!({ "operation": "shell_open", "container": name, "command": "greet" });
        let single = tool.call(open.clone()).await;
        assert_eq!(
            (&single["code"], &single["details"]["capability"]),
            (&"unsupported".into(), &"shell".into()),
            "{single:#}"
        );
        assert!(single["hint"].as_str().unwrap().contains("MCP"));

        let hour = Duration::from_secs(3600);
        let asks = Reply::new(Exit::Code(0), "name? ", "").after(hour);
        tool.case.fake().unwrap().replies("greet", vec![asks; 17]);
        let mut process = tool.library.clone().unwrap();
        process.context.call.frontend = Frontend::Mcp;
        let call = async |call: Value| -> Value {
            let table = coracle::operations::ALL;
            coracle::execute(table, &process, CallInput::Object(call.as_object().unwrap().clone())).await.json.into()
        };
        let none = call(json!({ "operation": "shell_read", "shell": "s1" })).await;
        assert_eq!(
            (&none["code"], &none["hint"]),
            (&"no_such_shell".into(), &"`shell_open` opens one; none is open".into())
        );
        for number in 1..=16 {
            let opened = call(open.clone()).await;
            assert_eq!(
                (&opened["shell"], &opened["output"]),
                (&format!("s{number}").into(), &"name? ".into()),
                "{opened:#}"
            );
        }
        let full = call(open.clone()).await;
        assert_eq!((&full["code"], &full["details"]["limit"]), (&"limit_reached".into(), &16.into()), "{full:#}");
        let closed = call(json!({ "operation": "shell_close", "shell": "s3" })).await;
        assert_eq!((&closed["success"], &closed["running"]), (&true.into(), &false.into()), "{closed:#}");
        assert_eq!(call(open.clone()).await["shell"], "s17");
        process.end_interactive().await;
        assert_eq!(call(json!({ "operation": "shell_read", "shell": "s17" })).await["code"], "no_such_shell");
    })
    .await;
}

#[tokio::test]
async fn the_tools_of_the_machine_reach_shells_and_interpreters() {
    with_rootful_engine("", async |tool| {
        assert_eq!(debian(tool.case).await, DEBIAN);
        let mut client = Client::start(&mut tool.command(["mcp", "--toolsets", "agent"])).await;
        let mut create = tool.create_call(json!({ "image": DEBIAN }));
        create.as_object_mut().unwrap().remove("operation");
        let text = |result: &Value| result["content"][0]["text"].as_str().unwrap().to_owned();
        let created = text(&client.result("create", &create).await);
        let name = created.split_once(" is ready: ").unwrap_or_else(|| panic!("{created}")).0.to_owned();
        let python = |code: &str| json!({ "code": code, "container": name });
        assert_eq!(text(&client.result("python", &python("x = 6")).await), "[exit 0]");
        let picture = "print('drawn')\nclass P:\n    def _repr_png_(self): return b'\\x89PNG'\nP()";
        let shown = client.result("python", &python(picture)).await;
        assert_eq!(
            (text(&shown).as_str(), &shown["content"][1]["type"]),
            ("drawn\n[image/png, 4 bytes]", &"image".into())
        );
        assert_eq!(text(&client.result("python", &python("x * 7")).await), "42");
        let open = json!({ "operation": "shell_open", "container": name, "command": ["python3", "-q"] });
        assert_eq!(text(&client.result("containers", &open).await), ">>> \n[shell s1 runs]");
        let send = json!({ "operation": "shell_send", "shell": "s1", "text": "6 * 7\n" });
        assert_eq!(text(&client.result("containers", &send).await), "6 * 7\n42\n>>> \n[shell s1 runs]");
        let close = json!({ "operation": "shell_close", "shell": "s1" });
        assert_eq!(text(&client.result("containers", &close).await), "[shell s1 ended]");
        let destroyed = client.result("destroy", &json!({ "container": name })).await;
        assert_eq!(destroyed["isError"], false, "{destroyed:#}");
        client.end().await;
    })
    .await;
}
