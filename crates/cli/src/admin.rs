//! Operations for the user only, as subcommands.

use clap::{Arg, ArgAction, ArgMatches, Command, builder::TypedValueParser as _, value_parser};
use coracle::{OperationEntry, admin};
use coracle_context::Seconds;
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::named_commands::NamedCommands;
use super::operation_args::is;
use super::operation_call::{CONTAINER, FOR_SEVERAL};

/// Order of options in the help; others follow.
const ORDER: &[&str] = &["since", "act", "container", "checkpoint", "newest", "json", "time"];

/// The subcommand of an operation.
pub(super) fn command(name: &str, named: NamedCommands<'_>) -> Command {
    let command = Command::new(name.rsplit(' ').next().unwrap_or(name).to_owned());
    let is_named = name.split(' ').next().is_some_and(|it| named.have(it));
    let Some(entry) = admin::ALL.iter().find(|it| is_named && it.name == name) else { return command };
    let arguments = entry.arguments();
    let mut args = vec![json()];
    // Clap takes positional arguments in the order of declaration.
    args.extend(arguments.required.iter().map(|it| required(it, &arguments.properties[it])));
    let free = arguments.properties.iter().filter(|(name, _)| !arguments.required.contains(name));
    args.extend(free.map(|(name, schema)| optional(name, schema)));
    args.sort_by_key(|it| ORDER.iter().position(|name| it.get_id() == *name).map_or(0, |at| at + 1));
    let command = command.about(sentence(&arguments.description)).args(args);
    if FOR_SEVERAL.contains(&name) { command.mut_arg(CONTAINER, |arg| arg.num_args(1..)) } else { command }
}

/// The operation that a command line names.
pub(super) fn find(mut matches: &ArgMatches) -> Option<(&'static OperationEntry, &ArgMatches)> {
    let mut words = Vec::new();
    while let Some((word, inner)) = matches.subcommand() {
        words.push(word);
        matches = inner;
    }
    let name = words.join(" ");
    admin::ALL.iter().find(|it| it.name == name).map(|it| (it, matches))
}

pub(super) fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the answer as JSON")
}

/// A positional argument, unless it names a target.
fn required(name: &str, schema: &Value) -> Arg {
    let arg = described(name, schema).required(true);
    let words: Vec<_> = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match name {
        "file" => arg.value_name("FILE.tar"),
        "packages" => arg.value_name("PACKAGE").num_args(1..),
        _ if !words.is_empty() => {
            arg.value_name(name.to_uppercase()).value_parser(words.into_iter().map(str::to_owned).collect::<Vec<_>>())
        }
        "from" => arg.long("from").value_name("ENGINE|FILE"),
        "into" => arg.long("into").value_name("CONTAINER|DIRECTORY"),
        "save" => arg.value_name("CONTAINER[/TIME]"),
        "record" => arg.value_name("CONTAINER[/ID]"),
        _ => arg.value_name(name.to_uppercase()),
    }
}

fn optional(name: &str, schema: &Value) -> Arg {
    let arg = described(name, schema);
    match name {
        "name" => arg.value_name("CONTAINER"),
        "keys" => arg.value_name("KEY").num_args(1..).required_unless_present("all"),
        "all" => arg.long("all").action(ArgAction::SetTrue).conflicts_with("keys"),
        "session_name" => arg.value_name("SESSION"),
        "act" => arg.long("operation").value_name("NAME"),
        "since" => arg.long("since").value_name("TIME").value_parser(time),
        "time" => arg.long("time").short('t').value_name("TIME").value_parser(seconds),
        "newest" => {
            let positive = value_parser!(u32).range(1..).map(|it| it.to_string());
            arg.long("newest").short('n').value_name("N").value_parser(positive)
        }
        _ if is(schema, "boolean") => arg.long(name.to_owned()).action(ArgAction::SetTrue),
        _ => arg.long(name.to_owned()).value_name("NAME"),
    }
}

fn described(name: &str, schema: &Value) -> Arg {
    Arg::new(name.to_owned()).help(sentence(schema["description"].as_str().unwrap_or_default()))
}

fn sentence(text: &str) -> String {
    text.trim_end_matches('.').to_owned()
}

/// A time, a day, or an age such as `2h`. Without a time zone it is UTC, like the audit trail.
fn time(text: &str) -> Result<String, String> {
    time_at(text, Timestamp::now())
}

fn time_at(text: &str, now: Timestamp) -> Result<String, String> {
    if text.parse::<Timestamp>().is_ok() {
        return Ok(text.to_owned());
    }
    let today = now.to_zoned(TimeZone::UTC).date();
    let day = match text {
        "today" => Some(today.to_datetime(Time::midnight())),
        "yesterday" => today.yesterday().ok().map(|day| day.to_datetime(Time::midnight())),
        _ => text.parse::<DateTime>().ok(),
    };
    if let Some(day) = day {
        return day.to_zoned(TimeZone::UTC).map(|time| time.timestamp().to_string()).map_err(|err| err.to_string());
    }
    let ago = Seconds::parse(text.strip_suffix(" ago").unwrap_or(text)).ok_or(NO_TIME)?;
    let ago = SignedDuration::try_from(ago.0).map_err(|err| err.to_string())?;
    now.checked_sub(ago).map(|time| time.to_string()).map_err(|err| err.to_string())
}

const NO_TIME: &str = "it is none of `2h`, `yesterday`, `2026-11-24` and `2026-11-24T06:00:00Z`";

fn seconds(text: &str) -> Result<String, &'static str> {
    Seconds::parse(text).map(|_| text.to_owned()).ok_or("it is neither `90s` nor a number")
}

#[cfg(test)]
mod tests {
    use coracle::{admin, operations};
    use jiff::Timestamp;

    use super::time_at;

    #[test]
    fn a_time_is_a_day_a_time_or_so_long_ago() {
        let now: Timestamp = "2026-11-29T07:30:00Z".parse().unwrap();
        for (typed, read) in [
            ("2026-11-24T06:00:00Z", "2026-11-24T06:00:00Z"),
            ("2026-11-28", "2026-11-28T00:00:00Z"),
            ("2026-11-28 06:30", "2026-11-28T06:30:00Z"),
            ("2026-11-28T06:30:01", "2026-11-28T06:30:01Z"),
            ("today", "2026-11-29T00:00:00Z"),
            ("yesterday", "2026-11-28T00:00:00Z"),
            ("2h", "2026-11-29T05:30:00Z"),
            ("90s", "2026-11-29T07:28:30Z"),
            ("1h30m", "2026-11-29T06:00:00Z"),
            ("7d", "2026-11-22T07:30:00Z"),
            ("2h ago", "2026-11-29T05:30:00Z"),
        ] {
            assert_eq!(time_at(typed, now).as_deref(), Ok(read), "{typed}");
        }
        for typed in ["", "soon", "2026-13-01", "28.11.2026", "-2h"] {
            assert!(time_at(typed, now).unwrap_err().contains("`yesterday`"), "{typed}");
        }
    }

    #[test]
    fn every_operation_of_a_person_has_its_subcommand() {
        for entry in admin::ALL {
            let mut words: Vec<_> = ["coracle"].into_iter().chain(entry.name.split(' ')).map(Into::into).collect();
            let mut command = &crate::command::command(operations::ALL, &words);
            for word in words.drain(1..) {
                command = command.find_subcommand(&word).unwrap_or_else(|| panic!("no {word:?} of `{}`", entry.name));
            }
            let fields = entry.arguments().properties;
            assert!(fields.keys().all(|it| command.get_arguments().any(|arg| arg.get_id() == it)), "{}", entry.name);
        }
    }
}
