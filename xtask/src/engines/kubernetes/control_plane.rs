//! etcd, the API server, its controllers, the scheduler and a registry, in one namespace; and the ways in from the host.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::layout::{
    API_PORT, CONTROL_PLANE, CONTROL_PLANE_ADDRESS, HOST_API, HOST_REGISTRY, Layout, REGISTRY_PORT, write_private,
};
use super::{network, settings};
use crate::sh::{Sh, sh};

const ETCD: &str = "http://127.0.0.1:2379";

/// Names of the programs in the records, in the order in which they start.
pub(super) const DAEMONS: [&str; 7] = [
    "etcd",
    "api-forward",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "registry",
    "registry-forward",
];

/// Starts the programs that do not run.
pub(super) fn up(layout: &Layout) -> Result<()> {
    write_private(layout.cluster("pki/audit.yaml"), settings::AUDIT)?;
    write_private(layout.cluster("pki/registry.yaml"), &settings::registry(layout))?;
    for name in DAEMONS {
        if layout.daemons().recorded(name).is_none() {
            start(layout, name).with_context(|| format!("start {name}"))?;
        }
    }
    Ok(())
}

/// Makes the class of volumes that claims get when they name none.
pub(super) fn apply_storage_class(layout: &Layout) -> Result<()> {
    let file = layout.cluster("pki/storage-class.yaml");
    write_private(&file, settings::STORAGE_CLASS)?;
    kubectl(layout, &["apply", "--filename", &file.display().to_string()]).read().map(drop)
}

/// `kubectl` of a person on the host.
pub(super) fn kubectl(layout: &Layout, words: &[&str]) -> Sh {
    let config = format!("--kubeconfig={}", layout.kubeconfig().display());
    sh(layout.program("kubectl"), [config.as_str()].iter().chain(words))
}

fn start(layout: &Layout, name: &str) -> Result<()> {
    let (limit, at_once) = (Duration::from_secs(180), || true);
    let daemons = layout.daemons();
    let inside = |words: Vec<String>| network::inside(CONTROL_PLANE, &layout.program(name), &words);
    match name {
        "etcd" => daemons.start(name, etcd(layout), limit, at_once),
        "kube-apiserver" => {
            let answers = || kubectl(layout, &["get", "--raw=/readyz"]).succeeds();
            daemons.start(name, inside(api_server(layout)), limit, answers)
        }
        "kube-controller-manager" => daemons.start(name, inside(controllers(layout)), limit, at_once),
        "kube-scheduler" => daemons.start(name, inside(scheduler(layout)), limit, at_once),
        "registry" => {
            let words = ["serve".to_owned(), layout.text("pki/registry.yaml")];
            let program = layout.unpacked("usr/bin/docker-registry");
            daemons.start(name, network::inside(CONTROL_PLANE, &program, &words), limit, at_once)
        }
        "api-forward" => daemons.start(name, forward(layout, HOST_API, API_PORT)?, limit, at_once),
        _ => daemons.start(name, forward(layout, HOST_REGISTRY, REGISTRY_PORT)?, limit, at_once),
    }
}

/// A part of this program, in the control plane's namespace, with a socket that listens on the host: a socket stays in
/// the namespace that made it, so the host's network is as it was.
///
/// It runs from a copy: a build during the minutes of `up`, or later, replaces the program itself.
fn forward(layout: &Layout, host: &str, port: u16) -> Result<Sh> {
    let listener =
        TcpListener::bind(host).with_context(|| format!("listen on {host}, where the host finds the cluster"))?;
    let program = layout.cluster(&format!("forward-{port}"));
    if program.exists() {
        fs::remove_file(&program)?; // one that runs cannot be written to
    }
    fs::copy("/proc/self/exe", &program).with_context(|| format!("write {}", program.display()))?;
    let words = ["engines", "forward", &format!("{CONTROL_PLANE_ADDRESS}:{port}")].map(str::to_owned);
    Ok(network::inside(CONTROL_PLANE, &program, &words).input(listener))
}

fn etcd(layout: &Layout) -> Sh {
    let words = [
        format!("--data-dir={}", layout.text("etcd")),
        format!("--listen-client-urls={ETCD}"),
        format!("--advertise-client-urls={ETCD}"),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        "--unsafe-no-fsync".to_owned(),
    ];
    network::inside(CONTROL_PLANE, &layout.unpacked("usr/bin/etcd"), &words)
}

fn api_server(layout: &Layout) -> Vec<String> {
    let pki = |option: &str, file: &str| format!("--{option}={}", layout.text(&format!("pki/{file}")));
    vec![
        format!("--etcd-servers={ETCD}"),
        format!("--bind-address={CONTROL_PLANE_ADDRESS}"),
        format!("--advertise-address={CONTROL_PLANE_ADDRESS}"),
        format!("--secure-port={API_PORT}"),
        pki("tls-cert-file", "apiserver.crt"),
        pki("tls-private-key-file", "apiserver.key"),
        pki("kubelet-client-certificate", "kubelet-client.crt"),
        pki("kubelet-client-key", "kubelet-client.key"),
        pki("token-auth-file", "tokens.csv"),
        pki("service-account-signing-key-file", "service-accounts.key"),
        pki("service-account-key-file", "service-accounts.key"),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=false".to_owned(),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        pki("audit-policy-file", "audit.yaml"),
        format!("--audit-log-path={}", layout.text("log/audit.json")),
        "--audit-log-maxsize=100".to_owned(),
        "--audit-log-maxbackup=1".to_owned(),
    ]
}

fn controllers(layout: &Layout) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", layout.text("pki/kubeconfig")),
        format!("--service-account-private-key-file={}", layout.text("pki/service-accounts.key")),
        format!("--root-ca-file={}", layout.text("pki/ca.crt")),
        "--cluster-cidr=10.97.0.0/16".to_owned(),
        "--allocate-node-cidrs=false".to_owned(),
        // The nodes share this machine's files, so a volume is the same directory on both.
        "--enable-hostpath-provisioner=true".to_owned(),
        "--leader-elect=false".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
    ]
}

fn scheduler(layout: &Layout) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", layout.text("pki/kubeconfig")),
        "--leader-elect=false".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
    ]
}
