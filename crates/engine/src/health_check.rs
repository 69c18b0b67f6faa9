//! Health checks of images and services: the command and its schedule.

use std::time::Duration;

use coracle_types::{ImageId, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::Engine;

/// Defaults, the same as Docker's.
pub(crate) const INTERVAL: Duration = Duration::from_secs(30);
pub(crate) const RETRIES: u32 = 3;

/// A container's health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HealthCheck {
    pub(crate) words: Vec<String>,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) start_period: Duration,
    pub(crate) retries: u32,
}

impl HealthCheck {
    /// Returns the health check of an image.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn of_image(engine: &Engine, image: &ImageId) -> Result<Option<Self>> {
        let configuration = engine.store.configuration(image)?.unwrap_or_default();
        let configuration: Value = serde_json::from_slice(&configuration).unwrap_or_default();
        let check = &configuration["config"]["Healthcheck"];
        let nanos = |key: &str| check[key].as_u64().filter(|it| *it > 0).map(Duration::from_nanos);
        let test: Vec<String> = Vec::deserialize(&check["Test"]).unwrap_or_default();
        Ok(command(&test).map(|words| Self {
            words,
            interval: nanos("Interval").unwrap_or(INTERVAL),
            timeout: nanos("Timeout").unwrap_or(INTERVAL),
            start_period: nanos("StartPeriod").unwrap_or_default(),
            retries: check["Retries"]
                .as_u64()
                .and_then(|it| u32::try_from(it).ok())
                .filter(|it| *it > 0)
                .unwrap_or(RETRIES),
        }))
    }
}

/// Parses `CMD` with arguments, or `CMD-SHELL` with a shell command.
pub(crate) fn command(test: &[String]) -> Option<Vec<String>> {
    match test.split_first()? {
        (kind, rest) if kind == "CMD" && !rest.is_empty() => Some(rest.to_vec()),
        (kind, [line]) if kind == "CMD-SHELL" => Some(vec!["/bin/sh".into(), "-c".into(), line.clone()]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_words_or_a_line_for_the_shell() {
        let of = |test: &[&str]| command(&test.iter().map(|&it| it.to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["CMD", "a", "b"]), Some(vec!["a".into(), "b".into()]));
        assert_eq!(of(&["CMD-SHELL", "a b"]), Some(vec!["/bin/sh".into(), "-c".into(), "a b".into()]));
        assert_eq!((of(&["NONE"]), of(&["CMD"]), of(&[])), (None, None, None));
    }
}
