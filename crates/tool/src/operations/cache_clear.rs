//! `cache_clear`: removes cached images.

use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText, Symbol};
use coracle_context::failure::Failure;
use coracle_images::cache::{CacheClearReport, CachedImageInfo, Clear, RetainedImage};
use coracle_images::profile::Purpose;
use coracle_prepare::image_build::cache;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::shapes::{ImageShape, RetainedImageShape};
use jiff::Timestamp;

/// Remove the cached images of one purpose, or all of them and the bases that were built here. What a container
/// uses stays.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CacheClear {
    /// What the container is for: `python`, `node`, `bun`, `rust`, `go`, `general`, `browser`, `desktop`, `clean`,
    /// `amplifier`, `try-repo`, or a configured purpose. It decides image, packages and setup, which are cached as an
    /// image.
    #[schemars(with = "Option<String>")]
    purpose: Option<Purpose>,
    /// List what would be removed, and remove nothing. `prune` does no more unless this is false, `cache_clear` unless it is true.
    dry_run: Option<bool>,
}

/// The answer of `cache_clear`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct CacheClearResponse {
    /// The purpose, when one was given and something went; else the names of what went.
    cleared: Vec<String>,
    detail: String,
    #[schemars(with = "Vec<RetainedImageShape>")]
    kept: Vec<RetainedImage>,
    #[schemars(with = "Vec<ImageShape>")]
    images: Vec<CachedImageInfo>,
}

impl Operation for CacheClear {
    const NAME: &'static str = "cache_clear";
    const EFFECT: Effect = Effect::Irreversible;
    const RESULT: fn() -> Value = result_schema::<CacheClearResponse>;
    type Response = CacheClearResponse;

    async fn run(self, cx: &Context) -> Result<CacheClearResponse, Failure> {
        let runtime = cx.runtime().await?;
        let dry_run = self.dry_run.unwrap_or(false);
        let own_names = vec![cx.config.run_code.image.clone()];
        let clear = Clear { purpose: self.purpose.clone(), dry_run, own_names };
        let CacheClearReport { images, cleared, retained: kept } =
            cache(cx, &cx.store()?)?.clear(&*runtime, &clear).await?;
        let freed: u64 = images.iter().filter(|it| cleared.contains(&it.image)).map(|it| it.size_bytes).sum();
        let count = cleared.len();
        let detail = match (count, dry_run) {
            (0, _) if kept.is_empty() => "nothing to clear".to_owned(),
            (0, _) => format!("nothing cleared, {} kept", kept.len()),
            (_, true) => format!("{count} would go, {} MB with what they share", freed / 1_000_000),
            (_, false) => format!("{count} cleared, {} MB with what they share", freed / 1_000_000),
        };
        let cleared = match &self.purpose {
            Some(purpose) if count > 0 => vec![purpose.to_string()],
            _ => cleared.iter().map(ToString::to_string).collect(),
        };
        Ok(CacheClearResponse { cleared, detail, kept, images })
    }
}

impl Render for CacheClearResponse {
    fn render(&self, _: Timestamp) -> Document {
        let cleared = self.cleared.iter().map(|it| StyledText::new().symbol(Symbol::Success).plain(" ").name(it));
        let kept = self
            .kept
            .iter()
            .map(|it| StyledText::new().symbol(Symbol::Skipped).plain(format!(" {} kept: {}", it.image, it.reason)));
        Document::default().and_lines(cleared.chain(kept)).then(self.detail.as_str()).timed_at_the_end()
    }
}
