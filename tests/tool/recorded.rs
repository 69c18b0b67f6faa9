//! Requests that a container's proxy records, and containers that are answered from such a record.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Tool;
use super::debian::with_packages;
use super::person::Person;
use super::work::secrets::{Api, SECRET, is_whole};
use crate::engines::IMAGE;

/// An image with pip.
const PIP: &str = "localhost/coracle-test-pip:1";

/// The page of a package index, a wheel that prints its name, and the wheel's own name.
const INDEX: &str = "<a href=\"../../tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>";
const WHEEL: &[u8] = include_bytes!("../fixtures/tiny-1.0-py3-none-any.whl");
const WHEEL_NAME: &str = "tiny-1.0-py3-none-any.whl";

/// A server on an address of this host that is not its loopback, which counts its answers.
struct Counting {
    ip: IpAddr,
    port: u16,
    /// The paths of its answers.
    answers: Arc<Mutex<Vec<String>>>,
}

impl Counting {
    fn start() -> Self {
        let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
        // No packet is sent: the kernel selects the local address.
        probe.connect("192.0.2.1:9").unwrap();
        let listener = TcpListener::bind((probe.local_addr().unwrap().ip(), 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let answers = Arc::<Mutex<Vec<String>>>::default();
        let counted = answers.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut request, mut piece) = (String::new(), [0; 4096]);
                while !is_whole(&request) {
                    let Ok(length @ 1..) = stream.read(&mut piece) else { break };
                    request += &String::from_utf8_lossy(&piece[..length]);
                }
                let line = request.lines().next().unwrap_or_default();
                let mut answered = counted.lock().unwrap();
                let number = answered.len();
                answered.push(line.split(' ').nth(1).unwrap_or_default().to_owned());
                drop(answered);
                // Longer than a recorded body may be.
                let long = if line.contains("/long") { 33 << 20 } else { 0 };
                let (kind, body) = match line.split(' ').nth(1).and_then(|it| it.rsplit_once('/')) {
                    Some((_, WHEEL_NAME)) => ("application/zip", WHEEL.to_vec()),
                    Some((path, "")) if path.ends_with("/tiny") => ("text/html", INDEX.into()),
                    _ => ("text/plain", (format!("answer {number} to {line}\n") + &"x".repeat(long)).into_bytes()),
                };
                let head = format!("HTTP/1.0 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(&[head.as_bytes(), &body].concat());
            }
        });
        Self { ip: at.ip(), port: at.port(), answers }
    }

    /// An address that only this engine's containers use: several engines are tried at once.
    fn url(&self, tool: &Tool<'_>, path: &str) -> String {
        format!("http://{}:{}/{}{path}", self.ip, self.port, tool.case.engine())
    }

    /// The number of answers to containers of this engine.
    fn answered(&self, tool: &Tool<'_>) -> usize {
        let own = format!("/{}/", tool.case.engine());
        self.answers.lock().unwrap().iter().filter(|it| it.contains(&own)).count()
    }

    /// A script that prints the answers to requests through the proxy.
    fn fetching(&self, tool: &Tool<'_>, requests: &[(&str, &str)]) -> String {
        let one = |(path, body): &(&str, &str)| {
            let (url, length) = (self.url(tool, path), body.len());
            format!(
                "printf 'POST {url} HTTP/1.0\\r\\nContent-Length: {length}\\r\\n\\r\\n{body}' \
                 | /.coracle/guest pipe \"${{HTTP_PROXY#http://}}\" | sed '1,/^.$/d'"
            )
        };
        requests.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

async fn shown(tool: &Tool<'_>, words: &[&str]) -> Value {
    let output = tool.run(words, b"").await;
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|err| panic!("{words:?}: {err}: {}", String::from_utf8_lossy(&output.stderr)))
}

async fn create(tool: &Tool<'_>, more: Value) -> String {
    let mut call = json!({ "operation": "create", "image": IMAGE, "mount_cwd": false });
    call.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    let made = tool.call(call).await;
    assert_eq!((&made["success"], &made["network"]), (&true.into(), &"proxy".into()), "{made:#}");
    made["container"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_is_recorded_and_answered_again_without_its_server() {
    let server = Counting::start();
    let config = format!("[security.egress]\nallow = [\"ip:{}:{}\"]\nrecord = true\n", server.ip, server.port);
    let person = Person::new(config);
    person
        .on_real_engines(async |tool| {
            let script = server.fetching(tool, &[("/one", "a"), ("/two?q=1", "b"), ("/one", "a")]);
            let web = create(tool, json!({ "network": "proxy" })).await;
            let first = tool.prints(&web, &script).await;
            assert_eq!(first.lines().count(), 3, "{first}");
            let answered = server.answered(tool);
            let destroyed = tool.call(json!({ "operation": "destroy", "container": web })).await;
            assert_eq!(destroyed["success"], true, "{destroyed:#}");

            // The record outlives its container, and is in the trail.
            let listed = shown(tool, &["recorded", "list", "--json"]).await;
            let row = &listed["records"][0];
            assert_eq!((&listed["count"], &row["container"]), (&1.into(), &(&*web).into()), "{listed:#}");
            let place = Path::new(row["location"].as_str().unwrap());
            let lines = std::fs::read_to_string(place.join("exchanges.jsonl")).unwrap();
            let record = shown(tool, &["recorded", "show", &web, "--json"]).await;
            let urls: Vec<_> =
                record["exchanges"].as_array().unwrap().iter().map(|it| it["url"].as_str().unwrap()).collect();
            assert_eq!(urls, [server.url(tool, "/one"), server.url(tool, "/two?q=1"), server.url(tool, "/one")]);
            let log = shown(tool, &["audit", "log", "--container", &web, "--json"]).await;
            let acts = log["acts"].as_array().unwrap();
            let requests: Vec<_> = acts.iter().filter(|it| it["operation"] == "request").collect();
            let hashes: Vec<_> = requests.iter().map(|it| it["args"]["sha256"].as_str().unwrap().to_owned()).collect();
            assert_eq!(hashes, lines.lines().map(|it| hex::encode(Sha256::digest(it))).collect::<Vec<_>>());
            let without_query = server.url(tool, "/two");
            assert_eq!(
                (&requests[1]["args"]["method"], &requests[1]["args"]["address"], &requests[1]["args"]["status"]),
                (&"POST".into(), &without_query.into(), &200.into())
            );
            let operations: Vec<_> = acts.iter().map(|it| it["operation"].as_str().unwrap()).collect();
            assert_eq!(operations, ["create", "exec", "request", "request", "request", "destroy"]);
            assert!(tool.run(["audit", "verify"], b"").await.status.success());

            let again = create(tool, json!({ "replay": web })).await;
            assert_eq!(tool.prints(&again, &script).await, first);
            let changed = tool.exec(&again, server.fetching(tool, &[("/one", "changed")])).await;
            let refused: Value = serde_json::from_str(changed["stdout"].as_str().unwrap()).unwrap();
            assert_eq!(refused["error"]["code"], "not_recorded", "{changed:#}");
            assert_eq!(
                (&refused["error"]["differs"], &refused["error"]["nearest"]["text"]),
                (&json!(["body"]), &"a".into())
            );
            let warnings = changed["warnings"].to_string();
            assert!(warnings.contains("not_recorded"), "{changed:#}");
            assert_eq!(server.answered(tool), answered, "nothing was sent");
            let report = shown(tool, &["recorded", "report", &again, "--json"]).await;
            assert_eq!((&report["served"], &report["not_requested"]), (&3.into(), &json!([])), "{report:#}");
            let differed = &report["differed"][0];
            assert_eq!(
                (&differed["request"]["text"], &differed["nearest"]["text"], &differed["differs"]),
                (&"changed".into(), &"a".into(), &json!(["body"]))
            );
            let text = tool.run(["recorded", "report", &again], b"").await.stdout;
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("3 requests answered, 1 not recorded, 0 not made again"), "{text}");
        })
        .await;
}

#[tokio::test]
async fn an_installation_by_pip_is_answered_again_without_the_index() {
    // The image with pip is built from packages.
    if !coracle_skips::may_download() {
        return;
    }
    let server = Counting::start();
    let config = format!("[security.egress]\nallow = [\"ip:{}:{}\"]\nrecord = true\n", server.ip, server.port);
    Person::new(config)
        .on_real_engines(async |tool| {
            let install = format!(
                "python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --target /tmp/out \
                 --trusted-host {} --index-url {} tiny && cd /tmp/out && python3 -B tiny.py && find . -type f | sort \
                 | xargs sha256sum",
                server.ip,
                server.url(tool, "/simple/")
            );
            with_packages(tool, "pip", PIP, "python3-pip", "true").await;
            let web = create(tool, json!({ "image": PIP, "network": "proxy" })).await;
            let first = tool.prints(&web, &install).await;
            assert!(first.starts_with("tiny 1.0\n") && first.contains("./tiny.py"), "{first}");
            let answered = server.answered(tool);
            let again = create(tool, json!({ "image": PIP, "replay": web })).await;
            assert_eq!(tool.prints(&again, &install).await, first);
            assert_eq!(server.answered(tool), answered, "nothing was sent");
            let report = shown(tool, &["recorded", "report", &again, "--json"]).await;
            assert_eq!((&report["differed"], &report["not_requested"]), (&json!([]), &json!([])), "{report:#}");
        })
        .await;
}

#[tokio::test]
async fn a_record_is_named_bounded_and_removed() {
    let server = Counting::start();
    let config = format!(
        "[security.egress]\nallow = [\"ip:{}:{}\"]\nrecord = true\n[lifecycle]\nsave_keep = 0\n",
        server.ip, server.port
    );
    let person = Person::new(config);
    person
        .on_real_engines(async |tool| {
            let missing = tool.call(json!({ "operation": "create", "image": IMAGE, "replay": "nothing" })).await;
            assert_eq!(missing["code"], "not_found", "{missing:#}");
            let elsewhere =
                tool.call(json!({ "operation": "create", "image": IMAGE, "network": "none", "replay": "x" })).await;
            assert_eq!(
                (&elsewhere["code"], &elsewhere["details"]["field"]),
                (&"invalid_input".into(), &"replay".into())
            );
            let web = create(tool, json!({ "network": "proxy" })).await;
            let length = tool.prints(&web, &(server.fetching(tool, &[("/long", "")]) + " | wc -c")).await;
            assert!(length.parse::<u64>().unwrap() > 33 << 20, "the program gets all of it");
            let record = shown(tool, &["recorded", "show", &web, "--json"]).await;
            let body = &record["exchanges"][0]["answer"]["body"];
            assert_eq!(body["missing"], "body_limit", "{record:#}");
            assert!(body["bytes"].as_u64().unwrap() > 33 << 20);
            let place = PathBuf::from(record["location"].as_str().unwrap());
            let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&place), mode(&place.join("exchanges.jsonl"))), (0o700, 0o600));
            let pruned = async || {
                let call = json!({ "operation": "prune", "kinds": ["recorded"], "dry_run": false });
                tool.call(call).await["items"].take()
            };
            assert_eq!(pruned().await, json!([]), "its container exists");
            let again = create(tool, json!({ "replay": web })).await;
            tool.call(json!({ "operation": "destroy", "container": web })).await;
            assert_eq!(pruned().await, json!([]), "a container replays it");
            tool.call(json!({ "operation": "destroy", "container": again })).await;
            let items = pruned().await;
            assert_eq!((&items[0]["kind"], &items[0]["removed"]), (&"recorded".into(), &true.into()), "{items:#}");
            assert!(!place.exists() && std::fs::read_dir(tool.state().join("recorded")).unwrap().count() == 0);
        })
        .await;
}

/// Makes requests with a secret over TLS, and prints what it receives.
const ASKS: &str = r#"
import os, sys, urllib.request, urllib.error
for name in ("NO_PROXY", "no_proxy"): os.environ.pop(name, None)
def ask(path, headers, body):
    try:
        answer = urllib.request.urlopen(urllib.request.Request(at + path, method="POST", headers=headers, data=body))
        print(answer.status, answer.read().decode())
    except urllib.error.HTTPError as refusal:
        print(refusal.code, refusal.read().decode())
key, at = os.environ["OPENAI_API_KEY"], sys.argv[1]
ask("/v1/chat", {"Authorization": "Bearer " + key}, b'{"model": "m"}')
ask("/v1/files", {}, ("a placeholder in a body: " + key).encode())
ask("/v1/chat", {"X-Other": key}, b"")
"#;

/// The files below a directory that have a text.
fn holders(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(holders(&path, text));
        } else if kind.is_file() && memchr::memmem::find(&std::fs::read(&path).unwrap(), text.as_bytes()).is_some() {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn a_record_has_no_secret_and_answers_another_placeholder() {
    // The image with Python is built from packages.
    if !coracle_skips::may_download() {
        return;
    }
    let api = Api::start().await;
    let port = api.port;
    let config = format!(
        "[security.egress]\nallow = [\"localhost:{port}\", \"ip:127.0.0.1:{port}\"]\nrecord = true\n\
         [secrets.OPENAI_API_KEY]\nhosts = [\"localhost:{port}\"]\n"
    );
    let certificates = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(certificates.path(), &api.certificate).unwrap();
    let trusted = certificates.path().display().to_string();
    let person = Person::new(config).with_env("SSL_CERT_FILE", trusted).with_env("OPENAI_API_KEY", SECRET);
    person
        .on_real_engines(async |tool| {
            let asks = async |name: &str| {
                let at = format!("https://localhost:{port}/{}", tool.case.engine());
                let command = json!(["python3", "-c", ASKS, at]);
                let ran = tool.exec(name, command).await;
                assert_eq!(ran["exit_code"], 0, "{ran:#}");
                ran["stdout"].as_str().unwrap().to_owned()
            };
            with_packages(tool, "pip", PIP, "python3-pip", "true").await;
            let web = create(tool, json!({ "image": PIP, "network": "proxy" })).await;
            let first = asks(&web).await;
            assert!(
                first.contains("Bearer [redacted:OPENAI_API_KEY]") && first.contains("secret_misplaced"),
                "{first}"
            );
            let placeholder = tool.prints(&web, "printf %s \"$OPENAI_API_KEY\"").await;
            // Several engines are tried at once.
            let own = format!("POST /{}/", tool.case.engine());
            let received = || api.received.lock().unwrap().iter().filter(|it| it.starts_with(&own)).count();
            let before = received();
            let record = shown(tool, &["recorded", "show", &web, "--json"]).await;
            assert_eq!(record["count"], 3, "{record:#}");
            let place = Path::new(record["location"].as_str().unwrap());
            // The positive control: the same search finds what stands for the secret.
            assert!(holders(place, "[redacted:OPENAI_API_KEY]").len() >= 3, "{record:#}");
            assert_eq!(holders(place, SECRET), Vec::<PathBuf>::new());
            assert_eq!(holders(place, &placeholder).len(), 1, "a server may echo the placeholder of a body");

            let again = create(tool, json!({ "image": PIP, "replay": web })).await;
            let other = tool.prints(&again, "printf %s \"$OPENAI_API_KEY\"").await;
            assert_ne!(placeholder, other);
            assert_eq!(asks(&again).await, first);
            assert!(before > 0 && received() == before, "nothing was sent");
            let report = shown(tool, &["recorded", "report", &again, "--json"]).await;
            assert_eq!((&report["served"], &report["differed"]), (&3.into(), &json!([])), "{report:#}");
        })
        .await;
}
