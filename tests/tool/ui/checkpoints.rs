//! The tab of saved states.

use coracle_types::Capability;
use serde_json::json;

use super::super::with_rootful_engine;
use super::UiServer;
use super::browser::Browser;

#[tokio::test]
async fn a_user_goes_back_to_a_saved_state_by_a_click() {
    with_rootful_engine("[checkpoints]\nsteps = \"off\"\n", async |tool| {
        let Some(mut browser) = Browser::start().await else { return };
        let web = tool.created(json!({ "name": format!("page-undo-{}", tool.case.engine()) })).await;
        let mut server = UiServer::start(tool).await;
        browser.open(&server.address()).await;
        browser.go(&format!("#/machine/{web}/undo")).await;
        let status = |text: &str| format!("document.querySelector('#status').textContent === '{text}'");
        if Capability::lacked_by(tool.case.engine()).contains(&Capability::Checkpoint) {
            browser.until("document.querySelector('.undo .empty-state h2')?.textContent === 'No saved states'").await;
        } else {
            browser.click("[data-key='save first']").await;
            browser.until(&status("Checkpoint 1 is saved.")).await;
            tool.prints(&web, "rm /bin/wget; echo more >/more").await;
            browser.click("[data-key='save checkpoint']").await;
            browser.until(&status("Checkpoint 2 is saved.")).await;
            browser.choose("[data-key='step 2']", "Show its changes").await;
            let rows = "[...document.querySelectorAll('.undo .viewer li')].map((it) => it.textContent).join()";
            browser.until(&format!("{rows}.includes('Removed /bin/wget') && {rows}.includes('Added /more')")).await;
            browser.screenshots("undo").await;
            browser.choose("[data-key='step 1']", "Go back here…").await;
            browser.click("dialog [value='yes']").await;
            let back = format!("{web} has the files of step 1. Step 2 has those that it had before.");
            browser.until(&status(&back)).await;
            assert_eq!(tool.prints(&web, "ls /bin/wget; ls /more 2>/dev/null || echo none").await, "/bin/wget\nnone");
        }
        browser.end().await;
        server.stop().await;
        tool.destroy(&web).await;
    })
    .await;
}
