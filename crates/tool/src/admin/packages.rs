//! `run packages`: packages that the snippets of all sessions can use.

use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render};
use coracle_context::failure::Failure;
use coracle_lifecycle::SharedPackage;
use coracle_prepare::session_tools::packages::{self, AddPackagesResponse, ClearPackagesResponse};
use coracle_types::{EngineKind, VolumeName};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dispatch::{Effect, Operation};

/// Fetch packages, with what they need.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AddPackages {
    /// Which language they are for.
    #[schemars(extend("enum" = ["typescript", "javascript", "python"]))]
    language: String,
    /// As its registry names it, with a version or without: `zod@4`, `six==1.17.0`.
    packages: Vec<String>,
}

impl Operation for AddPackages {
    const NAME: &'static str = "run packages add";
    const EFFECT: Effect = Effect::Mutating;
    type Response = AddPackagesResponse;

    async fn run(self, cx: &Context) -> Result<AddPackagesResponse, Failure> {
        Box::pin(packages::add(cx, &self.language, &self.packages)).await
    }
}

/// List them.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListPackages {}

#[derive(Debug, Serialize)]
pub(super) struct ListPackagesResponse {
    count: usize,
    packages: Vec<PackageRow>,
}

#[derive(Debug, Serialize)]
struct PackageRow {
    #[serde(flatten)]
    package: SharedPackage,
    engine: EngineKind,
    volume: VolumeName,
}

impl Operation for ListPackages {
    const NAME: &'static str = "run packages list";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = ListPackagesResponse;

    async fn run(self, cx: &Context) -> Result<ListPackagesResponse, Failure> {
        let shared = cx.store()?.shared_packages().map_err(coracle_lifecycle::Error::from)?;
        let rows = shared.into_iter().flat_map(|of| {
            let row = move |package| PackageRow { package, engine: of.engine, volume: of.volume.clone() };
            of.packages.into_iter().map(row)
        });
        let packages: Vec<_> = rows.collect();
        Ok(ListPackagesResponse { count: packages.len(), packages })
    }
}

impl Render for ListPackagesResponse {
    fn render(&self, _: Timestamp) -> Document {
        let row = |PackageRow { package, engine, .. }: &PackageRow| {
            vec![package.requested.as_str().into(), package.language.as_str().into(), engine.to_string().into()]
        };
        let columns = [Column::flexible("PACKAGE"), Column::fixed("LANGUAGE"), Column::fixed("ENGINE")];
        match self.packages.as_slice() {
            [] => Document::line("no packages for snippets; `coracle run packages add python six` adds one"),
            rows => Document::table(&columns, rows.iter().map(row).collect()),
        }
    }
}

/// Remove all of them.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ClearPackages {}

impl Operation for ClearPackages {
    const NAME: &'static str = "run packages clear";
    const EFFECT: Effect = Effect::Irreversible;
    type Response = ClearPackagesResponse;

    async fn run(self, cx: &Context) -> Result<ClearPackagesResponse, Failure> {
        packages::clear(cx).await
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::document::rendered;

    use super::*;

    #[test]
    fn packages_are_shown_as_they_were_requested() {
        let six = || SharedPackage { language: "python".into(), name: "six".into(), requested: "six==1".into() };
        let now = "2026-11-22T12:15:00Z";
        let none = ListPackagesResponse { count: 0, packages: Vec::new() };
        let hint = "no packages for snippets; `coracle run packages add python six` adds one";
        assert_eq!(rendered(&none, now), hint);
        let volume = VolumeName::parse("v").unwrap();
        let row = PackageRow { package: six(), engine: EngineKind::Docker, volume };
        let one = ListPackagesResponse { count: 1, packages: vec![row] };
        assert_eq!(rendered(&one, now), "PACKAGE  LANGUAGE  ENGINE\nsix==1   python    docker");
        let added = AddPackagesResponse { added: vec![six()], packages: vec![six(), six()] };
        assert_eq!(rendered(&added, now), "added six==1; snippets can use 2 packages");
        let cleared = ClearPackagesResponse { removed: vec![six()], in_use: false };
        assert_eq!(rendered(&cleared, now), "1 package removed");
    }
}
