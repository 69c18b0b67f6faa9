use super::*;
use crate::packages::PackageName;

fn purpose(name: &str) -> Purpose {
    Purpose::parse(name).unwrap()
}

fn built_in(name: &str) -> Profile {
    resolve(&purpose(name), &BTreeMap::new(), None).unwrap()
}

fn configured(name: &str, toml: &str) -> BTreeMap<Purpose, ProfileSettings> {
    [(purpose(name), serde_json::from_str(toml).unwrap())].into()
}

fn shown<'a>(packages: impl IntoIterator<Item = &'a PackageName>) -> String {
    packages.into_iter().map(PackageName::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_line_of_the_table_is_a_profile_with_all_its_packages() {
    let all: Vec<_> = known(&BTreeMap::new());
    assert_eq!(
        all.iter().map(Purpose::as_str).collect::<Vec<_>>().join(" "),
        "amplifier browser bun clean desktop general go node python rust try-repo"
    );
    for it in all.iter().filter(|it| !it.is_detected()) {
        assert!(shown(&resolve(it, &BTreeMap::new(), None).unwrap().recipe.packages).contains("git"), "{it}");
    }
    let python = built_in("python");
    assert_eq!(shown(&python.recipe.packages), "build-essential ca-certificates curl git");
    assert_eq!(shown(&python.bootstrap.packages), "python3 python3-dev python3-pip python3-venv");
    assert_eq!((python.env_passthrough, python.forward_gh), (None, None));
    assert_eq!((built_in("clean").env_passthrough, built_in("clean").dotfiles), (Some(Passthrough::None), Some(false)));
}

#[test]
fn only_python_uses_the_virtual_environment_of_the_project_also_with_a_configured_image() {
    let own = configured("python", r#"{"image":"python:3.11-slim"}"#);
    assert!(resolve(&purpose("python"), &own, None).unwrap().project_venv);
    let is_resolved = |it: &Purpose| !it.is_detected();
    let using = known(&BTreeMap::new()).into_iter().filter(is_resolved).filter(|it| built_in(it.as_str()).project_venv);
    assert_eq!(using.collect::<Vec<_>>(), [purpose("python")]);
}

#[test]
fn the_version_of_amplifier_is_an_argument_and_looks_like_one() {
    let with = |version| resolve(&purpose("amplifier"), &BTreeMap::new(), version);
    assert_eq!(with(None).unwrap().recipe.setup[1].args, ["amplifier"]);
    assert_eq!(with(Some("0.3.1")).unwrap().recipe.setup[1].args, ["amplifier==0.3.1"]);
    for bad in ["", "1; id", "$(id)", "1 2", &"1".repeat(65)] {
        assert_eq!(with(Some(bad)), Err(ProfileError::Version(bad.to_owned())));
    }
}

#[test]
fn a_configured_field_replaces_only_the_built_in_one() {
    let own = configured("python", r#"{"packages":["jq"],"forward_ssh":true,"env_passthrough":["A","B"]}"#);
    let profile = resolve(&purpose("python"), &own, None).unwrap();
    assert_eq!(shown(&profile.recipe.packages), "jq");
    assert_eq!((profile.forward_ssh, profile.forward_git), (Some(true), None));
    assert_eq!(profile.env_passthrough, Some(Passthrough::Names(vec!["A".into(), "B".into()])));
    let same = built_in("python");
    assert_eq!(
        (profile.image, profile.recipe.setup, profile.bootstrap),
        (same.image, same.recipe.setup, same.bootstrap)
    );
}

#[test]
fn the_image_of_a_profile_decides_its_replacement() {
    let of = |name: &str, settings: &str| super::resolve(&purpose(name), &configured(name, settings), None).unwrap();
    let shown = |it: &Profile| format!("{:?}", it.bootstrap);
    assert!(shown(&of("python", r#"{"image":"python:3.11-slim"}"#)).contains("3.11"));
    assert!(shown(&of("data", r#"{"image":"python:3.12-slim"}"#)).contains("3.12"), "of a new one, too");
    let own = of("python", r#"{"image":"example/base:1"}"#);
    assert_eq!(own.bootstrap, built_in("python").bootstrap, "its name is unknown");
    assert_eq!(built_in("general").bootstrap, Recipe::default());
}

#[test]
fn a_new_profile_needs_an_image_and_an_unknown_one_is_answered_with_the_list() {
    let own = configured("mine", r#"{"image":"debian:12","setup":["echo hi"]}"#);
    let mine = resolve(&purpose("mine"), &own, None).unwrap();
    assert_eq!((mine.image.as_str(), mine.recipe.setup[0].script.as_str()), ("debian:12", "echo hi"));
    let bare = configured("mine", "{}");
    assert_eq!(resolve(&purpose("mine"), &bare, None), Err(ProfileError::NoImage(purpose("mine"))));
    let Err(unknown) = resolve(&purpose("pyhton"), &own, None) else { panic!() };
    assert!(unknown.to_string().contains("`pyhton`") && unknown.to_string().contains("mine"), "{unknown}");
    assert!(matches!(resolve(&purpose("try-repo"), &own, None), Err(ProfileError::Detected(_))));
}

#[test]
fn an_unknown_field_cannot_be_configured() {
    for bad in [
        r#"{"pakages":[]}"#,
        r#"{"packages":["-y"]}"#,
        r#"{"image":"A B"}"#,
        r#"{"env_passthrough":"some"}"#,
        r#"{"forward_git":"yes"}"#,
        r#"{"server":{"command":[],"port":80}}"#,
        r#"{"server":{"command":["x"],"port":0}}"#,
    ] {
        assert!(serde_json::from_str::<ProfileSettings>(bad).is_err(), "{bad}");
    }
    for bad in ["", "Python", "a_b", "1a", "-a", &"a".repeat(33)] {
        assert!(Purpose::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_purpose_with_a_server_installs_its_start_script() {
    for (name, port, program) in [("browser", 9222, "chromium"), ("desktop", 6080, "websockify")] {
        let profile = built_in(name);
        let server = profile.server.unwrap();
        let [command] = &server.command[..] else { panic!("{server:?}") };
        let installed = profile.recipe.setup.iter().find(|it| it.args.first() == Some(command)).unwrap();
        let text = &installed.args[1];
        assert_eq!((server.port.get(), text.contains(&port.to_string())), (port, true), "{text}");
        assert!(text.lines().any(|it| it.starts_with("exec ") && it.contains(program)), "{text}");
        assert!(shown(&profile.recipe.packages).contains(program));
        let own = configured(name, r#"{"setup":["true"]}"#);
        assert_eq!(resolve(&purpose(name), &own, None).unwrap().server, None, "its start script was replaced");
    }
    assert_eq!(built_in("python").server, None);
}
