//! The start order of services.

use std::collections::BTreeMap;

use coracle_runtime::Health;
use coracle_runtime::stack_model::{self, Condition, Service};

/// A dependency of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) on: String,
    pub(super) condition: Condition,
    /// Whether the service does not start without it.
    pub(super) required: bool,
}

/// The progress of a service's containers.
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

/// What to do next with a service, depending on its dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    Wait,
    /// A dependency will never be satisfied.
    Never,
}

pub(super) fn dependencies(service: &Service) -> Vec<Dependency> {
    let one = |(on, it): (&String, &stack_model::Dependency)| Dependency {
        on: on.clone(),
        condition: it.condition,
        required: it.required,
    };
    service.depends_on.iter().map(one).collect()
}

pub(super) fn readiness(dependencies: &[Dependency], progress: &BTreeMap<String, ServiceProgress>) -> Readiness {
    let mut ready = Readiness::Ready;
    for dependency in dependencies {
        // A service with no wanted containers delays no other.
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
            // Without a health check, it never becomes healthy.
            Some(Health::Unhealthy) | None => Readiness::Never,
        },
        (Condition::Healthy | Condition::Completed, ServiceProgress::Ended { .. }) => Readiness::Never,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_ready_when_its_conditions_are() {
        let model = json!({ "depends_on": { "db": { "condition": "service_healthy", "required": true },
            "migration": { "condition": "service_completed_successfully", "required": true },
            "extra": { "condition": "service_healthy", "required": false },
            "cache": { "condition": "service_started", "required": true } } });
        let needs = dependencies(&serde_json::from_value(model).unwrap());
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
}
