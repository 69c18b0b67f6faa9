//! A user's work with a machine: create, inspect, run, stop, apply, remove.

use serde_json::Value;

use super::super::{IMAGE, Tool, with_limited_engine};
use super::UiServer;
use super::browser::Browser;

/// Where limits are enforced: one is shown. Without root the screenshots would be in a directory of another user.
#[tokio::test]
async fn a_user_works_with_a_machine_in_a_browser() {
    let mounts = "[[workspace.mounts]]\nhost_path = \"project\"\n";
    with_limited_engine(&format!("[workspace]\nimage = \"{IMAGE}\"\n{mounts}"), async |tool| {
        let Some(mut browser) = Browser::start().await else { return };
        let project = tool.work().join("project");
        std::fs::create_dir_all(&project).unwrap();
        std::fs::write(project.join("hello.txt"), "hello\n").unwrap();
        let mut page = UiServer::start(tool).await;
        browser.open(&page.address()).await;
        browser.until("document.querySelector('h1')?.textContent === 'Machines'").await;
        browser.until("document.querySelector('.empty-state h2')?.textContent === 'No machines yet'").await;
        create(&mut browser).await;
        overview(&mut browser).await;
        watch_job(&mut browser).await;
        report(&mut browser).await;
        power(&mut browser).await;
        apply(tool, &mut browser).await;
        assert_eq!(std::fs::read_to_string(project.join("hello.txt")).unwrap(), "changed\n");
        browser.go("#/sessions").await;
        browser.until("document.querySelector('main table')").await;
        browser.screenshots("sessions").await;
        browser.go("#/workflows").await;
        browser.until("document.querySelector('.empty-state h2')?.textContent === 'No workflows yet'").await;
        destroy(&mut browser).await;
        browser.end().await;
        page.stop().await;
        let left = tool.call(serde_json::json!({ "operation": "status", "container": "page" })).await;
        assert_eq!(left["code"], "not_found", "{left:#}");
        let removals = tool.run(["audit", "log", "--operation", "destroy", "--json"], b"").await;
        let removals: Value = serde_json::from_slice(&removals.stdout).unwrap();
        assert_eq!(removals["acts"][0]["by"], "ui", "{removals:#}");
    })
    .await;
}

async fn create(browser: &mut Browser) {
    browser.click("[data-key='create first']").await;
    browser.fill("#create-name", "page").await;
    browser.fill("#create-image", IMAGE).await;
    browser.click("dialog summary").await;
    browser.fill("#create-memory_limit", "64x").await;
    browser.click("dialog [type='submit']").await;
    browser.until("document.querySelector('dialog .failure')?.textContent.includes('memory_limit')").await;
    browser.until("document.querySelector('#create-name').value === 'page'").await;
    browser.screenshots("create").await;
    browser.fill("#create-memory_limit", "64m").await;
    browser.click("dialog [type='submit']").await;
    browser.until("document.querySelector('[data-key=\"open created\"]')?.textContent === 'Open page'").await;
    // The steps were shown while it was created.
    browser.until("document.querySelectorAll('dialog .steps li').length > 1").await;
    browser.screenshots("created").await;
    browser.click("[data-key='close dialog']").await;
    browser.until("document.querySelector('.gauge')?.title.endsWith('of 64\\u00a0MiB')").await;
    browser.screenshots("machines").await;
    browser.click("[data-key='open page']").await;
    browser.until("document.title === 'page – Coracle'").await;
}

async fn overview(browser: &mut Browser) {
    browser.until("document.querySelectorAll('.chart .line').length === 2").await;
    browser.until("document.querySelector('#panel-overview').textContent.includes('coracle shell page')").await;
    browser.screenshots("overview").await;
}

async fn watch_job(browser: &mut Browser) {
    browser.click("[data-key='tab jobs']").await;
    browser.until("location.hash === '#/machine/page/jobs'").await;
    browser.fill("#job-command", "echo one; sleep 2; echo two; sleep 300").await;
    browser.click("form.line button").await;
    browser.until("document.querySelector('.output')?.textContent === 'one\\n'").await;
    browser.until("document.querySelector('.output')?.textContent === 'one\\ntwo\\n'").await;
    browser.fill(".viewer .search", "TWO").await;
    browser.until("document.querySelector('.output')?.textContent === 'two'").await;
    browser.screenshots("jobs").await;
    browser.choose("[data-key^='job ']", "Cancel").await;
    browser.until("document.querySelector('.output + .help')?.textContent.startsWith('cancelled')").await;
    browser.fill("#job-command", "exit 7").await;
    browser.click("form.line button").await;
    browser.until("[...document.querySelectorAll('.state.bad')].some((it) => it.textContent === 'Exit 7')").await;
}

async fn report(browser: &mut Browser) {
    browser.click("[data-key='tab report']").await;
    browser.until("document.querySelector('.report .skipped')?.open === false").await;
    browser.screenshots("report").await;
    browser.click("[data-key='tab timeline']").await;
    browser.until("document.querySelector('#panel-timeline table')?.textContent.includes('exec background')").await;
}

/// A call of the machine's page that ends while another page is open does not change that one.
async fn power(browser: &mut Browser) {
    browser.hold("options?.operation === 'stop'").await;
    browser.click("[data-key='Stop']").await;
    browser.go("#/").await;
    browser.click("[data-key='create']").await;
    browser.fill("#create-name", "typed-later").await;
    browser.release().await;
    browser.until("document.querySelector('#status').textContent === 'page is stopped.'").await;
    browser.until("document.querySelector('#create-name').value === 'typed-later'").await;
    browser.click("[data-key='close dialog']").await;
}

async fn apply(tool: &Tool<'_>, browser: &mut Browser) {
    let words = ["workspace", "shell-execute", "--", "sh", "-c", "echo changed > hello.txt; ln -s hello.txt later"];
    let written = tool.run(words, b"").await;
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    browser.go("#/session/default/changes").await;
    browser.until("document.querySelector('h1')?.textContent === 'default'").await;
    browser.until("document.querySelector('.diff .added')?.textContent === '+changed\\n'").await;
    let passed_over = "[...document.querySelectorAll('main li')].some((it) => \
        it.textContent.endsWith('later is passed over: it is a link'))";
    browser.until(passed_over).await;
    browser.screenshots("changes").await;
    browser.click("[data-key='Apply to this host']").await;
    browser.click("dialog [value='yes']").await;
    browser.until("document.querySelector('.done')?.textContent === '1 file was written.'").await;
    browser.until(passed_over).await;
}

async fn destroy(browser: &mut Browser) {
    browser.go("#/").await;
    browser.choose("[data-key='menu page']", "Remove…").await;
    browser.click("dialog [value='no']").await;
    browser.until("!document.querySelector('dialog')").await;
    browser.choose("[data-key='menu page']", "Remove…").await;
    browser.click("dialog [value='yes']").await;
    browser.until("document.querySelector('#status').textContent.startsWith('page is removed')").await;
    browser.until("!document.querySelector(\"[data-key='menu page']\")").await;
}
