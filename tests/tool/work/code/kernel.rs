//! Interpreters that keep variables from call to call.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::super::mcp::Client;
use super::super::super::{Person, eventually, with_rootful_engine};
use super::super::{Agent, configured, in_session};
use super::{SNIPPETS, make_snippets, with_snippets};

/// The smallest PNG: one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// Imitations of pandas and images, without their packages.
const STAND_INS: &str = r#"
import base64
class Picture:
    def _repr_png_(self): return base64.b64decode("PIXEL")
class DataFrame:
    def __len__(self): return 2
    def to_string(self, max_rows): return "   a\n0  1\n1  2"
    def to_json(self, **how): return '{"columns":["a"],"index":[0,1],"data":[[1],[2]]}'
class Rows:
    def __getitem__(self, at): return DataFrame()
DataFrame.iloc = Rows()
DataFrame.__module__ = "pandas.core.frame"
"#;

async fn python(agent: &Agent<'_>, code: &str, more: Value) -> Value {
    let mut call = json!({ "code": code, "persistent": true });
    call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agent.call("evaluate_python", call).await
}

/// The fake's programs are the host's.
async fn with_kernels(check: impl AsyncFn(&Agent<'_>)) {
    let fake = Person::new(configured(""));
    fake.on_the_fake(async |tool| in_session(tool, &check).await).await;
    with_snippets(true, check).await;
}

#[tokio::test]
async fn variables_stay_and_the_last_expression_is_shown() {
    with_kernels(async |agent| {
        let first = python(agent, "x = 20\nprint('printed')\nx + 1", json!({})).await;
        let value = &first["value"];
        assert_eq!((&value["value_repr"], &value["stdout"]), (&"21".into(), &"printed\n".into()), "{first:#}");
        assert_eq!(value["outputs"], json!([{ "type": "text/plain", "text": "21" }]), "{first:#}");
        assert_eq!(value["kernel"], json!({ "runs": 1 }), "{first:#}");
        // An exception is reported, and changes no existing variables.
        let raised = python(agent, "y = 5\nx / 0", json!({})).await;
        assert_eq!((&raised["success"], &raised["code"]), (&false.into(), &"evaluation_failed".into()), "{raised:#}");
        assert_eq!(raised["message"], "Evaluation failed: ZeroDivisionError: division by zero.");
        let stderr = raised["value"]["stderr"].as_str().unwrap();
        assert!(stderr.contains("line 2, in <module>\n    x / 0") && !stderr.contains("in execute"), "{stderr}");
        let retained =
            python(agent, "import subprocess\nsubprocess.run(['echo', 'of a child'])\nx + y", json!({})).await;
        assert_eq!(
            (&retained["value"]["value_repr"], &retained["value"]["kernel"]["runs"]),
            (&"25".into(), &3.into()),
            "{retained:#}"
        );
        assert_eq!(retained["value"]["stdout"], "of a child\n", "{retained:#}");
        let wrong = python(agent, "def f(:", json!({})).await;
        assert!(wrong["message"].as_str().unwrap().contains("SyntaxError"), "{wrong:#}");
        for code in ["import sys; sys.exit(3)", "raise KeyboardInterrupt"] {
            assert_eq!(python(agent, code, json!({})).await["value"]["exit_code"], 1, "{code}");
        }
        let restarted = python(agent, "'x' in globals()", json!({ "restart": true })).await;
        assert_eq!(
            (&restarted["value"]["value_repr"], &restarted["value"]["kernel"]["runs"]),
            (&"False".into(), &1.into())
        );
        let alone = agent.call("evaluate_python", json!({ "code": "print(1)" })).await;
        assert!(alone["value"].get("kernel").is_none() && alone["value"]["value_repr"].is_null(), "{alone:#}");
        assert_eq!(agent.code("evaluate_python", json!({ "code": "1", "restart": true })).await, "not_supported");
    })
    .await;
}

#[tokio::test]
async fn pictures_tables_and_files_are_answered_as_what_they_are() {
    with_kernels(async |agent| {
        python(agent, &STAND_INS.replace("PIXEL", PIXEL), json!({})).await;
        let shown =
            python(agent, "display(Picture())\nopen('report.txt', 'w').write('1234')\nDataFrame()", json!({})).await;
        let value = &shown["value"];
        let kinds: Vec<&str> =
            value["outputs"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["image/png", "text/plain", "table"], "{shown:#}");
        let table = json!({ "type": "table", "columns": ["a"], "rows": [[1], [2]], "index": [0, 1], "row_count": 2 });
        assert_eq!(value["outputs"][2], table, "{shown:#}");
        assert_eq!(value["files"], json!([{ "path": "report.txt", "bytes": 4 }]), "{shown:#}");
        let read = agent.value("read_file", json!({ "file_path": "report.txt" })).await;
        assert!(read.to_string().contains("1234"), "{read:#}");
    })
    .await;
}

/// Each cell, and its output.
const NOTEBOOK: &[(&str, &str)] = &[
    ("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 6\nx = await f()\nx", "6"),
    ("await f() * 7", "42"),
    ("from IPython.display import display, HTML, Markdown\ndisplay(HTML('<b>bold</b>'))", "<b>bold</b>"),
    ("display(Markdown('**strong**'), 8)", "**strong** 8"),
    ("%matplotlib inline\n%load_ext autoreload", ""),
    ("!echo $x {x + 1}", "6 7"),
    ("lines = !echo one; echo two\nlines", "['one', 'two']"),
    ("%cd /tmp\n!pwd", "/tmp"),
    ("%%bash\necho $((6 * 7))", "42"),
    ("if x:\n    !echo inside", "inside"),
    ("text = '''\n%kept\n'''\n!echo\ntext", r"'\n%kept\n'"),
    ("Out[1], _2", "(6, 42)"),
    (
        "class P:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/html': '<svg/>'}\nP()",
        "<svg/>",
    ),
    ("class M:\n    def _repr_markdown_(self): return '# m'\nM()", "# m"),
    ("class L:\n    def _repr_latex_(self): return '$l$'\nL()", "$l$"),
    ("x % 4", "2"),
];

#[tokio::test]
async fn notebook_syntax_of_models_runs() {
    with_kernels(async |agent| {
        for (code, expected) in NOTEBOOK {
            let answer = python(agent, code, json!({})).await;
            let value = &answer["value"];
            let shown = value["outputs"].as_array().into_iter().flatten().filter_map(|it| it["text"].as_str());
            let shown = shown.chain(value["stdout"].as_str()).collect::<Vec<_>>().join(" ");
            assert!(value["exit_code"] == 0 && shown.contains(expected), "{code}: {answer:#}");
        }
        let missing = python(agent, "%teleport there", json!({})).await;
        assert!(missing["message"].as_str().unwrap().contains("there is no magic `%teleport` here"), "{missing:#}");
        let ended = python(agent, "await f()\nraise KeyboardInterrupt", json!({})).await;
        assert_eq!(ended["value"]["exit_code"], 1, "{ended:#}");
        assert_eq!(python(agent, "await f()", json!({})).await["value"]["value_repr"], "6");
    })
    .await;
}

#[tokio::test]
async fn at_its_limit_a_run_is_interrupted_and_one_that_does_not_obey_loses_its_variables() {
    with_snippets(false, async |agent| {
        let run = async |code: &str, more: Value| -> Value {
            let mut call = json!({ "code": code, "persistent": true });
            call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            agent.call("run_code", call).await
        };
        let first = run("x = 7\nx", json!({})).await;
        assert_eq!((&first["success"], &first["language"]), (&true.into(), &"python".into()), "{first:#}");
        let begun = Instant::now();
        let late = run("print('so far', flush=True)\nimport time\ntime.sleep(60)", json!({ "timeout": 1 })).await;
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(
            (&late["timedOut"], &late["code"], &late["exitCode"]),
            (&true.into(), &"timed_out".into(), &124.into()),
            "{late:#}"
        );
        assert_eq!((&late["output"], &late["kernel"]), (&"so far\n".into(), &json!({ "runs": 2 })), "{late:#}");
        assert!(late["stderr"].as_str().unwrap().contains("variables are preserved"), "{late:#}");
        assert_eq!(run("x", json!({})).await["outputs"][0]["text"], "7");
        let stubborn = "while True:\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n        pass";
        let lost = run(stubborn, json!({ "timeout": 1 })).await;
        assert_eq!((&lost["timedOut"], &lost["kernel"]["runs"]), (&true.into(), &4.into()), "{lost:#}");
        assert!(lost["kernel"]["lost"].as_str().unwrap().contains("did not obey"), "{lost:#}");
        let new = run("'x' in globals()", json!({})).await;
        assert_eq!((&new["outputs"][0]["text"], &new["kernel"]["runs"]), (&"False".into(), &1.into()), "{new:#}");
        let gone = run("import os\nprint('last', flush=True)\nos._exit(9)", json!({})).await;
        assert_eq!((&gone["exitCode"], &gone["output"]), (&9.into(), &"last\n".into()), "{gone:#}");
        assert_eq!(gone["kernel"]["lost"], "it exited with 9", "{gone:#}");
        for (more, says) in [(json!({ "language": "bash" }), "Only Python"), (json!({ "stdin": "x" }), "`stdin`")] {
            let refused = run("1", more).await;
            assert_eq!(refused["code"], "not_supported", "{refused:#}");
            assert!(refused["error"].as_str().unwrap().contains(says), "{refused:#}");
        }
        // A replacement during the call is reported.
        run("z = 1", json!({})).await;
        assert!(agent.tool.engine(&["kill", &agent.container("run").unwrap()]).await.0);
        let replaced = run("'z' in globals()", json!({})).await;
        assert_eq!(replaced["outputs"][0]["text"], "False", "{replaced:#}");
        assert!(replaced["warnings"].to_string().contains("kernel_lost"), "{replaced:#}");
    })
    .await;
}

#[tokio::test]
async fn over_mcp_a_picture_is_content_of_its_own_and_a_container_that_is_named_has_a_kernel_too() {
    make_snippets().await;
    let config = format!("[workspace]\nimage = \"{SNIPPETS}\"\n[run_code]\nimage = \"{SNIPPETS}\"\n");
    with_rootful_engine(&config, async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let code = format!("{}\nkept = 5\nPicture()", STAND_INS.replace("PIXEL", PIXEL));
        for name in ["run_code", "evaluate_python"] {
            let result = client.result(name, &json!({ "code": code, "persistent": true })).await;
            let image = &result["content"][1];
            assert_eq!((&image["type"], &image["mimeType"]), (&"image".into(), &"image/png".into()), "{result:#}");
            let png = STANDARD.decode(image["data"].as_str().unwrap()).unwrap();
            assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.ends_with(b"IEND\xaeB`\x82"));
            let answer = &result["structuredContent"];
            let outputs = if answer["value"].is_object() { &answer["value"]["outputs"] } else { &answer["outputs"] };
            assert_eq!(outputs, &json!([{ "type": "image/png", "bytes": png.len() }]), "{result:#}");
            assert!(result["content"][0]["text"].as_str().unwrap().contains("[image/png]"), "{result:#}");
        }
        let create = tool.create_call(json!({ "image": SNIPPETS, "persistent": true }));
        let created = client.result("containers", &create).await["structuredContent"].take();
        let name = created["container"].as_str().unwrap_or_else(|| panic!("{created:#}")).to_owned();
        let call = |code: &str| json!({ "code": code, "persistent": true, "container": name });
        client.result("evaluate_python", &call("kept = 6")).await;
        let retained = client.result("evaluate_python", &call("kept")).await;
        assert_eq!(retained["structuredContent"]["value"]["value_repr"], "6", "{retained:#}");
        let kernels = async || {
            let all = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '[p]ython3 -c'";
            tool.exec(&name, all).await["stdout"].as_str().unwrap().trim().to_owned()
        };
        assert_eq!(kernels().await, "1");
        client.end().await;
        let ended = async || kernels().await == "0";
        eventually("the kernel ends with its session", Duration::from_secs(10), ended).await;
    })
    .await;
}
