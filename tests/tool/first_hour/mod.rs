//! The first hour of a new user: some 120 lines from the README and the pages, and common mistakes, typed on each
//! engine into a pipe or at a terminal.
//!
//! A line has to end with its code, print what a person needs to read, not panic, and leave no unexpected file in the
//! working directory. `target/first-hour.md` has the table of the results.

mod containers;
mod sessions;
mod shell;
mod usage;

use std::fmt::Write as _;

use coracle_types::ImageRef;

use super::newcomer::{Newcomer, Shown};
use super::pages::scene::Scene;
use crate::engines::{Lack, lasting_dir};

/// The place to type a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// Its output goes to another program, as in CI.
    Pipe,
    /// At a terminal, into which that is typed.
    Terminal(&'static str),
}

/// A command line and its expected output.
#[derive(Clone, Copy, Debug)]
struct Step {
    on: On,
    line: &'static str,
    code: i32,
    /// All of these are printed.
    says: &'static [&'static str],
    /// The file that it writes into the working directory.
    makes: Option<&'static str>,
}

/// A line that ends well.
const fn step(line: &'static str, says: &'static [&'static str]) -> Step {
    Step { on: On::Pipe, line, code: 0, says, makes: None }
}

/// A line that ends with that code.
const fn ends(line: &'static str, code: i32, says: &'static [&'static str]) -> Step {
    Step { code, ..step(line, says) }
}

/// The same line at a terminal.
const fn at_terminal(step: Step) -> Step {
    Step { on: On::Terminal(""), ..step }
}

const fn makes(file: &'static str, step: Step) -> Step {
    Step { makes: Some(file), ..step }
}

/// A row of the table.
struct Row {
    step: &'static Step,
    shown: Shown,
    fault: Option<String>,
}

const STEPS: &[&[Step]] = &[usage::FIRST, containers::STEPS, sessions::STEPS, shell::STEPS];

#[tokio::test]
async fn the_first_hour_of_a_newcomer_goes_well() {
    if !coracle_skips::may_download() {
        return;
    }
    let scene = Scene::of("README.md").await;
    let table = std::sync::Mutex::new("# The first hour of a newcomer\n".to_owned());
    scene
        .person()
        .on_real_engines(async |tool| {
            let newcomer = Newcomer::new(tool).await;
            // A test that was killed leaves its snapshot in an engine that others use.
            tool.case.runtime.untag_image(&ImageRef::parse("coracle-snapshot:tooled").unwrap()).await.unwrap();
            scene.begin(&newcomer).await;
            newcomer.has("bad.yaml", "services: { db: { image: x, privileged: true } }\n");
            let mut rows = Vec::new();
            let joined = if tool.case.lacks(Lack::NamedNetworks) { &[] } else { containers::JOINED };
            for step in STEPS.iter().copied().chain([joined, usage::LAST]).flatten() {
                rows.push(typed(&scene, &newcomer, step).await);
            }
            scene.end(&newcomer).await;
            let engine = tool.case.engine();
            table.lock().unwrap().push_str(&format!("\n## {engine}\n\n{}", summary(&rows)));
            std::fs::write(lasting_dir().with_file_name("first-hour.md"), table.lock().unwrap().as_str()).unwrap();
            let faults: Vec<String> =
                rows.iter().filter_map(|it| Some(format!("{}: {}", it.step.line, it.fault.as_ref()?))).collect();
            assert!(faults.is_empty(), "on {engine}:\n{}", faults.join("\n"));
        })
        .await;
}

async fn typed(scene: &Scene, newcomer: &Newcomer<'_>, step: &'static Step) -> Row {
    let before = newcomer.files();
    let line = scene.fill(newcomer, step.line).await;
    let shown = match step.on {
        On::Pipe => scene.types(newcomer, &line).await,
        On::Terminal(typed) => newcomer.types_at_terminal(&line, typed).await,
    };
    let new: Vec<String> = newcomer.files().difference(&before).cloned().collect();
    let fault = fault(step, &shown, &new);
    Row { step, shown, fault }
}

fn fault(step: &Step, shown: &Shown, new: &[String]) -> Option<String> {
    let missing: Vec<_> = step.says.iter().filter(|it| !shown.text.contains(**it)).collect();
    let what = if shown.code != Some(step.code) {
        format!("it ends with {:?} and not {}", shown.code, step.code)
    } else if !missing.is_empty() {
        format!("it does not say {missing:?}")
    } else if shown.text.contains("panicked at") {
        "it panics".to_owned()
    } else if new != step.makes.map(str::to_owned).as_slice() {
        format!("it leaves {new:?} in the working directory")
    } else {
        return None;
    };
    Some(format!("{what}:\n{}", shown.text))
}

/// A table of the lines and their results.
fn summary(rows: &[Row]) -> String {
    let mut table = "| tried | on | exit | it says | as wanted |\n|---|---|--:|---|---|\n".to_owned();
    for it in rows {
        let on = if it.step.on == On::Pipe { "a pipe" } else { "a terminal" };
        let code = it.shown.code.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let first = it.shown.text.lines().find(|it| !it.trim().is_empty()).unwrap_or_default();
        let first: String = first.chars().take(80).collect();
        let fault = it.fault.as_ref().and_then(|it| it.lines().next());
        let cells = [&in_code(it.step.line), on, &code, &in_code(&first), fault.unwrap_or("yes")];
        let _ = writeln!(table, "| {} |", cells.join(" | "));
    }
    table
}

fn in_code(text: &str) -> String {
    if text.trim().is_empty() {
        String::new()
    } else {
        format!("`{}`", text.trim().replace('|', "\\|").replace('\n', "↵"))
    }
}
