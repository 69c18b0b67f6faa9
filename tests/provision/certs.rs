//! The host's certificates in images of each kind.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coracle_client::WriteFile;
use coracle_provision::certs::{ExtraCertificates, VARIABLES, skipped, trust};
use coracle_provision::{Status, StepContext};
use coracle_types::{Command, Exit, Input};

use super::{items, path, place, root};
use crate::engines::{Running, with_a_guest, with_a_real_guest};

/// A fake certificate for code that only copies it.
fn pem(seed: u8) -> String {
    let der: Vec<u8> = [0x30, seed].into_iter().chain((0..100).map(|it: u8| it.wrapping_mul(seed))).collect();
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|it| std::str::from_utf8(it).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn additions(seeds: &[u8]) -> ExtraCertificates {
    let host = tempfile::tempdir().unwrap();
    let dir = host.path().join("usr/local/share/ca-certificates");
    fs::create_dir_all(&dir).unwrap();
    for seed in seeds {
        fs::write(dir.join(format!("{seed}.crt")), pem(*seed)).unwrap();
    }
    ExtraCertificates::read(host.path(), &[])
}

async fn put(place: &StepContext, file: &str, text: &str) {
    let (at, content) = (place.at_as_root(&path(file)), Input::Bytes(text.as_bytes().to_vec()));
    place
        .link
        .put(WriteFile { at, mode: Some(0o644), exact: true, parents: true, replace: true, content })
        .await
        .unwrap();
}

async fn text(place: &StepContext, file: &str) -> String {
    String::from_utf8(place.link.get(place.at_as_root(&path(file)), 0, 1 << 20).await.unwrap().1).unwrap()
}

async fn names(place: &StepContext, dir: &str) -> Vec<String> {
    let entries = place.link.list(place.at_as_root(&path(dir)), 100).await.unwrap().0;
    entries.into_iter().map(|it| it.name).collect()
}

const DEBIAN: &str = "/etc/ssl/certs/ca-certificates.crt";
const RED_HAT: &str = "/etc/pki/tls/certs/ca-bundle.crt";

/// Installs the certificates twice. The second time none may be new.
async fn twice(place: &StepContext, seeds: &[u8], bundle: &str, new: usize) {
    for new in [new, 0] {
        let trusted = trust(place, &additions(seeds)).await;
        let step = &trusted.step;
        assert_eq!(step.status, Status::Success, "{step:?}");
        assert_eq!(step.detail, format!("{} certificates of the host in {bundle}, {new} of them new", seeds.len()));
        assert_eq!(step.probe.as_deref(), Some("the bundle, read back, holds each of them"));
        assert!(trusted.variables.len() == VARIABLES.len() && trusted.variables.values().all(|it| it == bundle));
        eprintln!("{} ms for {bundle}, {new} new", step.duration_ms);
    }
}

#[tokio::test]
async fn an_image_without_a_bundle_gets_one() {
    with_a_guest(async |running| {
        let place = place(running).await;
        twice(&place, &[1, 2], DEBIAN, 2).await;
        let bundle = text(&place, DEBIAN).await;
        assert!(bundle.contains(&pem(1)) && bundle.contains(&pem(2)) && bundle.len() == pem(1).len() + pem(2).len());
    })
    .await;
}

#[tokio::test]
async fn a_bundle_keeps_what_it_has_and_gets_what_it_lacks() {
    with_a_guest(async |running| {
        let place = place(running).await;
        put(&place, "/etc/os-release", "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n").await;
        let old = format!("# ours\n{}{}", pem(9), pem(1));
        put(&place, DEBIAN, old.trim_end()).await;
        twice(&place, &[1, 2, 3], DEBIAN, 2).await;
        let bundle = text(&place, DEBIAN).await;
        assert!(bundle.starts_with(&old) && bundle.matches("BEGIN").count() == 4, "{bundle}");
        let anchors = names(&place, "/usr/local/share/ca-certificates").await;
        assert!(anchors.len() == 3 && anchors.iter().all(|it| it.starts_with("coracle-") && it.ends_with(".crt")));
    })
    .await;
}

#[tokio::test]
async fn each_family_looks_in_its_own_places() {
    with_a_real_guest(async |running| {
        let place = place(running).await;
        put(&place, "/etc/os-release", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n").await;
        put(&place, "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", &pem(9)).await;
        root(running, "mkdir -p /etc/pki/tls/certs; cd /etc/pki/tls/certs; ln -s /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem ca-bundle.crt").await;
        twice(&place, &[1, 2], RED_HAT, 2).await;
        let real = text(&place, "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem").await;
        assert_eq!((real.matches("BEGIN").count(), text(&place, RED_HAT).await), (3, real));
        assert_eq!(root(running, "busybox readlink /etc/pki/tls/certs/ca-bundle.crt").await.lines().count(), 1);
        assert_eq!(names(&place, "/etc/pki/ca-trust/source/anchors").await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_bundle_that_cannot_be_written_is_reported_and_not_passed_to_commands() {
    with_a_guest(async |running| {
        let place = place(running).await;
        put(&place, "/etc/ssl", "a file where a directory belongs").await;
        let trusted = trust(&place, &additions(&[1])).await;
        assert_eq!((trusted.step.status, trusted.variables.len()), (Status::Failed, 0), "{:?}", trusted.step);
        assert_eq!(items(&trusted.step), ["/etc/ssl/certs/ca-certificates.crt failed"]);
        let none = trust(&place, &additions(&[])).await;
        assert_eq!(none.step.status, Status::Skipped);
        assert_eq!(skipped("switched off").detail, "switched off");
    })
    .await;
}

/// A whole bundle of a system, to measure its cost.
#[tokio::test]
async fn a_bundle_of_usual_size_is_fast() {
    let bundle = Path::new(DEBIAN);
    let Ok(usual) = fs::read_to_string(bundle) else { return };
    with_a_real_guest(async |running: &Running<'_>| {
        let place = place(running).await;
        put(&place, DEBIAN, &usual).await;
        twice(&place, &[1, 2], DEBIAN, 2).await;
        let seen = place.exec(Command::Shell(format!("wc -c < {DEBIAN}")), &place.home, place.timeout);
        let seen = place.link.exec(seen).await.unwrap();
        assert_eq!(seen.exit, Exit::Code(0));
        assert_eq!(seen.stdout.text().trim(), (usual.len() + pem(1).len() + pem(2).len()).to_string());
    })
    .await;
}
