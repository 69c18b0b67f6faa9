//! `cargo xtask eval [ENGINE]`: recorded tasks, played by scripted models over MCP with the present toolset and with the single tool
//! before it; calls, tokens, seconds and success go into `docs/bench/agents.md`. With `ANTHROPIC_API_KEY` and `CORACLE_EVAL_MODEL` in the
//! environment that model plays the same tasks, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::sh::{root, sh, target};
use crate::{bench, clients, engines, guest};

/// Toolsets, and what they are called on the page.
const TOOLSETS: [(&str, &str); 2] = [("classic", "single tool"), ("agent", "small tools")];

const HABITS: [&str; 3] = ["careful", "hasty", "confused"];

pub(crate) fn run(words: &[String]) -> Result<()> {
    let engine = match words {
        [] => "docker",
        [engine] => engine,
        // What was played before, without playing it again.
        [word, played] if word == "page" => return write(&serde_json::from_str(&fs::read_to_string(played)?)?),
        _ => bail!("usage: cargo xtask eval [ENGINE], or eval page PLAYED"),
    };
    if engine != "embedded" {
        engines::up(Some(engine))?;
    }
    clients::ensure();
    guest::build_small(&guest::PROGRAMS)?;
    let packages = ["--package", "coracle-cli", "--package", "coracle-tests"];
    let programs = ["--bin", "coracle", "--example", "agent_eval"];
    sh("cargo", ["build", "--release"].into_iter().chain(packages).chain(programs)).run()?;
    let (built, dir) = (target().join("release"), target().join("bench"));
    fs::create_dir_all(&dir)?;
    let played = dir.join("agents.json");
    let words = [played.clone(), built.join("coracle"), engine.into()];
    sh(built.join("examples/agent_eval"), words).run()?;
    write(&serde_json::from_str(&fs::read_to_string(&played)?)?)
}

fn write(played: &Value) -> Result<()> {
    let page = page(&counted(played)?, &bench::machine()?)?;
    fs::write(root().join("docs/bench/agents.md"), &page)?;
    println!("\n{page}");
    Ok(())
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

/// Sums over the tasks of one toolset and habit.
#[derive(Default)]
struct Sums {
    tasks: u64,
    done: u64,
    calls: u64,
    tokens: u64,
    seconds: f64,
}

fn page(counted: &Value, machine: &str) -> Result<String> {
    let runs = counted["runs"].as_array().context("no `runs`")?;
    let mut sums: BTreeMap<(&str, &str), Sums> = BTreeMap::new();
    for run in runs {
        let word = |name: &str| run[name].as_str().unwrap_or_default();
        let sums = sums.entry((word("toolset"), word("habit"))).or_default();
        sums.tasks += 1;
        sums.done += u64::from(run["failed"].is_null());
        sums.calls += run["calls"].as_u64().unwrap_or_default();
        sums.tokens += run["tokens"].as_u64().unwrap_or_default();
        sums.seconds += run["seconds"].as_f64().unwrap_or_default();
    }
    let engine = counted["engine"].as_str().unwrap_or_default();
    let mut page = format!(
        "# Agents at work: calls, tokens, success\n\n\
         Written by `cargo xtask eval`. {machine}; {engine}.\n\n\
         Scripted models play recorded tasks over MCP, each in a session of its own, and know what the texts of the answers say and \
         nothing else. A *careful* one reads before it changes and waits before it probes; a *hasty* one does not, and \
         recovers by what it is told; a *confused* one takes each name of a tool, an operation or a field wrong at first, and \
         goes on only if the error names the right one. *Before* is the single tool with the session tools beside it, \
         *after* the small tools. Tokens are those of calls and answers, by the tokenizer that counts more (npm's `gpt-tokenizer` \
         and `@anthropic-ai/tokenizer`), for all tasks together; seconds include the start and the end of each session.\n\n\
         | | done | calls | tokens | seconds |\n|---|--:|--:|--:|--:|\n"
    );
    let real = runs.iter().filter_map(|it| it["habit"].as_str()).filter(|it| !HABITS.contains(it));
    for habit in HABITS.into_iter().chain(real.collect::<BTreeSet<_>>()) {
        for (toolset, label) in TOOLSETS {
            let Some(it) = sums.get(&(toolset, habit)) else { continue };
            let when = if toolset == "agent" { "after" } else { "before" };
            writeln!(
                page,
                "| {habit}, {when} ({label}) | {}/{} | {} | {} | {:.0} |",
                it.done, it.tasks, it.calls, it.tokens, it.seconds
            )?;
        }
    }
    page.push_str("\n| list of tools, once a session | tokens |\n|---|--:|\n");
    for list in counted["lists"].as_array().into_iter().flatten() {
        writeln!(page, "| {} | {} |", list["toolset"].as_str().unwrap_or_default(), list["tokens"])?;
    }
    page.push_str(
        "\n## Each task, careful\n\n| task | calls before | after | tokens before | after |\n|---|--:|--:|--:|--:|\n",
    );
    for task in runs.iter().filter(|it| it["toolset"] == "agent" && it["habit"] == "careful") {
        let before =
            runs.iter().find(|it| it["task"] == task["task"] && it["toolset"] == "classic" && it["habit"] == "careful");
        let before = before.unwrap_or(&Value::Null);
        let name = task["task"].as_str().unwrap_or_default();
        writeln!(
            page,
            "| {name} | {} | {} | {} | {} |",
            before["calls"], task["calls"], before["tokens"], task["tokens"]
        )?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn the_page_sums_what_was_played() {
        let run = |toolset: &str, failed: Option<&str>, calls: u32| {
            json!({ "task": "write", "toolset": toolset, "habit": "careful", "failed": failed, "calls": calls, "tokens": 10 * calls,
                "seconds": 1.5 })
        };
        let runs = [run("classic", Some("stuck"), 4), run("agent", None, 2), run("agent", None, 1)];
        let lists = [json!({ "toolset": "agent", "tokens": 1800 })];
        let page = super::page(&json!({ "engine": "docker", "lists": lists, "runs": runs }), "a machine").unwrap();
        assert!(page.contains("| careful, before (single tool) | 0/1 | 4 | 40 | 2 |"), "{page}");
        assert!(page.contains("| careful, after (small tools) | 2/2 | 3 | 30 | 3 |"), "{page}");
        assert!(page.contains("| agent | 1800 |") && page.contains("| write | 4 | 2 | 40 | 20 |"), "{page}");
    }
}
