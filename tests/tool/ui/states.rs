//! The page while it loads and when it is empty, its warnings, and its use with only the keyboard.

use super::super::{Tool, with_engine};
use super::OpenPage;
use super::browser::Browser;

#[tokio::test]
async fn the_page_says_what_it_waits_for_and_leaves_focus_and_warnings_where_they_belong() {
    with_engine("", async |tool: &Tool<'_>| {
        let Some(mut page) = OpenPage::start(tool, "stated").await else { return };
        let browser = &mut page.browser;
        loading(browser).await;
        nothing(browser).await;
        warnings(browser).await;
        failures(browser).await;
        keyboard(browser).await;
        page.end().await;
    })
    .await;
}

/// A page shows its heading and frame immediately. Late content does not take the focus.
async fn loading(browser: &mut Browser) {
    for (hash, heading) in
        [("#/sessions", "Sessions"), ("#/", "Machines"), ("#/machine/stated", "stated"), ("#/workflows", "Workflows")]
    {
        browser.hold("path !== 'static'").await;
        browser.go(hash).await;
        browser
            .until(&format!(
                "document.activeElement.tagName === 'H1' && document.activeElement.textContent === '{heading}'"
            ))
            .await;
        browser.until("document.querySelector('.skeleton')").await;
        browser.until("(document.querySelector('#settings button').focus(), true)").await;
        browser.release().await;
        browser.until("!document.querySelector('.skeleton')").await;
        browser.until("document.activeElement === document.querySelector('#settings button')").await;
    }
}

/// A page for a missing object says so, and links back.
async fn nothing(browser: &mut Browser) {
    for (hash, heading, back) in [
        ("#/machine/none", "Machine not found", "Machines"),
        ("#/workflow/none", "Workflow not found", "Workflows"),
        ("#/elsewhere", "Page not found", "Machines"),
    ] {
        browser.go(hash).await;
        browser.until(&format!("document.querySelector('h1')?.textContent === '{heading}'")).await;
        browser.click(".empty-state a").await;
        browser.until(&format!("document.querySelector('h1')?.textContent === '{back}'")).await;
    }
}

/// Has a call answer a warning.
async fn warn(browser: &mut Browser, then: &str) {
    let answer = "{ success: true, warnings: [{ code: 'review', message: 'look at `x` first' }] }";
    let call = format!(
        "Promise.all([import(new URL('static/api.js', location.href)), import(new URL('static/messages.js', location.href))]) \
         .then(async ([{{ call }}, {{ moveTo }}]) => {{ const real = fetch; \
         globalThis.fetch = async () => new Response(JSON.stringify({answer})); \
         await call('destroy', {{ container: 'web' }}).finally(() => {{ globalThis.fetch = real; }}); {then} return true; }})"
    );
    browser.holds(&call).await;
    browser.until("document.querySelector('#warnings li')?.textContent === 'web: look at x first'").await;
    browser.until("document.querySelector('#warnings li code')?.textContent === 'x'").await;
}

/// A warning stays until it is closed or the user goes elsewhere, and goes along where its own act leads.
async fn warnings(browser: &mut Browser) {
    browser.go("#/").await;
    warn(browser, "").await;
    browser.click("[data-key='close warnings']").await;
    browser.until("!document.querySelector('#warnings li')").await;
    warn(browser, "").await;
    browser.go("#/sessions").await;
    browser.until("document.querySelector('h1')?.textContent === 'Sessions'").await;
    browser.until("!document.querySelector('#warnings li')").await;
    warn(browser, "moveTo('#/');").await;
    browser.until("document.querySelector('h1')?.textContent === 'Machines'").await;
    browser.until("document.querySelector('#warnings li')").await;
    browser.click("[data-key='close warnings']").await;
}

/// A list makes one request at a time for any duration of the answer, and a failed refresh does not remove its rows.
async fn failures(browser: &mut Browser) {
    browser.hold("path === 'machines'").await;
    browser.until("globalThis.waiting() > 0").await;
    let after_two_more_turns = "new Promise((done) => setTimeout(() => done(globalThis.waiting() === 1), 4500))";
    browser.holds(after_two_more_turns).await;
    browser.release().await;
    let fail = "(() => { globalThis.working = fetch; const failure = { success: false, error: true, \
        message: 'no engine', hint: 'see `coracle preflight`', code: 'engine_unavailable' }; \
        globalThis.fetch = async () => new Response(JSON.stringify(failure)); return true; })()";
    browser.until(fail).await;
    browser.until("document.querySelector('.failure .hint code')?.textContent === 'coracle preflight'").await;
    browser.until("document.querySelector(\"[data-key='open stated']\")").await;
    browser.until("(globalThis.fetch = globalThis.working, true)").await;
    browser.until("!document.querySelector('.failure')").await;
}

async fn keyboard(browser: &mut Browser) {
    browser.until("(document.querySelector(\"[data-key='menu stated']\").focus(), true)").await;
    browser.press("ArrowDown").await;
    browser.until("document.activeElement.textContent === 'Open'").await;
    browser.press("ArrowUp").await;
    browser.until("document.activeElement.textContent === 'Remove…'").await;
    browser.press("Escape").await;
    browser.until("document.activeElement.dataset.key === 'menu stated' && !document.querySelector('.menu')").await;
    browser.type_keys("n").await;
    browser.until("document.activeElement.id === 'create-name'").await;
    browser.type_keys("n/").await;
    browser.until("document.activeElement.value === 'n/'").await;
    browser.press("Escape").await;
    browser.until("!document.querySelector('dialog')").await;
    browser.type_keys("/none").await;
    browser.until("document.querySelector('.rows')?.textContent === 'Nothing matches the search.'").await;
    browser.until("(document.activeElement.select(), true)").await;
    browser.type_keys("stated").await;
    browser.until("document.querySelector(\"[data-key='open stated']\")").await;
    browser.until("(document.activeElement.blur(), true)").await;
    browser.type_keys("gs").await;
    browser.until("document.querySelector('h1')?.textContent === 'Sessions'").await;
    browser.type_keys("?").await;
    browser.until("document.querySelector('dialog h2')?.textContent === 'Keyboard'").await;
    browser.screenshots("keyboard").await;
    browser.press("Escape").await;
    browser.go("#/machine/stated").await;
    browser.until("document.querySelector('#tab-overview[aria-selected=true]')").await;
    browser.until("(document.querySelector('#tab-overview').focus(), true)").await;
    browser.press("ArrowLeft").await;
    browser
        .until("document.activeElement.id === 'tab-timeline' && location.hash === '#/machine/stated/timeline'")
        .await;
}
