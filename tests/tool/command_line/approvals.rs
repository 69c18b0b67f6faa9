//! `coracle approvals` at a terminal.

use super::typing::Typing;
use crate::tool::approvals::{Proxied, config};
use crate::tool::person::Person;
use crate::tool::proxied::Served;

#[tokio::test]
async fn each_request_is_shown_and_decided_by_a_word() {
    let served = Served::here();
    let person = Person::new(config(60));
    person
        .on_real_engines(async |tool| {
            let container = Proxied::create(tool, &served.url()).await;
            let mut terminal = Typing::start(tool, &["approvals"]);
            terminal.until("waiting for requests").await;
            let decides = async {
                terminal.until(&format!("{}: {} (ip_not_allowed, waits", container.name, served.rule())).await;
                terminal.until("[l]ater?").await;
                terminal.keys("what\r").await;
                terminal.until("what").await;
                terminal.until("[l]ater?").await;
                terminal.keys("o\r").await;
                terminal.until("is allowed").await;
            };
            let (fetched, ()) = tokio::join!(container.is_allowed(), decides);
            assert!(fetched);
            terminal.keys("\x03").await;
            terminal.end().await;
            container.destroy().await;
        })
        .await;
}
