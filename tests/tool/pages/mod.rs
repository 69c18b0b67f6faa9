//! Every example of the pages is run: each block is typed, read, or has a comment with the reason why not.

mod blocks;
mod data;
mod editor;
mod programs;
pub(super) mod scene;

use coracle_types::EngineKind;

use self::blocks::{Block, Typed, blocks, is_shown};
use self::scene::Scene;
use super::debian::lock;
use super::newcomer::{Newcomer, Shown};
use crate::engines::Lack;

/// A test for each page that types something, in order of their names.
macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];

        $(
            #[tokio::test]
            async fn $test() {
                type_page($page).await;
            }
        )*
    };
}

pages! {
    the_readme_does_what_it_shows: "README.md",
    json_calls_do_what_their_page_shows: "docs/calls.md",
    the_command_line_does_what_its_page_shows: "docs/command-line.md",
    the_first_five_minutes_do_what_their_page_shows: "docs/first-five-minutes.md",
    lifetimes_do_what_their_page_shows: "docs/lifetimes.md",
    networks_do_what_their_page_shows: "docs/networks.md",
    the_terminal_does_what_its_page_shows: "docs/people.md",
    profiles_do_what_their_page_shows: "docs/profiles.md",
    provisioning_does_what_its_page_shows: "docs/provisioning.md",
    a_container_without_a_network_is_what_its_recipe_shows: "docs/recipes/no-network.md",
    a_container_without_a_registry_is_what_its_recipe_shows: "docs/recipes/no-registry.md",
    postgres_beside_an_app_is_what_its_recipe_shows: "docs/recipes/postgres.md",
    ten_agents_do_what_their_recipe_shows: "docs/recipes/ten-agents.md",
    a_repository_is_tried_as_its_recipe_shows: "docs/recipes/try-a-repository.md",
    sandboxes_do_what_their_page_shows: "docs/sandboxes.md",
    saved_work_does_what_its_page_shows: "docs/saved-work.md",
    snapshots_do_what_their_page_shows: "docs/snapshots.md",
    stacks_do_what_their_page_shows: "docs/stacks.md",
    a_workspace_does_what_its_page_shows: "docs/workspace.md",
}

/// Languages of diagrams, which are not run.
const DRAWN: &[&str] = &["", "text"];

#[test]
fn each_block_is_run_or_says_why_not() {
    let all = blocks();
    let forgotten = |it: &&Block| {
        let is_data = data::LANGUAGES.contains(&&*it.language) || programs::LANGUAGES.contains(&&*it.language);
        let tried = it.is_typed() && PAGES.contains(&it.page.as_str()) || is_data;
        !tried && it.not_run.as_deref().is_none_or(str::is_empty) && !DRAWN.contains(&&*it.language)
    };
    let forgotten: Vec<String> =
        all.iter().filter(forgotten).map(|it| format!("{}: {} is not run", it.at(), it.language)).collect();
    assert_eq!(forgotten, Vec::<String>::new());
    assert!(all.iter().filter(|it| it.is_typed()).count() > 15, "the pages are found");
}

/// Types all blocks of a page on each engine, each in a person's shell.
async fn type_page(page: &str) {
    let scene = Scene::of(page).await;
    scene
        .person()
        .on_real_engines(async |tool| {
            let needed = match page {
                "docs/networks.md" => Some(Lack::NamedNetworks),
                "docs/recipes/postgres.md" | "docs/stacks.md" => Some(Lack::Compose),
                "docs/recipes/try-a-repository.md" => Some(Lack::HostAddress),
                _ => None,
            };
            if needed.is_some_and(|it| tool.case.lacks(it)) {
                return;
            }
            // A newcomer's containers there take the address of the git server for their own.
            if page == "docs/recipes/try-a-repository.md" && tool.case.engine() == EngineKind::Embedded {
                return tool.case.left_out();
            }
            let newcomer = Newcomer::new(tool).await;
            // Pages use the same names for their containers.
            let _alone = lock(tool.case, "pages").await;
            scene.begin(&newcomer).await;
            let mut faults = Vec::new();
            let typed = blocks().into_iter().filter(|it| it.page == page && it.is_typed() && it.not_run.is_none());
            for (number, block) in typed.enumerate() {
                for line in scene.before(page, number + 1) {
                    let shown = newcomer.types(&scene.fill(&newcomer, line).await).await;
                    assert_eq!(shown.code, Some(0), "{line}: {}", shown.text);
                }
                for typed in block.typed() {
                    let line = scene.fill(&newcomer, &typed.line).await;
                    let shown = scene.types(&newcomer, &line).await;
                    faults.extend(fault(&typed, &shown).map(|it| format!("{}: {line}: {it}", block.at())));
                }
            }
            scene.end(&newcomer).await;
            assert!(faults.is_empty(), "on {}:\n{}", tool.case.engine(), faults.join("\n"));
        })
        .await;
}

/// The difference from the page.
fn fault(typed: &Typed, shown: &Shown) -> Option<String> {
    let fails = typed.shown.iter().any(|it| it.starts_with("error"));
    if (shown.code == Some(0)) == fails {
        return Some(format!("it ends with {:?}:\n{}", shown.code, shown.text));
    }
    let missing: Vec<_> = typed.shown.iter().filter(|it| !is_shown(it, &shown.text)).collect();
    (!missing.is_empty()).then(|| format!("it does not print {missing:#?}:\n{}", shown.text))
}
