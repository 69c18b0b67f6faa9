use super::*;

fn digest() -> String {
    format!("sha256:{}", "b".repeat(64))
}

/// One container, in a form of the status.
fn container_json(status: &str) -> String {
    format!(
        r#"[{{"id":"web","configuration":{{"id":"web","image":{{"reference":"docker.io/library/x:1","descriptor":{{"digest":"{}","size":7}}}},
        "labels":{{"k":"v"}},"creationDate":"2026-01-01T00:00:00Z","initProcess":{{"environment":["PATH=/bin"],"workingDirectory":"/"}},
        "mounts":[{{"type":{{"virtiofs":{{}}}},"source":"/s","destination":"/d","options":["ro"]}}],"platform":{{"os":"linux"}},
        "resources":{{"cpus":2,"memoryInBytes":1073741824}}}},{status}}}]"#,
        digest()
    )
}

fn read(status: &str) -> Container {
    containers(container_json(status).as_bytes()).unwrap().remove(0)
}

#[test]
fn both_forms_tell_the_same_container() {
    let new = r#""status":{"state":"running","networks":[{"network":"n","ipv4Address":"192.168.64.3/24"}],"startedDate":"2026-01-01T00:00:01Z"}"#;
    let old = r#""status":"running","networks":[{"network":"n","address":"192.168.64.3/24"}],"startedDate":"2026-01-01T00:00:01Z""#;
    let it = read(new);
    assert_eq!(it, read(old));
    assert_eq!((it.id.as_str(), it.name.as_str(), it.running()), ("web", "web", true));
    assert_eq!((it.networks.as_slice(), it.labels["k"].as_str()), (&["n".to_owned()][..], "v"));
    assert_eq!(it.limits, Limits { memory: Some(ByteSize::mib(1024)), cpus: Some(2.0), pids: None });
    assert_eq!(it.mounts, [MountPoint { source: "/s".into(), target: "/d".into(), writable: false, is_bind: true }]);
}

#[test]
fn states_are_ours_and_what_is_between_two_is_looked_at_again() {
    let state = |word: &str, started: &str| read(&format!(r#""status":{{"state":"{word}"{started}}}"#)).status;
    let started = r#","startedDate":"2026-01-01T00:00:01Z""#;
    assert_eq!(state("stopped", ""), ContainerStatus::Created);
    for word in ["stopped", "stopping", "unknown"] {
        assert_eq!(state(word, started), ContainerStatus::Exited);
        let again = unsettled(container_json(&format!(r#""status":"{word}""#)).as_bytes());
        assert_eq!(again, word != "stopped", "{word}");
    }
    assert!(containers(container_json(r#""status":"dancing""#).as_bytes()).is_err());
}

#[test]
fn an_answer_cut_anywhere_is_an_error_and_no_guess() {
    let whole = container_json(r#""status":{"state":"running"}"#);
    for end in 0..whole.len() {
        let cut = whole.as_bytes().get(..end).unwrap();
        assert!(containers(cut).is_err() && !unsettled(cut), "cut at {end}");
    }
}

#[test]
fn a_date_is_text_or_the_seconds_since_2001() {
    assert_eq!(date(&serde_json::json!(0)).as_deref(), Some("2001-01-01T00:00:00Z"));
    assert_eq!(date(&serde_json::json!("2026-01-01T00:00:00Z")).as_deref(), Some("2026-01-01T00:00:00Z"));
    assert_eq!(date(&Value::Null), None);
}

#[test]
fn an_image_is_its_variant_for_this_machine() {
    let here = oci_arch(std::env::consts::ARCH);
    let json = format!(
        r#"[{{"id":"x","configuration":{{"name":"docker.io/library/x:1","creationDate":"2026-01-01T00:00:00Z","descriptor":{{"digest":"{}"}}}},
        "variants":[{{"platform":{{"os":"unknown","architecture":"unknown"}},"size":1}},
          {{"platform":{{"os":"linux","architecture":"{here}"}},"size":7,"config":{{"config":{{"Env":["A=b"],"User":"node","Labels":{{"k":"v"}}}}}}}}]}},
        {{"configuration":{{"name":"y:1","descriptor":{{"digest":"{}"}}}},"variants":[]}}]"#,
        digest(),
        digest()
    );
    let images = images(json.as_bytes()).unwrap();
    let it = &images[0];
    assert_eq!((it.id.as_str(), it.arch.as_str(), it.size_bytes), (digest().as_str(), here.as_str(), 7));
    assert_eq!(
        (it.env.as_slice(), it.config.user.as_str(), it.labels["k"].as_str()),
        (&["A=b".to_owned()][..], "node", "v")
    );
    assert_eq!(images[1].tags, ["y:1"]);
}

#[test]
fn networks_and_volumes_have_names_and_labels() {
    let json = br#"[{"id":"n","configuration":{"name":"n","mode":"hostOnly","labels":{"k":"v"}},"status":{}},{"id":"m","configuration":{}}]"#;
    let them = networks(json).unwrap();
    assert_eq!((them[0].name.as_str(), them[0].internal, them[0].labels["k"].as_str()), ("n", true, "v"));
    assert_eq!((them[1].name.as_str(), them[1].internal), ("m", false));
    let json = br#"[{"configuration":{"name":"v","source":"/s","creationDate":"2026-01-01T00:00:00Z","labels":{}}}]"#;
    assert_eq!(volumes(json).unwrap()[0].name, "v");
    assert!(volumes(br#"[{"configuration":{}}]"#).is_err());
}

#[test]
fn every_number_of_the_statistics_may_be_missing() {
    let json = br#"[{"id":"web","memoryUsageBytes":7,"numProcesses":2}]"#;
    let it = stats(json).unwrap().unwrap();
    assert_eq!(it, Stats { memory_usage_bytes: Some(7), cpu_usage_usec: None, num_processes: Some(2) });
    assert_eq!(stats(b"[]").unwrap(), None);
}

fn versions(cli: &str, service: Option<&str>) -> Result<String> {
    let one =
        |app: &str, version: &str| format!(r#"{{"appName":"{app}","version":"{version}","buildType":"release"}}"#);
    let service = service.map(|it| one("container-apiserver", it));
    let all: Vec<_> = std::iter::once(one("container", cli)).chain(service).collect();
    version(format!("[{}]", all.join(",")).as_bytes())
}

#[test]
fn r21_an_engine_before_1_1_and_a_system_before_macos_26_are_too_old() {
    let service = "container-apiserver version 1.2.0 (build: release, commit: abcdef0)";
    assert_eq!(versions("1.10.0", Some(service)).unwrap(), service);
    assert_eq!(versions("1.1.0", None).unwrap(), "1.1.0");
    for (cli, of_service) in [("1.0.0", None), ("0.12.3", Some("0.12.3")), ("1.1.0", Some("1.0.9"))] {
        let it = versions(cli, of_service);
        assert!(matches!(&it, Err(Error::TooOld { needed: OLDEST, .. })), "{it:?}");
    }
    assert!(matches!(version(b"container CLI version 0.4.1"), Err(Error::TooOld { .. })));
    let plist = |version: &str| format!("<dict><key>ProductVersion</key>\n\t<string>{version}</string></dict>");
    assert!(system(&plist("26.0.1")).is_ok() && system("no list of properties").is_ok());
    let it = system(&plist("15.6"));
    assert_eq!(it.unwrap_err().to_string(), "container on macOS 15.6 is too old: macOS 26 or later is needed");
}

#[test]
fn a_service_is_up_only_when_it_says_so() {
    assert!(is_up(br#"{"status":"running","apiServerVersion":"x"}"#));
    for down in [&br#"{"status":"not running"}"#[..], br#"{"status":"unregistered"}"#, b"", b"Error: XPC"] {
        assert!(!is_up(down));
    }
}
