//! Plays 30 recorded tasks with scripted models of three habits, for `cargo xtask eval`.
//!
//! `agent_eval OUT CORACLE ENGINE` writes JSON to the file `OUT`: for each task, toolset and habit its calls, seconds, success,
//! and all texts that a model would pay for. A model decides by nothing but the texts that it gets: what a hint does not say,
//! it does not know.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is worth nothing")]
#![expect(clippy::print_stderr, reason = "a person who waits wants to see that it goes on")]
#![expect(clippy::disallowed_methods, reason = "the program is what is measured")]

mod client;
mod model;
mod person;
mod tasks;
mod vocabulary;

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use self::model::{Habit, Model};
use self::person::Person;
use self::tasks::{TASKS, Task};
use self::vocabulary::Vocabulary;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [out, coracle, engine] = &words[..] else { panic!("usage: agent_eval OUT CORACLE ENGINE") };
    let person = Person::new(Path::new(coracle), engine);
    let lists: Vec<Value> = Vocabulary::ALL
        .into_iter()
        .map(|it| json!({ "toolset": it.word(), "text": person.session(it).list() }))
        .collect();
    let mut runs = Vec::new();
    for (vocabulary, habit) in Vocabulary::ALL.into_iter().flat_map(|it| Habit::ALL.map(|habit| (it, habit))) {
        for task in TASKS {
            runs.push(run(&person, vocabulary, habit, task));
        }
        let failed: Vec<&Value> = runs.iter().filter(|it| it["failed"].is_string()).collect();
        eprintln!("{} {}: {} failed so far", vocabulary.word(), habit.word(), failed.len());
    }
    let report = json!({ "engine": engine, "lists": lists, "runs": runs });
    std::fs::write(out, format!("{report:#}\n")).unwrap();
}

/// One task in a session of its own.
fn run(person: &Person, vocabulary: Vocabulary, habit: Habit, task: &Task) -> Value {
    person.clear();
    let begun = Instant::now();
    let mut model = Model::new(person, vocabulary, habit);
    let failed = model.play(task).err();
    if let Some(why) = &failed {
        eprintln!("{} {} {}: {why}", vocabulary.word(), habit.word(), task.name);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let texts = model.end();
    json!({
        "task": task.name, "toolset": vocabulary.word(), "habit": habit.word(), "failed": failed,
        "calls": texts.len() / 2, "seconds": seconds, "texts": texts,
    })
}
