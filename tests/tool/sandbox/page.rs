//! Workflows in the page: start, follow, cancel, apply, push, remove.

use serde_json::json;

use super::{Bench, FILES, fix_turns, with_bench};
use crate::engines::git;
use crate::servers::model::{held, says};
use crate::tool::ui::UiServer;
use crate::tool::ui::browser::Browser;

#[tokio::test]
async fn a_user_starts_and_follows_a_workflow_in_a_browser() {
    let other = format!("\n[sandbox.profiles.other]\nimage = \"{}\"\n", super::WITH_GIT);
    with_bench(&other, async |bench| {
        let Some(mut browser) = Browser::start().await else { return };
        git(bench.tool.work().as_path(), &["clone", "--quiet", &bench.url(), "web"], "").await;
        let checkout = bench.tool.work().join("web");
        let mut page = UiServer::start(bench.tool).await;
        browser.open(&page.address()).await;
        bench.model.then(fix_turns());
        start(&mut browser, "Fix `add.sh`.", checkout.to_str().unwrap()).await;
        followed(&mut browser).await;
        listed(bench, &mut browser).await;
        taken_over(bench, &mut browser).await;
        assert_eq!(
            std::fs::read_to_string(checkout.join("add.sh")).unwrap(),
            FILES[0].1.replace(" - ", " + "),
            "the changes are in the checkout"
        );
        of_another_profile(bench, &mut browser).await;
        cancelled(bench, &mut browser).await;
        browser.end().await;
        page.stop().await;
    })
    .await;
}

async fn start(browser: &mut Browser, prompt: &str, source: &str) {
    browser.go("#/workflows").await;
    browser.click("[data-key='start']").await;
    browser.fill("#start-prompt", prompt).await;
    browser.fill("#start-source", source).await;
    browser.click("dialog [type='submit']").await;
    browser.until("location.hash.startsWith('#/workflow/w-')").await;
}

async fn followed(browser: &mut Browser) {
    browser.until("document.querySelector('.message.task')?.textContent === 'TaskFix add.sh.'").await;
    browser.until("document.querySelector('.message.result')?.textContent.includes('the test passes')").await;
    browser.until("document.querySelectorAll('.tool .state.good').length === 4").await;
    browser.until("document.querySelector('.subtitle .state')?.textContent === 'Done'").await;
    browser.until("document.querySelector('.subtitle').textContent.includes('60 tokens')").await;
    browser.screenshots("workflow").await;
}

/// The list has the state and the tokens of each, without a call for each.
async fn listed(bench: &Bench<'_>, browser: &mut Browser) {
    let listed = bench.worktree(&["list"]).await;
    let run = &listed["worktrees"][0]["run"];
    assert_eq!((&run["state"], &run["prompt"]), (&json!("done"), &json!("Fix `add.sh`.")), "{listed:#}");
    let id = listed["worktrees"][0]["id"].as_str().unwrap();
    browser.hold("options?.operation === 'workflow_status'").await;
    browser.go("#/workflows").await;
    let row = "[...document.querySelector('tbody tr').children].map((it) => it.textContent.replace(/\\u00a0/g, ' '))";
    browser.until("document.querySelector('tbody tr')").await;
    browser.until(&format!("{row}[1] === 'Done' && {row}[3] === '1' && {row}[4] === '60'")).await;
    browser.screenshots("workflows").await;
    browser.until("(globalThis.release(), true)").await;
    browser.click(&format!("[data-key='open default {id}']")).await;
    browser.until("document.querySelector('.message.result')").await;
}

async fn taken_over(bench: &Bench<'_>, browser: &mut Browser) {
    browser.click("[data-key='tab changes']").await;
    browser.until("document.querySelector('.diff .added')?.textContent === '+echo $(($1 + $2))\\n'").await;
    browser.until("document.querySelector('.diff-file summary').textContent.startsWith('add.sh')").await;
    browser.screenshots("workflow-changes").await;
    browser.click("[data-key='apply']").await;
    browser.click("dialog [value='yes']").await;
    browser.until("document.querySelector('#status').textContent === 'The changes were applied.'").await;
    browser.click("[data-key='push']").await;
    browser.click("dialog [value='yes']").await;
    browser.until("document.querySelector('#status').textContent.startsWith('refs/heads/coracle/w-')").await;
    let source = bench.tool.work().join("web");
    let refs = git(&source, &["for-each-ref", "--format=%(refname)"], "").await;
    assert!(refs.contains("refs/heads/coracle/w-"), "{refs}");
    browser.choose("[data-key='More actions']", "Remove…").await;
    browser.click("dialog [value='yes']").await;
    browser.until("document.querySelector('h1').textContent === 'Workflows'").await;
    browser.until("document.querySelector('.empty-state h2')?.textContent === 'No workflows yet'").await;
}

/// A workflow of another profile, without an agent's work.
async fn of_another_profile(bench: &Bench<'_>, browser: &mut Browser) {
    let id = bench.id("other");
    bench.worktree(&["create", &bench.url(), "--workflow", &id, "--profile", "other"]).await;
    browser.go("#/sessions").await;
    browser.until("document.querySelector('h1').textContent === 'Sessions'").await;
    browser.go("#/workflows").await;
    browser.click(&format!("[data-key='open other {id}']")).await;
    browser
        .until("document.querySelector('.empty-state code')?.textContent.includes('--profile other --prompt')")
        .await;
    browser.click("[data-key='tab changes']").await;
    browser.until("document.querySelector('#panel-changes h2')?.textContent === 'No changes'").await;
    browser.choose("[data-key='More actions']", "Remove…").await;
    browser.click("dialog [value='yes']").await;
    browser.until("document.querySelector('.empty-state h2')?.textContent === 'No workflows yet'").await;
}

async fn cancelled(bench: &Bench<'_>, browser: &mut Browser) {
    let (turn, _go) = held(says("never"));
    bench.model.then([turn]);
    start(browser, "Wait.", &bench.url()).await;
    browser.until("document.querySelector('.transcript + .now')?.hidden === false").await;
    browser.click("[data-key='Cancel']").await;
    browser.until("document.querySelector('.subtitle .state')?.textContent === 'Cancelled'").await;
    browser.until("document.querySelector('.transcript + .now').hidden").await;
}
