//! Notes the scenarios of the specification that ran, for `cargo xtask scenarios`, and the tests that were skipped.

use std::io::Write;
use std::time::Duration;

use coracle_types::EngineKind;

use super::person::{EMBEDDED_ROOTLESS, ROOTLESS, is_root, is_second_run};
use super::tier::Tier;

/// The result of a check on one engine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// It is not for this engine, or not all of it.
    LeftOut,
}

/// Notes where a test ran, for the table of `cargo xtask test`: test, tier, engine, outcome and milliseconds.
pub(super) fn note(test: &str, engine: &str, outcome: Outcome, took: Duration) {
    let engine = match engine {
        "podman" if !is_root() => ROOTLESS,
        "embedded" if !is_root() => EMBEDDED_ROOTLESS,
        engine => engine,
    };
    let outcome = match outcome {
        Outcome::Passed => "ok",
        Outcome::Failed => "failed",
        Outcome::LeftOut => "left-out",
    };
    let line = format!("{test}\t{}\t{engine}\t{outcome}\t{}\n", Tier::of(test).name(), took.as_millis());
    coracle_skips::notes("engines.txt").write_all(line.as_bytes()).unwrap();
}

/// Notes that the scenario passed on that engine: the last act of its test.
pub(crate) fn ran(scenario: &str, engine: EngineKind) {
    let engine = match engine {
        EngineKind::Podman if !is_root() => ROOTLESS,
        EngineKind::Embedded if !is_root() => EMBEDDED_ROOTLESS,
        engine => engine.as_str(),
    };
    // One write per line, since other tests append to the same file.
    coracle_skips::notes("ran.txt").write_all(format!("{scenario} {engine} ok\n").as_bytes()).unwrap();
}

/// Notes that a test is not tried here, or not on one engine, and why. `cargo xtask test` counts it, and fails in CI where
/// it knows no reason for it.
///
/// A test that runs again as another user records nothing, since the first run has.
pub(crate) fn skip(reason: &str) {
    if !is_second_run() {
        coracle_skips::skip(reason);
    }
}
