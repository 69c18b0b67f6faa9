//! The host's own certificate authorities.

mod additions;
mod family;
mod java;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use coracle_client::{Link, SecretFile, WriteFile};
use coracle_protocol::ErrorCode;
use coracle_types::{ContainerPath, Ids, Input, Secret};
use futures_util::future::join_all;

pub use additions::ExtraCertificates;

use self::additions::{Certificate, certificates};
use self::family::{ANCHORS, BUNDLES, Family};
use crate::context::at;
use crate::{ReportItem, Status, StepContext, StepReport, backup};

const STEP: &str = "ca_certificates";

/// Maximum size of a bundle. A usual one has a quarter of a megabyte.
const MAX_BUNDLE: u64 = 8 << 20;

const MAX_RELEASE: u64 = 64 << 10;

/// The variables that name the bundle, for programs that do not look where the distribution does.
pub const VARIABLES: &[&str] = &[
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "CARGO_HTTP_CAINFO",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];

/// The certificates that a container trusts.
#[derive(Clone, Debug)]
pub struct TrustedCerts {
    /// The entry in the report.
    pub step: StepReport,
    /// For the session; empty if the bundle does not contain the certificates.
    pub variables: BTreeMap<String, String>,
}

/// The report of a container without added certificates.
#[must_use]
pub fn skipped(why: &str) -> StepReport {
    StepReport::skipped(STEP, why)
}

/// Adds certificates where the image's family looks for them, as root and without running a program of the image.
/// Existing certificates are not changed.
pub async fn trust(context: &StepContext, additions: &ExtraCertificates) -> TrustedCerts {
    let begun = Instant::now();
    if additions.is_empty() {
        let step = StepReport { items: left_out(additions).collect(), ..skipped("the host has none of its own") };
        return TrustedCerts { step, variables: BTreeMap::new() };
    }
    let image = inspect(context).await;
    let (anchors, bundles) =
        tokio::join!(add_anchors(context, &image, additions), add_to_bundles(context, &image, additions));
    let bundle = image.bundle();
    let seen = match bundles.first().and_then(|it| it.error.clone()) {
        Some(error) => Err(error),
        None => probed(context, &image, additions).await,
    };
    let added = image.lacking(additions, 0).len();
    let detail = format!("{} of the host in {bundle}, {added} of them new", counted(additions.len()));
    let items: Vec<ReportItem> = bundles.into_iter().chain(anchors).chain(left_out(additions)).collect();
    let (step, variables) = match seen {
        Ok(()) => {
            let variables = VARIABLES.iter().map(|it| ((*it).to_owned(), bundle.to_string())).collect();
            (StepReport::of_items(STEP, detail, "the bundle, read back, holds each of them", items), variables)
        }
        Err(error) => {
            let step = StepReport::flawed(STEP, Status::Failed, format!("{bundle} does not hold them"), error);
            (StepReport { items, ..step }, BTreeMap::new())
        }
    };
    TrustedCerts { step: step.with_duration(begun.elapsed()), variables }
}

/// The path of the trust store that [`trust_in_java`] writes.
pub const JAVA_STORE: &str = "/etc/ssl/certs/coracle-java.jks";

/// Writes the certificates of the image's bundle as a trust store for Java. Returns whether that succeeded.
pub async fn trust_in_java(context: &StepContext) -> bool {
    let image = inspect(context).await;
    let Some((_, bundle, _)) = image.bundles.first() else { return false };
    let (at, content) = (context.at_as_root(&path(JAVA_STORE)), Input::Bytes(java::store(bundle)));
    let put = WriteFile { at, mode: Some(0o644), exact: false, parents: true, replace: true, content };
    context.link.put(put).await.is_ok()
}

/// The path of the bundle that [`bundle_aside`] writes: on Coracle's tmpfs, since the root file system may be
/// read-only.
pub const ASIDE: &str = "/.coracle/run/ca-certificates.crt";

/// The path of the trust store for Java that [`bundle_aside`] writes.
pub const JAVA_ASIDE: &str = "/.coracle/run/java.jks";

/// The file names of both.
const ASIDE_NAMES: [&str; 2] = ["ca-certificates.crt", "java.jks"];

/// Writes the image's certificates and the host's to separate files of that user, as PEM and for Java. Changes no file of
/// the image.
///
/// # Errors
/// If they cannot be written.
pub async fn bundle_aside(link: &Link, additions: &ExtraCertificates, user: Ids) -> coracle_types::Result<()> {
    let mut bundle = Vec::new();
    for at in BUNDLES.iter().map(|it| at(user, &path(it))) {
        if let Ok((_, content)) = link.get(at, 0, MAX_BUNDLE).await {
            bundle = content;
            break;
        }
    }
    let held: BTreeSet<[u8; 32]> = certificates(&bundle).map(|it| it.digest).collect();
    let lacking = additions.certificates.iter().filter(|it| !held.contains(&it.digest));
    let bundle = with(bundle, &lacking.map(Certificate::pem).collect::<Vec<_>>());
    let store = java::store(&bundle);
    for (name, content) in ASIDE_NAMES.into_iter().zip([bundle, store]) {
        let file = SecretFile { name: name.to_owned(), user, mode: 0o400, content: Secret::new(content) };
        link.put_secret(file).await?;
    }
    Ok(())
}

/// The certificates of an image.
#[derive(Debug)]
struct Image {
    family: Option<&'static Family>,
    /// Existing directories of added certificates.
    anchors: Vec<&'static str>,
    /// Existing bundles, with their content and the digests of their certificates.
    bundles: Vec<(ContainerPath, Vec<u8>, BTreeSet<[u8; 32]>)>,
}

impl Image {
    /// Returns the bundle for the variables.
    fn bundle(&self) -> ContainerPath {
        let made = self.family.map_or(BUNDLES[0], |it| it.bundle);
        self.bundles.first().map_or_else(|| path(made), |it| it.0.clone())
    }

    /// Renders the certificates that a bundle lacks as PEM; all of them if there is no bundle.
    fn lacking(&self, additions: &ExtraCertificates, bundle: usize) -> Vec<String> {
        let held = self.bundles.get(bundle).map(|it| &it.2);
        let lacks = |digest| held.is_none_or(|it| !it.contains(digest));
        additions.certificates.iter().filter(|it| lacks(&it.digest)).map(Certificate::pem).collect()
    }

    /// Returns the directory for added certificates. It may not exist yet, since a package may bring the tools that
    /// read it.
    fn anchors(&self) -> Option<&'static str> {
        self.family.map(|it| it.anchors).or(self.anchors.first().copied())
    }
}

async fn inspect(context: &StepContext) -> Image {
    let release = path("/etc/os-release");
    let bundle = |it: &&'static str| {
        let path = path(it);
        async move {
            let (_, content) = context.link.get(context.at_as_root(&path), 0, MAX_BUNDLE).await.ok()?;
            let held = certificates(&content).map(|it| it.digest).collect();
            Some((path, content, held))
        }
    };
    let anchor = |it: &&'static str| {
        let it = *it;
        async move { context.link.stat(context.at_as_root(&path(it))).await.ok().map(|_| it) }
    };
    let (release, bundles, anchors) = tokio::join!(
        context.link.get(context.at_as_root(&release), 0, MAX_RELEASE),
        join_all(BUNDLES.iter().map(bundle)),
        join_all(ANCHORS.iter().map(anchor)),
    );
    Image {
        family: release.ok().and_then(|(_, text)| Family::from_os_release(&text)),
        anchors: anchors.into_iter().flatten().collect(),
        bundles: bundles.into_iter().flatten().collect(),
    }
}

/// Writes one file per certificate. The name depends on the content, so an existing file is the same.
async fn add_anchors(context: &StepContext, image: &Image, additions: &ExtraCertificates) -> Vec<ReportItem> {
    let Some(dir) = image.anchors() else { return Vec::new() };
    let add = async |name: String, pem: String| {
        let at = context.at_as_root(&path(&name));
        let content = Input::Bytes(pem.into_bytes());
        let put = WriteFile { at, mode: Some(0o644), exact: false, parents: true, replace: false, content };
        match context.link.put(put).await {
            Err(err) if !backup::is(&err, ErrorCode::Exists) => ReportItem::failed(name, err.to_string()),
            _ => ReportItem::success(name),
        }
    };
    let named = |it: &Certificate| (format!("{dir}/coracle-{}.crt", hex::encode(&it.digest[..8])), it.pem());
    join_all(additions.certificates.iter().map(named).map(|(name, pem)| add(name, pem))).await
}

/// Adds missing certificates to each existing bundle, or creates one.
async fn add_to_bundles(context: &StepContext, image: &Image, additions: &ExtraCertificates) -> Vec<ReportItem> {
    let write = async |path: ContainerPath, content: Vec<u8>, lacking: Vec<String>| {
        let name = path.to_string();
        if lacking.is_empty() {
            return ReportItem::success(name);
        }
        let at = context.at_as_root(&path);
        let content = Input::Bytes(with(content, &lacking));
        let put = WriteFile { at, mode: Some(0o644), exact: false, parents: true, replace: true, content };
        match context.link.put(put).await {
            Ok(_) => ReportItem::success(name),
            Err(err) => ReportItem::failed(name, err.to_string()),
        }
    };
    if image.bundles.is_empty() {
        return vec![write(image.bundle(), Vec::new(), image.lacking(additions, 0)).await];
    }
    // Several bundles may be links to one file. All writes have the same content then, so their order does not matter.
    let each = image.bundles.iter().enumerate();
    join_all(each.map(|(n, (path, content, _))| write(path.clone(), content.clone(), image.lacking(additions, n))))
        .await
}

fn with(mut bundle: Vec<u8>, lacking: &[String]) -> Vec<u8> {
    if bundle.last().is_some_and(|it| *it != b'\n') {
        bundle.push(b'\n');
    }
    bundle.extend(lacking.concat().into_bytes());
    bundle
}

async fn probed(context: &StepContext, image: &Image, additions: &ExtraCertificates) -> Result<(), String> {
    // A bundle that was read and needed no change is not read again.
    if !image.bundles.is_empty() && image.lacking(additions, 0).is_empty() {
        return Ok(());
    }
    let bundle = image.bundle();
    let (_, content) =
        context.link.get(context.at_as_root(&bundle), 0, 2 * MAX_BUNDLE).await.map_err(|it| it.to_string())?;
    let held: BTreeSet<[u8; 32]> = certificates(&content).map(|it| it.digest).collect();
    match additions.certificates.iter().filter(|it| !held.contains(&it.digest)).count() {
        0 => Ok(()),
        n => Err(format!("{n} of {} are not in {bundle}", counted(additions.len()))),
    }
}

fn left_out(additions: &ExtraCertificates) -> impl Iterator<Item = ReportItem> {
    additions.left_out.iter().map(|(path, why)| ReportItem::skipped(path.display().to_string()).with("why", *why))
}

fn counted(n: usize) -> String {
    if n == 1 { "1 certificate".to_owned() } else { format!("{n} certificates") }
}

fn path(text: &str) -> ContainerPath {
    ContainerPath::parse(text).expect("a plain path")
}
