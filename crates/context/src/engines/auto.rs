//! The engine of `engine = "auto"`.

use std::collections::BTreeMap;

use coracle_engine_program::EngineSettings;
use coracle_types::EngineKind;

use super::{Choice, Engines, embedded, short};

/// Engines with a program that can be installed on any host.
const WITH_PROGRAM: [EngineKind; 2] = [EngineKind::Podman, EngineKind::Docker];

impl Engines {
    /// Chooses the embedded engine, unless only other engines have containers of this state directory, or it lacks
    /// something here that Podman or Docker would have. Records show where containers are: an engine that is slow or
    /// down and has none is not contacted.
    pub(super) async fn detect_auto(&self, choice: &mut Choice, settings: &EngineSettings) {
        let in_use = self.engines_in_use();
        let used: Vec<_> = WITH_PROGRAM
            .into_iter()
            .chain(cfg!(target_os = "macos").then_some(EngineKind::Container))
            .filter(|kind| in_use.contains_key(kind) && !in_use.contains_key(&EngineKind::Embedded))
            .collect();
        choice.try_in_order(&used, settings).await;
        let mut lacks = self.embedded_lacks();
        if choice.chosen.is_none() && lacks.is_empty() && cfg!(target_os = "linux") {
            let answered = self.embedded().await;
            lacks.extend(answered.as_ref().err().map(short));
            choice.add(EngineKind::Embedded, answered);
        }
        let others: Vec<_> = WITH_PROGRAM.into_iter().filter(|kind| !used.contains(kind)).collect();
        choice.try_in_order(&others, settings).await;
        if choice.chosen.is_none() {
            self.detect_others(choice, settings).await;
        }
        choice.reason = choice.chosen.as_ref().map(|chosen| {
            let silent: Vec<_> = used.into_iter().filter(|kind| *kind != chosen.0.kind()).collect();
            reason(chosen.0.kind(), &in_use, &silent, &lacks)
        });
    }

    /// Unreadable records are ignored.
    fn engines_in_use(&self) -> BTreeMap<EngineKind, usize> {
        let store = self.records.store().ok();
        store.and_then(|store| store.engines_in_use().ok()).unwrap_or_default()
    }

    fn embedded_lacks(&self) -> Vec<String> {
        embedded::lacks(&self.config, &embedded::data_dir(&self.config, &self.host))
    }
}

/// Describes why `auto` chose an engine. Those in `silent` precede it, and did not answer.
fn reason(
    chosen: EngineKind,
    in_use: &BTreeMap<EngineKind, usize>,
    silent: &[EngineKind],
    embedded_lacks: &[String],
) -> String {
    let elsewhere: Vec<_> = in_use
        .iter()
        .filter(|(kind, _)| **kind != chosen && !silent.contains(kind))
        .map(|(kind, number)| format!("{kind} ({number})"))
        .collect();
    let stay = match elsewhere.is_empty() {
        true => String::new(),
        false => {
            format!("; containers of other engines stay there and are reached as before: {}", elsewhere.join(", "))
        }
    };
    let why = match (chosen, in_use.get(&chosen)) {
        _ if !silent.is_empty() => {
            let names: Vec<_> = silent.iter().map(|kind| format!("{kind} ({})", in_use[kind])).collect();
            format!("the engine of your other containers does not answer: {}", names.join(", "))
        }
        (EngineKind::Embedded, _) if embedded_lacks.is_empty() => {
            "it is the fastest and needs no other program".to_owned()
        }
        (EngineKind::Embedded, _) => "no other engine answers".to_owned(),
        (_, Some(number)) => {
            format!("it has your containers ({number}); `engine = \"embedded\"` takes the embedded engine")
        }
        (_, None) if cfg!(target_os = "macos") => "it answers".to_owned(),
        (_, None) => format!("the embedded engine lacks something here: {}", embedded_lacks.join("; ")),
    };
    format!("`auto` takes {chosen}: {why}{stay}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_names_the_deciding_facts() {
        let line = |chosen, in_use: &[(EngineKind, usize)], silent: &[EngineKind], lacks: &[&str]| {
            let lacks: Vec<_> = lacks.iter().map(|it| (*it).to_owned()).collect();
            reason(chosen, &in_use.iter().copied().collect(), silent, &lacks)
        };
        let lines = [
            line(EngineKind::Embedded, &[], &[], &[]),
            line(EngineKind::Embedded, &[(EngineKind::Docker, 2), (EngineKind::Embedded, 1)], &[], &[]),
            line(EngineKind::Embedded, &[(EngineKind::Docker, 2)], &[EngineKind::Docker], &[]),
            line(EngineKind::Docker, &[(EngineKind::Docker, 2)], &[], &[]),
            line(EngineKind::Podman, &[], &[], &["no program for networks"]),
            line(EngineKind::Embedded, &[], &[], &["no program for networks"]),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r#"
        `auto` takes embedded: it is the fastest and needs no other program
        `auto` takes embedded: it is the fastest and needs no other program; containers of other engines stay there and are reached as before: docker (2)
        `auto` takes embedded: the engine of your other containers does not answer: docker (2)
        `auto` takes docker: it has your containers (2); `engine = "embedded"` takes the embedded engine
        `auto` takes podman: the embedded engine lacks something here: no program for networks
        `auto` takes embedded: no other engine answers
        "#);
    }
}
