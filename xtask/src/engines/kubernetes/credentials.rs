//! Keys, certificates and the token of the cluster. They live as long as it does.

use std::fs;
use std::io::Read as _;

use anyhow::{Context as _, Result};

use super::layout::{CONTROL_PLANE_ADDRESS, HOST_API, Layout, write_private};
use super::settings;
use crate::sh::sh;

/// Creates what is missing, the kubeconfigs last.
pub(super) fn up(layout: &Layout) -> Result<()> {
    if layout.kubeconfig().exists() {
        return Ok(());
    }
    authority(layout)?;
    let names = format!("subjectAltName=IP:127.0.0.1,IP:{CONTROL_PLANE_ADDRESS},IP:10.96.0.1,DNS:kubernetes");
    certificate(layout, "apiserver", "/CN=kubernetes", &names)?;
    certificate(layout, "kubelet-client", "/O=system:masters/CN=apiserver", "extendedKeyUsage=clientAuth")?;
    // Keys come with the mode of a file that only its owner reads.
    sh("openssl", ["genrsa", "-out", &layout.text("pki/service-accounts.key"), "2048"]).read()?;
    let token = token()?;
    write_private(layout.cluster("pki/tokens.csv"), &format!("{token},admin,admin,system:masters\n"))?;
    let in_cluster = settings::kubeconfig(layout, &settings::api_in_cluster(), &token);
    write_private(layout.cluster("pki/kubeconfig"), &in_cluster)?;
    write_private(layout.kubeconfig(), &settings::kubeconfig(layout, HOST_API, &token))
}

/// The certificate authority of this cluster alone.
fn authority(layout: &Layout) -> Result<()> {
    let dir = layout.cluster("pki");
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let (key, certificate) = (layout.text("pki/ca.key"), layout.text("pki/ca.crt"));
    let new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=coracle-test"];
    let usage = ["-addext", "keyUsage=critical,keyCertSign", "-keyout", &key, "-out", &certificate];
    sh("openssl", new.iter().chain(&usage)).read().map(|_| ())
}

/// A key and its certificate by the authority, with one extension.
fn certificate(layout: &Layout, name: &str, subject: &str, extension: &str) -> Result<()> {
    let at = |end: &str| layout.text(&format!("pki/{name}.{end}"));
    let (key, request, certificate, extensions) = (at("key"), at("csr"), at("crt"), at("ext"));
    fs::write(&extensions, format!("{extension}\n"))?;
    let new = ["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout", &key, "-out", &request];
    sh("openssl", new).read()?;
    let (authority, authority_key) = (layout.text("pki/ca.crt"), layout.text("pki/ca.key"));
    let sign = ["x509", "-req", "-days", "3650", "-in", &request, "-CA", &authority, "-CAkey", &authority_key];
    let output = ["-CAcreateserial", "-extfile", &extensions, "-out", &certificate];
    sh("openssl", sign.iter().chain(&output)).read().map(|_| ())
}

fn token() -> Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom").and_then(|mut it| it.read_exact(&mut bytes)).context("read /dev/urandom")?;
    Ok(bytes.iter().map(|it| format!("{it:02x}")).collect())
}
