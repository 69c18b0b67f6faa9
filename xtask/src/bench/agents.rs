//! `cargo xtask eval [ENGINE]`: recorded tasks, played by scripted models over MCP with the present toolset and with the single tool
//! before it; calls, tokens, seconds and success go into `docs/bench/agents.md`. With `ANTHROPIC_API_KEY` and `CORACLE_EVAL_MODEL` in the
//! environment that model plays the same tasks, too.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::sh::{root, sh, target};
use crate::{clients, engines};

pub(super) const PAGE: &str = include_str!("pages/agents.jinja");

pub(crate) fn run(words: &[String]) -> Result<()> {
    let engine = match words {
        [] => "docker",
        [engine] => engine,
        // What was played before, without playing it again.
        [word, played] if word == "page" => return write(Path::new(played)),
        _ => bail!("usage: cargo xtask eval [ENGINE], or eval page PLAYED"),
    };
    if engine != "embedded" {
        engines::up(Some(engine))?;
    }
    clients::ensure();
    let (built, played) = (super::build("agent_eval")?, target().join("bench/agents.json"));
    let words = [played.clone(), built.join("coracle"), engine.into()];
    sh(built.join("examples/agent_eval"), words).run()?;
    write(&played)
}

fn write(played: &Path) -> Result<()> {
    super::write("agents", PAGE, &counted(&super::read(played)?)?)
}

/// What was played, with tokens in place of texts.
fn counted(played: &Value) -> Result<Value> {
    let list = |name: &str| played[name].as_array().cloned().with_context(|| format!("no `{name}`"));
    let (mut runs, mut lists) = (list("runs")?, list("lists")?);
    let of_run = |it: &Value| {
        let texts = it["texts"].as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join("\n")
    };
    let texts: Vec<String> = lists.iter().map(|it| it["text"].as_str().unwrap_or_default().to_owned()).collect();
    let texts: Vec<String> = texts.into_iter().chain(runs.iter().map(of_run)).collect();
    let file = target().join("bench/texts.json");
    fs::write(&file, json!(texts).to_string())?;
    let script = root().join("tests/clients/count_tokens.cjs");
    let node = sh("node", [script, file]).env("NODE_PATH", target().join("tools/node_modules"));
    let counts: Vec<[u64; 2]> = serde_json::from_str(&node.read()?)?;
    for (it, counts) in lists.iter_mut().chain(&mut runs).zip(counts) {
        it["tokens"] = counts.into_iter().max().into();
    }
    Ok(json!({ "engine": played["engine"], "lists": lists, "runs": runs }))
}
