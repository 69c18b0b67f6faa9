//! The user's variables in every command, and nowhere else.

use std::collections::BTreeMap;

use coracle_provision::env::{DEFAULT_PATTERNS, EnvRequest, EnvRules, SessionEnv, SessionEnvRecord, Sources, select};
use coracle_provision::{Status, gh};
use coracle_types::Secret;

use super::{items, place, sh};
use crate::engines::{with_a_guest, with_a_real_guest};

fn rules() -> EnvRules {
    let patterns: Vec<String> = DEFAULT_PATTERNS.iter().map(|it| (*it).to_owned()).collect();
    EnvRules::new(&patterns, &[], &[], false).unwrap()
}

fn host(pairs: &[(&str, &str)]) -> BTreeMap<String, Secret> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(value.as_bytes().to_vec()))).collect()
}

fn plain(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn every_command_has_what_was_chosen_and_nothing_else_of_the_host() {
    with_a_guest(async |running| {
        let place = place(running).await;
        let value = "canary 'one'\n\"two\" $HOME é";
        let host = host(&[("NPM_TOKEN", value), ("OPENAI_API_KEY", "host"), ("SSH_API_KEY", "no"), ("EDITOR", "no")]);
        let session = SessionEnv::from_sources(Sources {
            passthrough: select(&host, &EnvRequest::Auto, &rules()).unwrap(),
            token: Some(Secret::new(b"gho_1".to_vec())),
            profile: plain(&[("OPENAI_API_KEY", "profile"), ("FROM_PROFILE", "<${BEFORE}>")]),
            before: plain(&[("BEFORE", "image")]),
            call: plain(&[("GITHUB_TOKEN", "mine")]),
            ..Sources::default()
        });
        let step = session.send(&place.link).await;
        assert_eq!(step.status, Status::Success, "{step:?}");
        assert_eq!(step.detail, "5 variables: 1 profile, 2 passthrough, 1 gh, 1 env");
        let names = ["from_profile", "gh_token", "github_token", "npm_token", "openai_api_key"];
        assert_eq!(items(&step), names.map(|it| format!("{it} success")));
        let asks = "printf '%s|' \"$NPM_TOKEN\" \"$OPENAI_API_KEY\" \"$FROM_PROFILE\" \"$GH_TOKEN\" \"$GITHUB_TOKEN\" \"$SSH_API_KEY\"";
        assert_eq!(sh(&place, asks).await, format!("{value}|host|<image>|gho_1|mine||"));
        let step = gh::forwarded(&place, &session, &step).await;
        assert_eq!((step.status, step.detail.as_str()), (Status::Success, "GH_TOKEN of every command"), "{step:?}");
        let seen = format!("{:?}", running.seen().await);
        assert!(!seen.contains("canary") && !seen.contains("gho_1"), "{seen}");
    })
    .await;
}

#[tokio::test]
async fn after_a_restart_what_can_be_had_again_is_back_and_the_rest_is_named() {
    with_a_real_guest(async |running| {
        let place = place(running).await;
        let had = host(&[("NPM_TOKEN", "first"), ("OLD_TOKEN", "old")]);
        let sources = Sources {
            passthrough: select(&had, &EnvRequest::Auto, &rules()).unwrap(),
            call: plain(&[("DB_PASSWORD", "x"), ("COLOUR", "blue")]),
            ..Sources::default()
        };
        let session = SessionEnv::from_sources(sources.clone());
        session.send(&place.link).await;
        let shown = "echo \"$NPM_TOKEN $OLD_TOKEN $COLOUR $DB_PASSWORD\"";
        assert_eq!(sh(&place, shown).await, "first old blue x\n");
        let remembered = SessionEnvRecord::from_session(&session, &sources);
        let again = remembered.again(&host(&[("NPM_TOKEN", "second")]), &rules(), Sources::default());
        assert_eq!(again.missing, ["DB_PASSWORD", "OLD_TOKEN"]);
        let step = again.session.send(&place.link).await;
        assert_eq!(step.status, Status::Success, "{step:?}");
        assert_eq!(sh(&place, shown).await, "second  blue \n");
    })
    .await;
}

/// A token that no command has is no success.
#[tokio::test]
async fn a_missing_token_is_reported() {
    with_a_guest(async |running| {
        let place = place(running).await;
        let token = Some(Secret::new(b"gho_1".to_vec()));
        let session = SessionEnv::from_sources(Sources { token, ..Sources::default() });
        let given = session.send(&place.link).await;
        place.link.set_session(&[("GH_TOKEN".to_owned(), Secret::new(Vec::new()))]).await.unwrap();
        let step = gh::forwarded(&place, &session, &given).await;
        assert_eq!((step.status, step.probe.as_deref()), (Status::Failed, None), "{step:?}");
    })
    .await;
}
