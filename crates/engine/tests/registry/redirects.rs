//! Registries that lead elsewhere.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coracle_engine::{ProxyOptions, RegistryOptions};
use serde_json::json;

use crate::front::{Front, Reply};
use crate::image::{TestImage, digest};
use crate::lab::{Lab, TestEngine};
use crate::tls::TlsProxy;

#[tokio::test]
async fn a_redirect_to_another_server_is_followed_without_credentials() {
    let Some(lab) = Lab::start().await else { return };
    let image = TestImage::new(&["elsewhere"]);
    lab.registry.push("x", "1", &image).await;
    let storage = Front::start(Some(lab.registry.port)).await;
    let port = storage.port;
    lab.front.spoil(move |request, reply| {
        if !request.head.contains("authorization: basic") {
            return Reply::new("401 Unauthorized", &["WWW-Authenticate: Basic"], "");
        }
        match request.is_for("/blobs/") {
            true => Reply::redirect(&format!("http://u:p@127.0.0.1:{port}{}", request.path)),
            false => reply,
        }
    });
    let auth = BASE64_STANDARD.encode("me:secret");
    lab.engine.write_docker_config(&json!({ "auths": { format!("localhost:{}", lab.front.port): { "auth": auth } } }));
    assert_eq!(lab.engine.pull(&lab.name("x:1")).await.unwrap().id.as_str(), image.id());
    let heads: Vec<_> = storage.requests().into_iter().map(|it| it.head).collect();
    assert_eq!(heads.len(), 2);
    assert!(heads.iter().all(|it| !it.contains("authorization")), "{heads:?}");
}

#[tokio::test]
async fn redirects_end_and_lead_to_no_other_scheme() {
    let Some(lab) = Lab::start().await else { return };
    let image = TestImage::new(&["x"]);
    lab.registry.push("x", "1", &image).await;
    for (target, expected, requests) in [
        ("again", "too many redirects", 6),
        ("file:///etc/passwd", "does not use TLS", 1),
        ("http://", "it has no address", 1),
        ("http://registry.example/x", "does not use TLS", 1),
    ] {
        lab.front.spoil(move |_, _| Reply::redirect(target));
        let reason = lab.engine.refusal(&lab.name("x:1")).await;
        assert!(reason.contains(expected), "{target}: {reason}");
        assert_eq!(lab.front.requests().len(), requests, "{target}");
    }
    lab.pulls_again(&lab.name("x:1"), &image).await;
}

/// A registry of a public name is reached through a proxy, by a certificate of its own authority.
#[tokio::test]
async fn a_public_registry_leads_to_no_private_address() {
    let Some(lab) = Lab::start().await else { return };
    let image = TestImage::new(&["public"]);
    lab.registry.push("x", "1", &image).await;
    let proxy = TlsProxy::start("registry.example", lab.front.clone(), lab.registry.port).await;
    let authority = lab.engine.home.join("ca.pem");
    std::fs::write(&authority, &proxy.authority).unwrap();
    let options = RegistryOptions {
        proxy: ProxyOptions {
            https: Some(format!("http://me:secret@127.0.0.1:{}", proxy.port)),
            no_proxy: "localhost".into(),
        },
        extra_ca_files: vec![authority],
        ..RegistryOptions::default()
    };
    let engine = TestEngine::new(options.clone());
    engine.pull(&lab.direct("first:1")).await.unwrap();
    let private = [
        "https://10.0.0.1/x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://169.254.169.254/x",
        "https://localhost/x",
    ];
    for target in private {
        lab.front.spoil(move |request, reply| if request.is_for("/blobs/") { Reply::redirect(target) } else { reply });
        let reason = engine.refusal("registry.example/x:1").await;
        assert!(
            reason.contains("registry.example leads to `") && reason.contains("is not public"),
            "{target}: {reason}"
        );
        assert!(!reason.contains("secret"));
    }
    let plain = format!("http://127.0.0.1:{}/v2/x/blobs/{}", lab.registry.port, digest(&image.layers[0]));
    lab.front.spoil(move |request, reply| if request.is_for("/blobs/") { Reply::redirect(&plain) } else { reply });
    let reason = engine.refusal("registry.example/x:1").await;
    assert!(reason.contains("does not use TLS"), "{reason}");
    lab.front.behave();
    assert_eq!(engine.pull("registry.example/x:1").await.unwrap().id.as_str(), image.id());
    assert!(proxy.heads().iter().all(|it| it.starts_with("connect registry.example:443 ")), "{:?}", proxy.heads());
    assert!(proxy.heads().iter().all(|it| it.contains("proxy-authorization: basic")));

    // By the proxy, too, which would connect to its own machine.
    let proxy_for_all = ProxyOptions { no_proxy: String::new(), ..options.proxy.clone() };
    let proxied = TestEngine::new(RegistryOptions { proxy: proxy_for_all, ..options.clone() });
    proxied.pull(&lab.direct("first:1")).await.unwrap();
    lab.front.spoil(|request, reply| match request.is_for("/blobs/") {
        true => Reply::redirect("https://localhost/x"),
        false => reply,
    });
    let reason = proxied.refusal("registry.example/x:1").await;
    assert!(reason.contains("registry.example leads to `localhost`") && reason.contains("is not public"), "{reason}");
    assert!(proxy.heads().iter().all(|it| it.starts_with("connect registry.example:443 ")), "{:?}", proxy.heads());
    lab.front.behave();

    let stranger = TestEngine::new(RegistryOptions { extra_ca_files: Vec::new(), ..options });
    let reason = stranger.refusal("registry.example/x:1").await;
    assert!(reason.contains("cannot reach registry.example: invalid peer certificate"), "{reason}");
}
