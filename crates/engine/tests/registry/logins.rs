//! Registries that demand a login.

use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coracle_engine::RegistryOptions;
use coracle_types::Error;
use serde_json::json;

use crate::front::{Reply, Request};
use crate::image::TestImage;
use crate::lab::{Lab, TestEngine};

const PASSWORD: &str = "correct horse battery";

fn encoded(password: &str) -> String {
    BASE64_STANDARD.encode(format!("me:{password}"))
}

/// Demands a password.
fn basic(request: &Request, reply: Reply) -> Reply {
    let expected = format!("authorization: basic {}", encoded(PASSWORD)).to_ascii_lowercase();
    match request.head.contains(&expected) {
        true => reply,
        false => Reply::new("401 Unauthorized", &["WWW-Authenticate: Basic realm=\"here\""], "{}"),
    }
}

/// Demands a token, which everybody gets, or who has the password.
fn bearer(realm: &str, everybody: bool) -> impl FnMut(&Request, Reply) -> Reply + Send + 'static {
    let demand = format!("WWW-Authenticate: Bearer realm=\"{realm}\",service=\"s\",scope=\"repository:x:pull\"");
    move |request, reply| {
        if request.path.starts_with("/token?service=s&scope=repository%3Ax%3Apull") {
            let known = everybody || request.head.contains(&encoded(PASSWORD).to_ascii_lowercase());
            return if known {
                Reply::new("200 OK", &[], r#"{"token":"t0ken"}"#)
            } else {
                Reply::new("401 Unauthorized", &[], "")
            };
        }
        match request.head.contains("authorization: bearer t0ken") {
            true => reply,
            false => Reply::new("401 Unauthorized", &[&demand], ""),
        }
    }
}

async fn lab() -> Option<(Lab, TestImage, String)> {
    let lab = Lab::start().await?;
    let image = TestImage::new(&["a", "b"]);
    lab.registry.push("x", "1", &image).await;
    let name = lab.name("x:1");
    Some((lab, image, name))
}

fn login(lab: &Lab, engine: &TestEngine, password: &str) {
    let host = format!("localhost:{}", lab.front.port);
    engine.write_docker_config(&json!({ "auths": { host: { "auth": encoded(password) } } }));
}

#[tokio::test]
async fn a_password_is_demanded_found_and_refused_in_words_without_it() {
    let Some((lab, image, name)) = lab().await else { return };
    lab.front.spoil(basic);
    let reason = lab.engine.refusal(&name).await;
    assert!(reason.contains("docker login localhost:"), "{reason}");
    login(&lab, &lab.engine, "wrong horse battery");
    let reason = lab.engine.refusal(&name).await;
    assert!(reason.contains("refuses the credentials from `") && reason.contains(".docker/config.json`"), "{reason}");
    assert!(!reason.contains("horse") && !reason.contains(&encoded("wrong horse battery")), "{reason}");
    login(&lab, &lab.engine, PASSWORD);
    assert_eq!(lab.engine.pull(&name).await.unwrap().id.as_str(), image.id());
}

#[tokio::test]
async fn a_token_is_fetched_with_and_without_a_password() {
    let Some((lab, image, name)) = lab().await else { return };
    let realm = format!("http://localhost:{}/token", lab.front.port);
    lab.front.spoil(bearer(&realm, false));
    let reason = lab.engine.refusal(&name).await;
    assert!(reason.contains("docker login localhost:"), "{reason}");
    login(&lab, &lab.engine, "wrong horse battery");
    let reason = lab.engine.refusal(&name).await;
    assert!(reason.contains("refuses the credentials from `"), "{reason}");
    login(&lab, &lab.engine, PASSWORD);
    lab.front.spoil(bearer(&realm, false));
    assert_eq!(lab.engine.pull(&name).await.unwrap().id.as_str(), image.id());
    let tokens = lab.front.requests().iter().filter(|it| it.is_for("/token")).count();
    assert_eq!(tokens, 1, "the token serves for all requests");

    let other = TestEngine::new(RegistryOptions::default());
    lab.front.spoil(bearer(&realm, true));
    assert_eq!(other.pull(&name).await.unwrap().id.as_str(), image.id());
}

#[tokio::test]
async fn a_token_is_fetched_from_no_place_without_tls() {
    let Some((lab, _, name)) = lab().await else { return };
    for realm in ["http://registry.example/token", "ftp://localhost/token", "nowhere"] {
        login(&lab, &lab.engine, PASSWORD);
        lab.front.spoil(bearer(realm, true));
        let reason = lab.engine.refusal(&name).await;
        assert!(reason.contains("its token service"), "{reason}");
    }
}

#[tokio::test]
async fn a_token_that_expires_in_between_is_renewed() {
    let Some((lab, image, name)) = lab().await else { return };
    let realm = format!("http://localhost:{}/token", lab.front.port);
    let mut tokens = 0;
    lab.front.spoil(move |request, reply| {
        let demand = format!("WWW-Authenticate: Bearer realm=\"{realm}\"");
        if request.path.starts_with("/token") {
            tokens += 1;
            return Reply::new("200 OK", &[], format!(r#"{{"access_token":"t{tokens}"}}"#));
        }
        let needed = if request.is_for("/manifests/") { "bearer t1" } else { "bearer t2" };
        if request.head.contains(needed) { reply } else { Reply::new("401 Unauthorized", &[&demand], "") }
    });
    assert_eq!(lab.engine.pull(&name).await.unwrap().id.as_str(), image.id());
}

#[tokio::test]
async fn credentials_come_from_helpers_and_podmans_file() {
    let Some((lab, image, name)) = lab().await else { return };
    lab.front.spoil(basic);
    let host = format!("localhost:{}", lab.front.port);
    let auth_file = lab.engine.home.join("auth.json");
    let auths = json!({ "auths": { format!("{host}/x"): { "auth": encoded(PASSWORD) } } });
    std::fs::write(&auth_file, auths.to_string()).unwrap();
    let by_file = TestEngine::new(RegistryOptions { auth_files: vec![auth_file], ..RegistryOptions::default() });
    assert_eq!(by_file.pull(&name).await.unwrap().id.as_str(), image.id());

    let programs = lab.engine.home.join("bin");
    std::fs::create_dir(&programs).unwrap();
    let helper = |name: &str, script: &str| {
        let file = programs.join(format!("docker-credential-{name}"));
        std::fs::write(&file, format!("#!/bin/sh\nread -r server\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let found = format!(
        r#"test "$1 $server" = "get {host}" && echo '{{"ServerURL":"","Username":"me","Secret":"{PASSWORD}"}}'"#
    );
    helper("good", &found);
    helper("none", "echo credentials not found in native keychain; exit 1");
    helper("bad", &format!("echo {PASSWORD}; echo {PASSWORD} >&2; exit 7"));
    let options = RegistryOptions { program_dirs: vec![programs.clone()], ..RegistryOptions::default() };
    for (config, expected) in [
        (json!({ "credHelpers": { &host: "bad" } }), "`docker-credential-bad`: it exited 7"),
        (json!({ "credHelpers": { &host: "absent" } }), "`docker-credential-absent`: no `docker-credential-absent`"),
        (json!({ "credHelpers": { &host: "../bad" } }), "no name of a helper"),
        (json!({ "credsStore": "none" }), "docker login localhost:"),
        (json!({ "auths": { &host: { "auth": "!" } } }), "its `auth` is not"),
        (json!({ "auths": 1 }), "its line 1 is not"),
    ] {
        let engine = TestEngine::new(options.clone());
        engine.write_docker_config(&config);
        let reason = engine.refusal(&name).await;
        assert!(reason.contains(expected) && !reason.contains("horse"), "{reason}");
    }
    for config in [json!({ "credHelpers": { &host: "good" }, "credsStore": "bad" }), json!({ "credsStore": "good" })] {
        let engine = TestEngine::new(options.clone());
        engine.write_docker_config(&config);
        assert_eq!(engine.pull(&name).await.map_err(|it: Error| it.to_string()).unwrap().id.as_str(), image.id());
    }
}
