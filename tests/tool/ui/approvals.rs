//! The page of refused requests.

use super::UiServer;
use super::browser::Browser;
use crate::tool::approvals::{Proxied, config, request};
use crate::tool::person::Person;
use crate::tool::proxied::Served;

#[tokio::test]
async fn a_request_that_waits_is_allowed_by_a_click() {
    let served = Served::here();
    let person = Person::new(config(60));
    person
        .on_real_engines(async |tool| {
            let Some(mut browser) = Browser::start().await else { return };
            let container = Proxied::create(tool, &served.url()).await;
            let mut server = UiServer::start(tool).await;
            browser.open(&server.address()).await;
            browser.go("#/network").await;
            browser.until("document.querySelector('.empty-state')").await;
            let clicks = async {
                let id = request(tool, "waiting").await;
                browser.until("document.querySelector('.state.busy')?.textContent === 'Waits for you'").await;
                browser.screenshots("network").await;
                browser.choose(&format!("[data-key='menu {} {id}']", container.name), "Allow for this container").await;
            };
            let (fetched, ()) = tokio::join!(container.is_allowed(), clicks);
            assert!(fetched);
            let allowed = format!("[data-key='menu {} {}']", container.name, served.rule());
            browser.choose(&allowed, "Revoke").await;
            browser.until("document.querySelector('#status').textContent.includes('no longer allowed')").await;
            // A decision for good is confirmed, and in the configuration.
            let clicks = async {
                let id = request(tool, "waiting").await;
                let menu = format!("[data-key='menu {} {id}']", container.name);
                browser.until(&format!("document.querySelector(\"{menu}\")")).await;
                browser.choose(&menu, "Allow always…").await;
                browser.click("dialog [value='yes']").await;
            };
            let (fetched, ()) = tokio::join!(container.is_allowed(), clicks);
            assert!(fetched);
            browser.until("document.querySelector('#status').textContent.includes('is in ')").await;
            browser.end().await;
            server.stop().await;
            container.destroy().await;
        })
        .await;
}
