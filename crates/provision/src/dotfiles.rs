//! The user's dotfiles.

mod links;
mod request;
mod script;

use std::time::Instant;

use coracle_types::Chunk;
use tokio::sync::mpsc;

pub use self::request::Dotfiles;
use crate::clone_source::{CloneRequest, cloned};
use crate::step_error::StepError;
use crate::{ReportItem, Status, StepContext, StepReport};

const NAME: &str = "dotfiles";

const RAN: &str = "the clone is at its commit, and its script ended with 0";

const LINKED: &str = "the clone is at its commit, and each link leads to a file";

/// Clones the dotfiles as the exec user and runs their script. Without a script, links the usual files from the home
/// directory. `live` receives the script's output.
pub async fn dotfiles(context: &StepContext, dotfiles: &Dotfiles, live: Option<&mpsc::Sender<Chunk>>) -> StepReport {
    let begun = Instant::now();
    let step = match set_up(context, dotfiles, live).await {
        Ok(step) => step,
        Err(failure) => failed("they could not be cloned".into(), failure),
    };
    step.with_duration(begun.elapsed())
}

async fn set_up(
    context: &StepContext,
    it: &Dotfiles,
    live: Option<&mpsc::Sender<Chunk>>,
) -> Result<StepReport, StepError> {
    let source = CloneRequest { from: it.url.as_str(), branch: it.branch.as_ref(), path: &it.target, shallow: true };
    let commit = cloned(context, source).await?;
    let cloned = format!("cloned to {} at {}", it.target, &commit[..commit.len().min(12)]);
    Ok(match script::find(context, it).await {
        Ok(Some(script)) => ran(script::run(context, it, &script, live).await, &cloned),
        Ok(None) => linked(links::create(context, &it.target).await, &cloned),
        Err(failure) => failed(cloned, failure),
    })
}

fn ran(item: ReportItem, cloned: &str) -> StepReport {
    let step = match &item.error {
        None => StepReport::success(NAME, format!("{cloned}; {} ended with 0", item.name), RAN),
        Some(error) => {
            let error = format!("{}: {error}", item.name);
            StepReport::flawed(NAME, Status::Failed, format!("{cloned}; {} failed", item.name), error)
        }
    };
    StepReport { code: item.code.clone(), items: vec![item], ..step }
}

fn linked(items: Vec<ReportItem>, cloned: &str) -> StepReport {
    if items.is_empty() {
        let detail = format!("{cloned}; it contains no script, and no file to link");
        return StepReport::success(NAME, detail, LINKED);
    }
    let good = items.iter().filter(|it| it.error.is_none()).count();
    let mut detail = format!("{cloned}; {good}/{} files linked", items.len());
    if items.iter().any(|it| it.name == ".gitconfig" && it.about.contains_key("kept_as")) {
        detail.push_str("; its .gitconfig replaces the forwarded settings, of which a backup is kept");
    }
    StepReport::of_items(NAME, detail, LINKED, items)
}

fn failed(detail: String, failure: StepError) -> StepReport {
    let step = StepReport::flawed(NAME, Status::Failed, detail, failure.error);
    StepReport { code: failure.code.map(Into::into), ..step }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::test_support::{Trial, path};

    /// Sets up dotfiles of these files, none of which is executable.
    async fn set_up(trial: &mut Trial, files: &[(&str, &str)], script: Option<&str>) -> StepReport {
        let url = trial.remote("dots", files).await;
        let script = script.map(str::to_owned);
        let it = Dotfiles { url, branch: None, target: path("/home/agent/.dotfiles"), script };
        dotfiles(&trial.context, &it, None).await
    }

    #[tokio::test]
    async fn a_script_runs_as_the_user_beside_its_files() {
        if !coracle_skips::has_root() {
            return;
        }
        let mut trial = Trial::new().await;
        let files = [("install.sh", "cat beside >\"$HOME/x\""), ("beside", "mine"), ("setup.sh", "exit 9")];
        let step = set_up(&mut trial, &files, None).await;
        assert_eq!((step.status, step.items[0].name.as_str()), (Status::Success, "install.sh"), "{step:#?}");
        assert!(step.detail.ends_with("; install.sh ended with 0"), "{}", step.detail);
        assert_eq!(trial.read("home/agent/x"), "mine");
        assert!(trial.root.join("home/agent/.dotfiles/.git/shallow").exists());
    }

    #[tokio::test]
    async fn a_script_that_fails_fails_the_step_with_its_status() {
        if !coracle_skips::has_root() {
            return;
        }
        let mut trial = Trial::new().await;
        let step = set_up(&mut trial, &[("bootstrap.sh", "#!/bin/sh\necho no >&2; exit 3")], None).await;
        assert_eq!((step.status, step.error.as_deref()), (Status::Failed, Some("bootstrap.sh: exit 3: no")));
        assert_eq!(step.items[0].about["exit_code"], 3);
        assert_eq!(trial.read("home/agent/.dotfiles/README"), "dots");
    }

    #[tokio::test]
    async fn a_given_script_is_used_and_has_to_be_in_the_clone() {
        if !coracle_skips::has_root() {
            return;
        }
        let files = [("install.sh", "exit 9"), ("my/own", "#!/usr/bin/env sh\necho ran")];
        for (script, status, code) in [
            ("./my/own", Status::Success, None),
            ("install.sh", Status::Failed, None),
            ("gone.sh", Status::Failed, Some("path_not_found")),
            ("my", Status::Failed, Some("path_not_found")),
            ("../.dotfiles/my/own", Status::Failed, Some("invalid_input")),
            ("/bin/true", Status::Failed, Some("invalid_input")),
        ] {
            let step = set_up(&mut Trial::new().await, &files, Some(script)).await;
            assert_eq!((step.status, step.code.as_deref()), (status, code), "{script}: {step:#?}");
        }
    }

    #[tokio::test]
    async fn a_makefile_is_made_and_an_executable_script_is_executed() {
        if !coracle_skips::has_root() {
            return;
        }
        let mut trial = Trial::new().await;
        let step = set_up(&mut trial, &[("Makefile", "all:\n\techo made >made\n")], None).await;
        let made = step.status == Status::Success && trial.read("home/agent/.dotfiles/made") == "made\n";
        assert!(made || step.code.as_deref() == Some("unsupported"), "the host may have no make: {step:#?}");
        let mut trial = Trial::new().await;
        trial.write("remotes/dots/setup.sh", "#!/bin/cat\nprinted");
        let script = trial.root.join("remotes/dots/setup.sh");
        std::fs::set_permissions(script, PermissionsExt::from_mode(0o755)).unwrap();
        let step = set_up(&mut trial, &[], None).await;
        assert_eq!(step.items[0].about["output"], "#!/bin/cat\nprinted", "{step:#?}");
    }

    #[tokio::test]
    async fn files_are_linked_and_existing_ones_are_backed_up() {
        if !coracle_skips::has_root() {
            return;
        }
        let mut trial = Trial::new().await;
        for (file, text) in [(".gitconfig", "forwarded"), (".bashrc", "image's"), (".bashrc.orig", "older")] {
            trial.write(&format!("home/agent/{file}"), text);
        }
        std::os::unix::fs::symlink("/nowhere", trial.root.join("home/agent/.vimrc")).unwrap();
        let files = [(".gitconfig", "mine"), (".bashrc", "mine"), (".vimrc", "mine"), (".other", "mine")];
        let step = set_up(&mut trial, &files, None).await;
        assert_eq!(step.status, Status::Success, "{step:#?}");
        assert!(step.detail.contains("; 3/3 files linked; its .gitconfig replaces"), "{}", step.detail);
        let names: Vec<_> =
            step.items.iter().map(|it| (it.name.as_str(), it.about["kept_as"].as_str().unwrap())).collect();
        let backups = [(".bashrc", ".bashrc.orig.1"), (".gitconfig", ".gitconfig.orig"), (".vimrc", ".vimrc.orig")];
        assert_eq!(names, backups);
        for file in [".bashrc", ".gitconfig", ".vimrc"] {
            let link = std::fs::read_link(trial.root.join("home/agent").join(file)).unwrap();
            assert_eq!(link.to_str(), Some(format!(".dotfiles/{file}").as_str()));
            assert_eq!(trial.read(&format!("home/agent/{file}")), "mine");
        }
        assert_eq!(trial.read("home/agent/.bashrc.orig"), "older");
        assert_eq!(trial.read("home/agent/.bashrc.orig.1"), "image's");
        assert_eq!(trial.read("home/agent/.gitconfig.orig"), "forwarded");
        assert!(!trial.root.join("home/agent/.other").exists());
    }

    #[tokio::test]
    async fn dotfiles_without_script_or_files_are_only_cloned() {
        if !coracle_skips::has_root() {
            return;
        }
        let step = set_up(&mut Trial::new().await, &[(".other", "")], None).await;
        assert_eq!((step.status, step.items.len()), (Status::Success, 0));
        assert!(step.detail.contains("no script"), "{}", step.detail);
    }

    #[tokio::test]
    async fn an_existing_target_is_not_overwritten() {
        if !coracle_skips::has_root() {
            return;
        }
        let mut trial = Trial::new().await;
        trial.write("home/agent/.dotfiles/existing", "unchanged");
        let step = set_up(&mut trial, &[("install.sh", "exit 9")], None).await;
        assert_eq!((step.status, step.code.as_deref()), (Status::Failed, Some("path_exists")), "{step:#?}");
        assert_eq!(trial.read("home/agent/.dotfiles/existing"), "unchanged");
    }
}
