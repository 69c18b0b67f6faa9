//! Scripted models. They read only texts.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Answer, Session};
use crate::person::Person;
use crate::real::RealModel;
use crate::tasks::{Step, Task};
use crate::vocabulary::{Call, JobEvent, Vocabulary};

/// How a model works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Reads before it edits, waits before it probes, and gives commands enough time.
    Careful,
    /// Makes such mistakes, and recovers with the help of the messages.
    Hasty,
    /// Uses wrong names of tools, operations and fields first, and finds the right ones in the errors.
    Confused,
}

impl Habit {
    pub(crate) const ALL: [Self; 3] = [Self::Careful, Self::Hasty, Self::Confused];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Careful => "careful",
            Self::Hasty => "hasty",
            Self::Confused => "confused",
        }
    }
}

/// Why a model gave up.
pub(crate) type Stuck = String;

/// The container of a model whose tools have no machine.
const WORK: &str = "work";

/// Time limit of a hasty model's commands, in seconds.
const IMPATIENT: u32 = 1;

/// Maximum number of calls in one task: a model with more goes in circles.
const MOST_CALLS: usize = 60;

pub(crate) struct Model<'a> {
    person: &'a Person,
    session: Session,
    vocabulary: Vocabulary,
    habit: Habit,
    /// Names that it has learned.
    learned: BTreeSet<String>,
    has_container: bool,
    calls: usize,
}

impl<'a> Model<'a> {
    pub(crate) fn new(person: &'a Person, vocabulary: Vocabulary, habit: Habit) -> Self {
        let session = person.session(vocabulary);
        Self { person, session, vocabulary, habit, learned: BTreeSet::new(), has_container: false, calls: 0 }
    }

    pub(crate) fn end(self) -> Vec<String> {
        self.session.end()
    }

    /// # Errors
    /// Where it got stuck.
    pub(crate) fn play(&mut self, task: &Task) -> Result<(), Stuck> {
        for (at, step) in task.steps.iter().enumerate() {
            if let Err(stuck) = self.act(step) {
                self.begin_again(&stuck, &task.steps[..=at])?;
            }
        }
        self.check(task)
    }

    /// Lets a real model do the task, after the steps that were done before.
    ///
    /// # Errors
    /// Where it got stuck.
    pub(crate) fn play_real(&mut self, real: &RealModel, task: &Task) -> Result<(), Stuck> {
        task.steps[..task.goal.given].iter().try_for_each(|it| self.act(it))?;
        let goal = match self.vocabulary {
            Vocabulary::Agent => task.goal.text.to_owned(),
            Vocabulary::Classic => {
                self.ensure_container()?;
                format!("Work in the container `{WORK}`. {}", task.goal.text)
            }
        };
        let begin = self.session.paid();
        let played = real.play(&mut self.session, &goal);
        let end = self.session.paid();
        let checked = played.and_then(|last| match last.contains(task.goal.expected) {
            true => self.check(task),
            false => Err(format!("it did not say `{}` but {last:?}", task.goal.expected)),
        });
        self.session.keep(begin..end);
        checked
    }

    fn check(&mut self, task: &Task) -> Result<(), Stuck> {
        let (command, expected) = task.check;
        let seen = self.perform(self.vocabulary.run(command, None))?.text;
        if self.output(&seen).contains(expected) { Ok(()) } else { Err(format!("`{command}` gave {seen:?}")) }
    }

    /// If a container has stopped, creates it again and repeats all steps.
    fn begin_again(&mut self, stuck: &Stuck, steps: &[Step]) -> Result<(), Stuck> {
        if !stuck.contains("destroy") || !self.has_container {
            return Err(stuck.clone());
        }
        self.perform(self.vocabulary.destroy(WORK))?;
        self.has_container = false;
        steps.iter().filter(|it| !matches!(it, Step::Crash)).try_for_each(|it| self.act(it))
    }

    fn act(&mut self, step: &Step) -> Result<(), Stuck> {
        let words = self.vocabulary;
        match *step {
            Step::Write(path, content) => self.write(path, content, None),
            Step::WriteIn(name, path, content) => self.write(path, content, Some(name)),
            Step::Read(path) => self.perform(read(words, path)).map(drop),
            Step::Edit(path, old, new) => self.edit(path, old, new, false),
            Step::EditAll(path, old, new) => self.edit(path, old, new, true),
            Step::Run(command) => self.perform(words.run(command, None)).map(drop),
            Step::RunIn(name, command) => self.perform(within(words.run(command, None), name)).map(drop),
            Step::Long(command) => self.long(command),
            Step::Python(code) => {
                self.perform(words.tool("python", "evaluate_python", json!({ "code": code }))).map(drop)
            }
            Step::Search(pattern) => {
                self.perform(words.tool("search", "grep", json!({ "pattern": pattern }))).map(drop)
            }
            Step::Find(pattern) => {
                self.perform(words.tool("find_files", "glob", json!({ "pattern": pattern }))).map(drop)
            }
            Step::Serve(port, command) => self.serve(port, command),
            Step::Watch(command, line) => {
                let job = self.job(words.start(command))?;
                self.perform(words.wait(&job, Some(JobEvent::Line(line)))).map(drop)
            }
            Step::Interrupt(command) => {
                let job = self.job(words.start(command))?;
                self.perform(words.cancel(&job)).map(drop)
            }
            Step::Crash => {
                self.person.stop_container();
                Ok(())
            }
            Step::Create(name) => self.perform(words.create(name)).map(drop),
            Step::Destroy(name) => self.perform(words.destroy(name)).map(drop),
            Step::Fork(name) => self.perform(words.fork(name)).map(drop),
            Step::Snapshot(snapshot, name) => {
                self.perform(words.snapshot(snapshot))?;
                self.perform(words.restore(name, snapshot)).map(drop)
            }
            Step::Forget(snapshot) => self.perform(words.forget(snapshot)).map(drop),
        }
    }

    fn write(&mut self, path: &str, content: &str, name: Option<&str>) -> Result<(), Stuck> {
        let call = |mode: Option<&str>| {
            let mut arguments = json!({ "path": path, "content": content });
            if let Some(mode) = mode {
                arguments["mode"] = mode.into();
            }
            let call = self.vocabulary.tool("write_file", "write_file", arguments);
            if let Some(name) = name { within(call, name) } else { call }
        };
        let (first, again) = (call(None), call(Some("overwrite")));
        match self.perform(first) {
            Err(stuck) if stuck.contains("overwrite") => {
                self.perform(read(self.vocabulary, path))?;
                self.perform(again).map(drop)
            }
            done => done.map(drop),
        }
    }

    fn edit(&mut self, path: &str, old: &str, new: &str, all: bool) -> Result<(), Stuck> {
        let mut arguments = json!({ "path": path, "old_string": old, "new_string": new });
        // A hasty model learns from the message that there are several.
        if all && self.habit != Habit::Hasty {
            arguments["replace_all"] = true.into();
        }
        if self.habit != Habit::Hasty {
            self.perform(read(self.vocabulary, path))?;
        }
        for _ in 0..3 {
            let edit = self.vocabulary.tool("edit_file", "edit_file", arguments.clone());
            match self.perform(edit) {
                Err(stuck) if stuck.contains("replace_all") && all => arguments["replace_all"] = true.into(),
                Err(stuck) if stuck.contains("read_file") => drop(self.perform(read(self.vocabulary, path))?),
                done => return done.map(drop),
            }
        }
        Err(format!("`{path}` cannot be edited"))
    }

    fn long(&mut self, command: &str) -> Result<(), Stuck> {
        let words = self.vocabulary;
        let patience = if self.habit == Habit::Hasty { IMPATIENT } else { 30 };
        let answer = self.perform(words.run(command, Some(patience)))?;
        if let Some(job) = job_of(&answer.text).filter(|_| answer.text.contains("still running")) {
            return self.perform(words.wait(&job, None)).map(drop);
        }
        if answer.text.contains("\"timed_out\":true") {
            return self.perform(words.run(command, Some(30))).map(drop);
        }
        Ok(())
    }

    fn serve(&mut self, port: u16, command: &str) -> Result<(), Stuck> {
        let words = self.vocabulary;
        let job = self.job(words.start(command))?;
        let until = || Some(JobEvent::Port(port));
        if self.habit != Habit::Hasty {
            self.perform(words.wait(&job, until()))?;
        }
        let answer = self.perform(words.forward(port))?;
        let address =
            answer.text.split("http://").nth(1).map(|it| it.split(['"', '\n']).next().unwrap_or(it).to_owned());
        let address = address.ok_or_else(|| format!("no URL in {:?}", answer.text))?;
        if is_served(&address) {
            return Ok(());
        }
        self.perform(words.wait(&job, until()))?;
        if is_served(&address) { Ok(()) } else { Err(format!("nothing answers at {address}")) }
    }

    /// Starts a job: its id.
    fn job(&mut self, call: Call) -> Result<String, Stuck> {
        let answer = self.perform(call)?;
        job_of(&answer.text).ok_or_else(|| format!("no job in {:?}", answer.text))
    }

    /// Calls until the step is done, or an answer gives no way forward.
    fn perform(&mut self, mut call: Call) -> Result<Answer, Stuck> {
        if self.vocabulary == Vocabulary::Classic && !names_container(&call) {
            self.ensure_container()?;
            call.arguments["container"] = WORK.into();
        }
        self.send(&call)
    }

    /// Creates the container of a model whose tools have no machine.
    fn ensure_container(&mut self) -> Result<(), Stuck> {
        if !std::mem::replace(&mut self.has_container, true) {
            self.send(&self.vocabulary.create(WORK))?;
        }
        Ok(())
    }

    fn send(&mut self, call: &Call) -> Result<Answer, Stuck> {
        if self.habit == Habit::Confused {
            self.learn(call)?;
        }
        self.calls += 1;
        if self.calls > MOST_CALLS {
            return Err("it goes in circles".to_owned());
        }
        let answer = self.session.call(call.tool, &call.arguments);
        if answer.is_error { Err(answer.text) } else { Ok(answer) }
    }

    /// Calls unknown operations by wrong names, and reads the right ones from the errors.
    fn learn(&mut self, call: &Call) -> Result<(), Stuck> {
        let operation = call.arguments["operation"].as_str().map(str::to_owned);
        let name = operation.clone().unwrap_or_else(|| call.tool.to_owned());
        if !self.learned.insert(name.clone()) {
            return Ok(());
        }
        let mut wrong = call.clone();
        match &operation {
            Some(_) => wrong.arguments["operation"] = wrong_name(&name).into(),
            None => wrong.tool = wrong_name(&name),
        }
        self.expect_correction(&wrong, &name)?;
        let field = call.arguments.as_object().and_then(|it| it.keys().find(|it| wrong_field(it).is_some()).cloned());
        let Some(field) = field.filter(|it| self.learned.insert(format!("{name}.{it}"))) else { return Ok(()) };
        let mut wrong = call.clone();
        let value = wrong.arguments[&field].take();
        wrong.arguments.as_object_mut().unwrap().remove(&field);
        wrong.arguments[wrong_field(&field).unwrap()] = value;
        self.expect_correction(&wrong, &field)
    }

    /// Whether the error of a wrong call names what is right.
    fn expect_correction(&mut self, wrong: &Call, right: &str) -> Result<(), Stuck> {
        let answer = self.session.call(wrong.tool, &wrong.arguments);
        match answer.is_error && answer.text.contains(right) {
            true => Ok(()),
            false => Err(format!("`{right}` is not in the answer to {wrong:?}: {:?}", answer.text)),
        }
    }

    /// A command's output, from the text of the answer.
    fn output(&self, text: &str) -> String {
        match self.vocabulary {
            Vocabulary::Agent => text.to_owned(),
            Vocabulary::Classic => {
                let answer: Value = serde_json::from_str(text).unwrap_or_default();
                answer["stdout"].as_str().unwrap_or_default().to_owned()
            }
        }
    }
}

fn read(words: Vocabulary, path: &str) -> Call {
    words.tool("read_file", "read_file", json!({ "path": path }))
}

fn within(mut call: Call, name: &str) -> Call {
    call.arguments["container"] = name.into();
    call
}

/// Whether the error is about the container that the call names.
fn names_container(call: &Call) -> bool {
    let of_none = ["create", "restore", "snapshot_delete"];
    let operation = call.arguments["operation"].as_str().unwrap_or(call.tool);
    call.arguments.get("container").is_some() || of_none.contains(&operation)
}

/// The id of a job: eight hex digits after the word.
fn job_of(text: &str) -> Option<String> {
    let after = ["[job ", "as job ", "\"job_id\":\""].iter().find_map(|it| text.split(it).nth(1))?;
    let id: String = after.chars().take_while(char::is_ascii_hexdigit).collect();
    (id.len() == 8).then_some(id)
}

fn is_served(address: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address.trim_end_matches('/')) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).starts_with("HTTP/1.0 200")
}

/// A name that other products have for it.
fn wrong_name(name: &str) -> &'static str {
    match name {
        "shell" => "bash",
        "exec" => "run_command",
        "exec_background" => "start_process",
        "job" | "job_wait" => "wait",
        "exec_cancel" => "kill",
        "python" | "evaluate_python" => "execute_python",
        "read_file" => "view",
        "write_file" => "create_file",
        "edit_file" => "str_replace",
        "search" | "grep" => "search_files",
        "find_files" | "glob" => "list_files",
        "create" => "create_container",
        "destroy" => "remove_container",
        "forward" => "expose_port",
        "fork" => "clone",
        "snapshot" => "checkpoint",
        "restore" => "rollback",
        _ => "delete",
    }
}

/// A field that other products have for it.
fn wrong_field(field: &str) -> Option<&'static str> {
    Some(match field {
        "command" => "cmd",
        "path" => "filename",
        "old_string" => "old",
        "pattern" => "query",
        "code" => "source",
        "job" | "job_id" => "id",
        "port" | "container_port" => "number",
        "purpose" => "kind",
        "snapshot" => "from",
        _ => return None,
    })
}
