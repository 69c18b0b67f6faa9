//! Settings of Amplifier, which may contain keys.

use std::path::Path;
use std::time::Instant;

use coracle_types::ContainerPath;
use futures_util::future::join_all;

use crate::secret_files::SecretFiles;
use crate::{ReportItem, StepContext, StepReport, backup, secret_files};

const STEP: &str = "amplifier_settings";

const FILES: &[&str] = &["settings.yaml", "settings.local.yaml"];

/// Reads the settings in the user's `~/.amplifier`.
#[must_use]
pub fn read(dir: &Path) -> SecretFiles {
    SecretFiles::read(dir, |name| FILES.contains(&name))
}

/// Writes them to the tmpfs, with links in `~/.amplifier`.
pub async fn forward(context: &StepContext, settings: &SecretFiles) -> StepReport {
    let begun = Instant::now();
    if settings.is_empty() {
        let step = StepReport::skipped(STEP, "the host has no settings of Amplifier that can go in");
        return StepReport { items: settings.left_out_items().collect(), ..step };
    }
    let step = match context.home.join(".amplifier") {
        Ok(dir) => step(context, &dir, settings).await,
        Err(err) => StepReport::flawed(STEP, crate::Status::Failed, "the settings cannot be used", err.to_string()),
    };
    step.with_duration(begun.elapsed())
}

async fn step(context: &StepContext, dir: &ContainerPath, settings: &SecretFiles) -> StepReport {
    let (items, made) = tokio::join!(
        secret_files::put(context, "amplifier", &settings.files),
        context.link.make_dir(context.at(dir), 0o700, true)
    );
    let failed = |error: String| StepReport::flawed(STEP, crate::Status::Failed, "the settings cannot be used", error);
    if let Err(err) = made {
        return failed(err.to_string());
    }
    let mut items = join_all(items.into_iter().map(|it| linked(context, dir, it))).await;
    let probe = match secret_files::tried(context, dir, &mut items).await {
        Ok(true) => "the exec user can read each through its link",
        Ok(false) => "PID 1 wrote each to the tmpfs, and the links lead there",
        Err(error) => return failed(error),
    };
    let items: Vec<ReportItem> = items.into_iter().chain(settings.left_out_items()).collect();
    StepReport::of_items(STEP, format!("links in {dir} lead to the tmpfs"), probe, items)
}

async fn linked(context: &StepContext, dir: &ContainerPath, item: ReportItem) -> ReportItem {
    if item.error.is_some() {
        return item;
    }
    let paths = dir.join(&item.name).and_then(|at| {
        let target = ContainerPath::parse(format!("/.coracle/run/amplifier/{}", item.name))?;
        Ok((at, target))
    });
    let done = match paths {
        Ok((at, target)) => backup::link(context, &at, &target).await,
        Err(err) => Err(err.to_string()),
    };
    match done {
        Ok(()) => item,
        Err(error) => ReportItem::failed(item.name, error),
    }
}
