//! Plays 30 recorded tasks with scripted models of three habits, for `cargo xtask eval`.
//!
//! `agent_eval OUT CORACLE ENGINE` writes JSON to the file `OUT`: for each task, toolset and habit its calls, seconds, success,
//! and all texts that a model would pay for. A model decides by nothing but the texts that it gets: what a hint does not say,
//! it does not know. With `ANTHROPIC_API_KEY` and `CORACLE_EVAL_MODEL` in the environment that model plays, too.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is worth nothing")]
#![expect(clippy::print_stderr, reason = "a person who waits wants to see that it goes on")]
#![expect(clippy::disallowed_methods, reason = "the program is what is measured")]

mod client;
mod model;
mod person;
mod real;
mod tasks;
mod vocabulary;

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use self::model::{Habit, Model};
use self::person::Person;
use self::real::RealModel;
use self::tasks::{TASKS, Task};
use self::vocabulary::Vocabulary;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [out, coracle, engine] = &words[..] else { panic!("usage: agent_eval OUT CORACLE ENGINE") };
    let person = Person::new(Path::new(coracle), engine);
    let lists: Vec<Value> =
        Vocabulary::ALL.into_iter().map(|it| json!({ "toolset": it.word(), "text": list(&person, it) })).collect();
    let players: Vec<Player> =
        Habit::ALL.map(Player::Scripted).into_iter().chain(RealModel::of_environment().map(Player::Real)).collect();
    let mut runs = Vec::new();
    for (vocabulary, player) in
        Vocabulary::ALL.into_iter().flat_map(|it| players.iter().map(move |player| (it, player)))
    {
        for task in TASKS {
            runs.push(run(&person, vocabulary, player, task));
        }
        let failed: Vec<&Value> = runs.iter().filter(|it| it["failed"].is_string()).collect();
        eprintln!("{} {}: {} failed so far", vocabulary.word(), player.word(), failed.len());
    }
    let report = json!({ "engine": engine, "lists": lists, "runs": runs });
    std::fs::write(out, format!("{report:#}\n")).unwrap();
}

/// Which model plays.
enum Player {
    Scripted(Habit),
    Real(RealModel),
}

impl Player {
    fn word(&self) -> &str {
        match self {
            Self::Scripted(habit) => habit.word(),
            Self::Real(real) => real.name(),
        }
    }
}

/// The list of tools as the protocol transfers it.
fn list(person: &Person, vocabulary: Vocabulary) -> String {
    let mut session = person.session(vocabulary);
    let list = session.tools().to_string();
    session.end();
    list
}

/// One task in a session of its own.
fn run(person: &Person, vocabulary: Vocabulary, player: &Player, task: &Task) -> Value {
    person.clear();
    let begun = Instant::now();
    let habit = if let Player::Scripted(habit) = player { *habit } else { Habit::Careful };
    let mut model = Model::new(person, vocabulary, habit);
    let played = match player {
        Player::Scripted(_) => model.play(task),
        Player::Real(real) => model.play_real(real, task),
    };
    let failed = played.err();
    if let Some(why) = &failed {
        eprintln!("{} {} {}: {why}", vocabulary.word(), player.word(), task.name);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let texts = model.end();
    json!({
        "task": task.name, "toolset": vocabulary.word(), "habit": player.word(), "failed": failed,
        "calls": texts.len() / 2, "seconds": seconds, "texts": texts,
    })
}
