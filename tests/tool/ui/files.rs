//! Files of a machine in the page.

use serde_json::json;

use super::super::{Tool, with_engine};
use super::OpenPage;

#[tokio::test]
async fn files_of_a_machine_are_shown_and_downloaded_byte_for_byte() {
    with_engine("", async |tool: &Tool<'_>| {
        let Some(mut page) = OpenPage::start(tool, "filed").await else { return };
        let script = "mkdir -p '/tmp/files/a b%41' && cd /tmp/files && printf 'one\\ntwo\\n' > 'a b%41/text.txt' && \
                      printf '\\000\\377\\n' > binary && ln -s 'a b%41' link && ln -s nowhere broken && mkfifo pipe && \
                      printf '<script>alert(1)</script>' > page.html";
        let made = tool.call(json!({ "operation": "exec", "container": "filed", "command": script })).await;
        assert_eq!(made["exit_code"], 0, "{made:#}");
        let browser = &mut page.browser;
        browser.go("#/machine/filed/files").await;
        browser.click("[data-key='path /']").await;
        browser.click("[data-key='file /tmp']").await;
        browser.click("[data-key='file /tmp/files']").await;
        browser.until("document.querySelector('#panel-files tbody th')?.textContent === 'a b%41'").await;
        browser.until("!document.querySelector(\"[data-key='file /tmp/files/pipe']\")").await;
        browser.click("[data-key='file /tmp/files/binary']").await;
        browser.until("document.querySelector('.viewer .empty')?.textContent === 'This is not a text.'").await;
        browser.click("[data-key='file /tmp/files/link']").await;
        browser.click("[data-key='file /tmp/files/link/text.txt']").await;
        browser.until("document.querySelector('.viewer pre')?.textContent === 'one\\ntwo\\n'").await;
        browser.screenshots("files").await;
        let fetched = |path: &str, expected: &str| {
            format!(
                "fetch('file/filed?path=' + encodeURIComponent('{path}')).then(async (it) => ({expected}))"
            )
        };
        let bytes = "[...new Uint8Array(await it.arrayBuffer())].join() === '0,255,10'";
        browser.holds(&fetched("/tmp/files/binary", bytes)).await;
        // No browser renders a file of a container as a page of Coracle.
        let safe = "it.headers.get('content-type') === 'application/octet-stream' && \
                    it.headers.get('content-disposition') === 'attachment' && it.headers.get('x-content-type-options') === 'nosniff'";
        browser.holds(&fetched("/tmp/files/page.html", safe)).await;
        for (path, code) in [("/tmp/files/none", "path_not_found"), ("/tmp/files", "invalid_input"), ("/tmp/files/pipe", "invalid_input"), ("x", "invalid_input")] {
            browser.holds(&fetched(path, &format!("(await it.json()).code === '{code}'"))).await;
        }
        page.end().await;
    })
    .await;
}
