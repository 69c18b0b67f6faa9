//! A container without a guest: commands and plain variables, by the engine's own exec.

use std::time::Instant;

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_context::requested::Requested;
use coracle_lifecycle::{Creation, ManagedContainer, SecretState, session};
use coracle_prepare::resolve::Request;
use coracle_provision::{Setup, SetupCommand, Status, StepReport, setup};
use coracle_runtime::ExecTarget;

use super::devcontainer::DevcontainerPlan;
use super::provision::PutIn;
use super::report::ReportBuilder;

/// A container without a guest that is filled.
pub(super) struct NoGuest<'a> {
    pub(super) cx: &'a Context,
    pub(super) request: &'a Request,
    pub(super) devcontainer: Option<&'a DevcontainerPlan>,
    pub(super) found: ManagedContainer,
    pub(super) inside: &'a ExecTarget,
    pub(super) reporting: &'a mut ReportBuilder,
}

impl NoGuest<'_> {
    /// Does what needs no guest. For the rest the report says that it needs one.
    pub(super) async fn fill(self, making: &mut Creation<'_>) -> Result<PutIn, Failure> {
        let Self { cx, request, devcontainer, found, inside, reporting } = self;
        let put_in = &request.provisioning;
        making.set_session_variables(
            request.env.keys().cloned().collect(),
            request.env.clone(),
            SecretState::default(),
        );
        let wanted = |name, is: bool| if is { needs_guest(name) } else { StepReport::skipped(name, "not requested") };
        let chosen = &request.chosen;
        for step in [
            StepReport::skipped("ca_certificates", "this container has no guest"),
            wanted("packages", !chosen.profile.recipe.is_empty()),
            StepReport::skipped("env_passthrough", "this container has no guest: only plain values of `env` go in"),
            wanted("forward_git", put_in.git == Requested::Yes(())),
            wanted("forward_gh", put_in.gh == Requested::Yes(())),
            wanted("forward_ssh", put_in.ssh == Requested::Yes(())),
            wanted("dotfiles", matches!(put_in.dotfiles, Requested::Yes(_)) || !put_in.inline.is_empty()),
            wanted("repos", !put_in.repos.is_empty() || chosen.tried.is_some()),
            wanted("config_files", !put_in.files.is_empty()),
        ] {
            reporting.add(step).await;
        }
        if put_in.amplifier {
            reporting.add(needs_guest("amplifier_settings")).await;
        }
        let commands: Vec<_> = put_in
            .setup
            .iter()
            .cloned()
            .map(|command| SetupCommand { command, as_root: true, hint: false, alternative: None })
            .collect();
        let found = ManagedContainer { record: making.record().clone(), ..found };
        let (user, root) = (session(&found, false)?, session(&found, true)?);
        let how = Setup {
            commands: &commands,
            workdir: &root.workdir,
            user: user.user,
            user_env: &user.env,
            root_env: &root.env,
            timeout: cx.config.setup.timeout.0,
            deadline: Instant::now() + cx.config.setup.total.0,
            grace: cx.config.exec.grace.0,
            cancel: cx.call.cancel.clone(),
            live: Some(reporting.live()),
        };
        reporting.add(setup(inside, &how).await).await;
        if devcontainer.is_some_and(DevcontainerPlan::needs_guest) {
            reporting.add(needs_guest("devcontainer")).await;
        }
        if request.main.is_some() {
            reporting.add(needs_guest("main")).await;
        }
        Ok(PutIn { repo_path: None, variables: request.env.len(), main: false, password: None })
    }
}

fn needs_guest(name: &'static str) -> StepReport {
    StepReport::flawed(name, Status::Failed, "not done", "it takes a guest, and this container has none")
        .code("unsupported")
}
