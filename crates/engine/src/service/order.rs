//! The order of services: which one waits for what.

use std::collections::BTreeMap;

use coracle_runtime::Health;
use serde_json::Value;

/// What a service waits for in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Started,
    Healthy,
    Completed,
}

/// A dependency of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) on: String,
    pub(super) condition: Condition,
    /// Without it the service is not started.
    pub(super) required: bool,
}

/// How far the containers of a service have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceProgress {
    Waiting,
    /// Some run, with the worst health of them; the time tells nothing yet.
    Running {
        health: Option<Health>,
        settled: bool,
    },
    /// All ended; with 0 if it did its work.
    Ended {
        well: bool,
    },
}

/// What a service has to do next, by what it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    Wait,
    /// What it needs will not come true.
    Never,
}

pub(super) fn dependencies(service: &Value) -> Vec<Dependency> {
    let entries = service["depends_on"].as_object().into_iter().flatten();
    let one = |(on, entry): (&String, &Value)| Dependency {
        on: on.clone(),
        condition: match entry["condition"].as_str() {
            Some("service_healthy") => Condition::Healthy,
            Some("service_completed_successfully") => Condition::Completed,
            _ => Condition::Started,
        },
        required: entry["required"] != false,
    };
    let mut all: Vec<_> = entries.map(one).collect();
    for link in super::config::words(&service["links"]) {
        let on = link.split(':').next().unwrap_or_default().to_owned();
        if all.iter().all(|it| it.on != on) {
            all.push(Dependency { on, condition: Condition::Started, required: true });
        }
    }
    all
}

pub(super) fn readiness(dependencies: &[Dependency], progress: &BTreeMap<String, ServiceProgress>) -> Readiness {
    let mut ready = Readiness::Ready;
    for dependency in dependencies {
        // One without containers, of which none are wanted, holds nobody up.
        let Some(of) = progress.get(&dependency.on) else { continue };
        match fulfilled(dependency.condition, *of) {
            Readiness::Never if dependency.required => return Readiness::Never,
            Readiness::Wait => ready = Readiness::Wait,
            Readiness::Ready | Readiness::Never => {}
        }
    }
    ready
}

fn fulfilled(condition: Condition, progress: ServiceProgress) -> Readiness {
    match (condition, progress) {
        (_, ServiceProgress::Waiting) => Readiness::Wait,
        (Condition::Started, _) | (Condition::Completed, ServiceProgress::Ended { well: true }) => Readiness::Ready,
        (Condition::Completed, ServiceProgress::Running { .. }) => Readiness::Wait,
        (Condition::Healthy, ServiceProgress::Running { health, .. }) => match health {
            Some(Health::Healthy) => Readiness::Ready,
            Some(Health::Starting) => Readiness::Wait,
            // Without a check it never comes to be healthy.
            Some(Health::Unhealthy) | None => Readiness::Never,
        },
        (Condition::Healthy | Condition::Completed, ServiceProgress::Ended { .. }) => Readiness::Never,
    }
}

/// The names of services that wait for each other, if there are any.
pub(super) fn circle(services: &BTreeMap<String, Vec<Dependency>>) -> Option<Vec<String>> {
    let mut left: Vec<&String> = services.keys().collect();
    loop {
        let before = left.len();
        let waits = |name: &String| services[name].iter().any(|it| left.contains(&&it.on));
        let waiting: Vec<_> = left.iter().copied().filter(|it| waits(it)).collect();
        left = waiting;
        if left.is_empty() {
            return None;
        }
        if left.len() == before {
            return Some(left.into_iter().cloned().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_ready_when_its_conditions_are() {
        let model = json!({ "depends_on": { "db": { "condition": "service_healthy" },
            "migration": { "condition": "service_completed_successfully" },
            "extra": { "condition": "service_healthy", "required": false } }, "links": ["db:x", "cache"] });
        let needs = dependencies(&model);
        assert_eq!(needs.len(), 4);
        let running = |health| ServiceProgress::Running { health, settled: true };
        let ready = |db, migration, extra| {
            let of = [("db", db), ("migration", migration), ("extra", extra), ("cache", running(None))];
            readiness(&needs, &of.map(|(name, it)| (name.to_owned(), it)).into())
        };
        let (well, ill) = (ServiceProgress::Ended { well: true }, ServiceProgress::Ended { well: false });
        let (healthy, starting) = (running(Some(Health::Healthy)), running(Some(Health::Starting)));
        assert_eq!(ready(healthy, well, healthy), Readiness::Ready);
        assert_eq!(ready(starting, well, healthy), Readiness::Wait);
        assert_eq!(ready(healthy, running(None), healthy), Readiness::Wait);
        assert_eq!(ready(healthy, ill, healthy), Readiness::Never);
        assert_eq!(ready(ill, well, healthy), Readiness::Never);
        assert_eq!(ready(healthy, well, ill), Readiness::Ready, "it is not required");
        assert_eq!(ready(ServiceProgress::Waiting, well, healthy), Readiness::Wait);
    }

    #[test]
    fn circles_are_found() {
        let needs = |on: &[&str]| {
            let one = |it: &&str| Dependency { on: (*it).into(), condition: Condition::Started, required: true };
            on.iter().map(one).collect::<Vec<_>>()
        };
        let of = |all: &[(&str, &[&str])]| circle(&all.iter().map(|(name, on)| ((*name).into(), needs(on))).collect());
        assert_eq!(of(&[("a", &["b"]), ("b", &["c", "gone"]), ("c", &[])]), None);
        assert_eq!(of(&[("a", &["b"]), ("b", &["a"]), ("c", &[])]), Some(vec!["a".into(), "b".into()]));
        assert_eq!(of(&[("a", &["a"])]), Some(vec!["a".into()]));
    }
}
