//! The answer of a race.

use coracle_context::document::{Column, Document, Render, StyledText};
use coracle_context::humanize::{duration, millis};
use coracle_types::ContainerName;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::attempt::Attempt;

/// What has become of a race.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) winner: Option<u32>,
    pub(super) winner_container: Option<ContainerName>,
    pub(super) before: Option<u64>,
    pub(super) jobs_ended: usize,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct RaceResponse {
    #[schemars(with = "String")]
    container: ContainerName,
    /// Number of the attempt that won.
    winner: Option<u32>,
    /// The winner's copy, if the container was left as it is.
    #[schemars(with = "Option<String>")]
    winner_container: Option<ContainerName>,
    /// The checkpoint with the files that the container had before.
    before: Option<u64>,
    jobs_ended: usize,
    attempts: Vec<AttemptRow>,
}

#[derive(Debug, JsonSchema, Serialize)]
struct AttemptRow {
    attempt: u32,
    /// `won`, `passed` (after another one), `failed`, `ended` (because another one had won) or `error`.
    outcome: &'static str,
    exit_code: Option<u8>,
    test_exit_code: Option<u8>,
    /// The end of the output of its last command, or the error.
    output: String,
    duration_ms: u64,
}

impl RaceResponse {
    pub(super) fn new(container: ContainerName, ended: Ended, attempts: Vec<Attempt>) -> Self {
        let row = |it: Attempt| AttemptRow {
            attempt: it.number,
            outcome: it.outcome().word(),
            exit_code: it.exit_code,
            test_exit_code: it.test_exit_code,
            duration_ms: millis(it.duration),
            output: it.output,
        };
        let Ended { winner, winner_container, before, jobs_ended } = ended;
        let attempts = attempts.into_iter().map(row).collect();
        Self { container, winner, winner_container, before, jobs_ended, attempts }
    }

    fn headline(&self) -> String {
        let name = &self.container;
        match (self.winner, &self.winner_container) {
            (None, _) => format!("no attempt has passed, and {name} is as it was"),
            (Some(number), None) => format!("{name} has the files of attempt {number}"),
            (Some(number), Some(copy)) => format!("{copy} has the files of attempt {number}, and {name} is as it was"),
        }
    }
}

const COLUMNS: [Column; 6] = [
    Column::fixed("ATTEMPT"),
    Column::fixed("OUTCOME"),
    Column::fixed("EXIT"),
    Column::fixed("TEST"),
    Column::fixed("TIME").or_left_out(1),
    Column::flexible("OUTPUT"),
];

impl Render for RaceResponse {
    fn render(&self, _: Timestamp) -> Document {
        let code = |it: Option<u8>| StyledText::from(it.map_or_else(|| "-".to_owned(), |it| it.to_string()));
        let row = |it: &AttemptRow| {
            let last_line = it.output.lines().last().unwrap_or_default().to_owned();
            vec![
                it.attempt.to_string().into(),
                it.outcome.into(),
                code(it.exit_code),
                code(it.test_exit_code),
                duration(it.duration_ms).into(),
                last_line.into(),
            ]
        };
        let undo = self.before.map(|before| format!("coracle rewind {} {before}", self.container));
        let document = Document::rows(&COLUMNS, &self.attempts, row, "no attempts")
            .then(self.headline())
            .facts([("undo", undo.unwrap_or_default().into())]);
        Document { exit_code: u8::from(self.winner.is_none()), ..document }
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::document::rendered;
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn a_race_is_a_table_and_says_which_files_the_container_has() {
        let row = |attempt, outcome, exit_code, test_exit_code, output: &str| AttemptRow {
            attempt,
            outcome,
            exit_code,
            test_exit_code,
            output: output.into(),
            duration_ms: 1200,
        };
        let name = |it: &str| ContainerName::parse(it).unwrap();
        let attempts = vec![
            row(1, "failed", Some(0), Some(1), "collected 3\n2 failed"),
            row(2, "won", Some(0), Some(0), "3 passed"),
            row(3, "ended", None, None, ""),
        ];
        let mut race = RaceResponse {
            container: name("web"),
            winner: Some(2),
            winner_container: None,
            before: Some(4),
            jobs_ended: 0,
            attempts,
        };
        assert_snapshot!(rendered(&race, "2026-11-21T12:30:00Z"), @r"
        ATTEMPT  OUTCOME  EXIT  TEST  TIME   OUTPUT
        1        failed   0     1     1.2 s  2 failed
        2        won      0     0     1.2 s  3 passed
        3        ended    -     -     1.2 s
        web has the files of attempt 2
          undo  coracle rewind web 4
        ");
        (race.before, race.winner_container) = (None, Some(name("web-race-1a2b-2")));
        race.attempts.clear();
        assert_snapshot!(rendered(&race, "2026-11-21T12:30:00Z"), @r"
        no attempts
        web-race-1a2b-2 has the files of attempt 2, and web is as it was
        ");
        (race.winner, race.winner_container) = (None, None);
        assert_snapshot!(rendered(&race, "2026-11-21T12:30:00Z"), @r"
        no attempts
        no attempt has passed, and web is as it was
        ");
    }
}
