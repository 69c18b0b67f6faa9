//! Terminals of the page: nothing that the user types is lost.

use super::super::{Tool, with_limited_engine};
use super::OpenPage;
use super::browser::Browser;

const SCREEN: &str = "document.querySelector('.terminal-box:not([hidden]) .xterm-rows')";

#[tokio::test]
async fn a_terminal_takes_keys_while_the_page_loads_and_continues_without_it() {
    with_limited_engine("", async |tool: &Tool<'_>| {
        let Some(mut page) = OpenPage::start(tool, "typed").await else { return };
        let browser = &mut page.browser;
        browser.go("#/machine/typed/terminal").await;
        attached(browser).await;
        shows(browser, "[#$]\\s").await;

        // Calls that end late do not take the focus: each key arrives.
        browser.hold("path === 'machines'").await;
        browser.until("globalThis.waiting() > 0").await;
        let (first, second) = ("a".repeat(20), "b".repeat(20));
        browser.type_keys(&format!("echo {first}")).await;
        browser.release().await;
        browser.type_keys(&format!("{second}-$((40 + 2))\r")).await;
        shows(browser, &format!("{first}{second}-42")).await;

        // Text without key events is neither lost nor doubled.
        browser.insert_text("echo d-é😀-$((1 + 1))").await;
        browser.type_keys("\r").await;
        shows(browser, "\nd-é😀\\s*-2").await;

        // The terminal continues without the page, and another one is shown too.
        browser.click("[data-key='Detach']").await;
        browser.until("document.querySelector('.terminal-state').textContent === 'Detached'").await;
        browser.click("[data-key='New terminal']").await;
        attached(browser).await;
        browser.type_keys("echo other-$((2 + 3))\r").await;
        shows(browser, "other-5").await;
        browser.until("document.querySelectorAll('.terminals button').length === 2").await;
        browser.click(".terminals button").await;
        attached(browser).await;
        shows(browser, "-42").await;
        browser.screenshots("terminal").await;
        readable(browser).await;
        page.end().await;
    })
    .await;
}

async fn attached(browser: &mut Browser) {
    browser.until("document.querySelector('.terminal-state')?.textContent === 'Attached'").await;
    browser.until("document.activeElement.classList.contains('xterm-helper-textarea')").await;
}

/// Waits until the screen matches.
async fn shows(browser: &mut Browser, pattern: &str) {
    let text =
        format!("[...{SCREEN}.children].map((it) => it.textContent.replaceAll('\\u00a0', ' ').trimEnd()).join('\\n')");
    let pattern = serde_json::json!(pattern);
    browser.until(&format!("{SCREEN} && new RegExp({pattern}).test({text} + ' ')")).await;
}

/// Each of the sixteen colors has a contrast of 4.5 or more on the background, in both themes.
async fn readable(browser: &mut Browser) {
    let contrast = "((theme) => { document.documentElement.dataset.theme = theme; \
        const probe = document.body.appendChild(document.createElement('span')); \
        const light = (name) => { probe.style.color = `var(--${name})`; \
            const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).map((it) => { const part = it / 255; \
                return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; }); \
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]; }; \
        const names = ['red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'].flatMap((it) => [`ansi-${it}`, `ansi-bright-${it}`]); \
        const [back, wrong] = [light('terminal'), []]; \
        for (const name of names) { const pair = [back, light(name)].sort((a, b) => b - a); \
            if ((pair[0] + 0.05) / (pair[1] + 0.05) < 4.5) wrong.push(name); } \
        probe.remove(); delete document.documentElement.dataset.theme; return wrong.join(', '); })";
    for theme in ["light", "dark"] {
        browser.holds(&format!("{contrast}('{theme}') === ''")).await;
    }
}
