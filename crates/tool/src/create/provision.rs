//! What is put into a container that runs, step by step.

use std::collections::BTreeMap;

use coracle_context::context::Context;
use coracle_context::egress::Certificates;
use coracle_context::failure::Failure;
use coracle_context::host_identity::HostIdentity;
use coracle_context::requested::Requested;
use coracle_context::{container_proxy, session_env};
use coracle_lifecycle::{Creation, ManagedContainer};
use coracle_prepare::image_build::{BuildInPlace, Packages, ResolvedImage};
use coracle_prepare::resolve::Request;
use coracle_provision::certs::ExtraCertificates;
use coracle_provision::env::{SessionEnv, Sources, select};
use coracle_provision::git::{self, GitConfig, Settings, known_hosts};
use coracle_provision::{StepContext, StepReport, amplifier, certs, gh, ssh};
use coracle_types::ContainerPath;

use super::devcontainer::DevcontainerPlan;
use super::report::ReportBuilder;
use super::try_repo;

/// What was put in.
pub(super) struct PutIn {
    pub(super) repo_path: Option<ContainerPath>,
    /// Variables of the session.
    pub(super) variables: usize,
    /// The job that it was made to run has begun.
    pub(super) main: bool,
    /// What the profile's server asks for.
    pub(super) password: Option<String>,
}

/// A container with a guest, which gets everything that was requested.
pub(super) struct ProvisionRun<'a> {
    pub(super) cx: &'a Context,
    pub(super) request: &'a Request,
    pub(super) imaged: &'a ResolvedImage,
    pub(super) person: &'a HostIdentity,
    pub(super) devcontainer: Option<&'a DevcontainerPlan>,
    pub(super) place: StepContext,
    pub(super) found: ManagedContainer,
    /// The certificate of its proxy, if it has one.
    pub(super) certificate: Option<String>,
    pub(super) reporting: &'a mut ReportBuilder,
}

impl ProvisionRun<'_> {
    /// All steps after the work directory, in their order.
    pub(super) async fn fill(mut self, making: &mut Creation<'_>) -> Result<PutIn, Failure> {
        let repo_path = self.repo_path()?;
        let trusted = self.certificates().await;
        self.packages(&trusted).await;
        let (session, given) = self.environment(making, trusted, repo_path.as_ref()).await?;
        self.identity(&session, &given, repo_path.as_ref()).await;
        self.dotfiles().await?;
        self.repositories(repo_path.as_ref()).await?;
        if let Some(path) = repo_path.as_ref().filter(|_| !self.request.workdir_given) {
            making.set_workdir(path.clone());
            self.place.workdir = path.clone();
        }
        self.files().await?;
        self.settings().await;
        self.commands(repo_path.as_ref()).await;
        self.devcontainer().await?;
        let main = self.main(making).await;
        let password = if main { self.password().await? } else { None };
        Ok(PutIn { repo_path, variables: session.names().count(), main, password })
    }

    async fn certificates(&mut self) -> BTreeMap<String, String> {
        // Under `strict`, files of the image are not changed: the proxy's certificate is in a file of its own.
        let (own, aside) = match (&self.certificate, self.place.rootless) {
            (Some(_), true) => (None, Some(Certificates::env())),
            (own, _) => (own.as_deref(), None),
        };
        let found = match (self.imaged.certs.clone(), own) {
            (found, None) => found,
            (Requested::Yes(found), Some(own)) => Requested::Yes(found.and_pem(own)),
            (Requested::No(_), Some(own)) => Requested::Yes(ExtraCertificates::default().and_pem(own)),
        };
        let (step, mut variables) = match &found {
            Requested::No(why) => (certs::skipped(why), BTreeMap::new()),
            Requested::Yes(found) => {
                let trusted = certs::trust(&self.place, found).await;
                (trusted.step, trusted.variables)
            }
        };
        self.reporting.add(step).await;
        let store = match (own, &aside) {
            (_, Some(_)) => Some(certs::JAVA_ASIDE),
            (Some(_), None) if !variables.is_empty() && certs::trust_in_java(&self.place).await => {
                Some(certs::JAVA_STORE)
            }
            _ => None,
        };
        variables.extend(aside.into_iter().flatten());
        if let Some(store) = store {
            let (name, options) = Certificates::java_env(store);
            let all: Vec<_> = self.before().remove(&name).into_iter().chain([options]).collect();
            variables.insert(name, all.join(" "));
        }
        variables
    }

    async fn packages(&mut self, env: &BTreeMap<String, String>) {
        let step = match &self.imaged.packages {
            Packages::Done(step) => step.clone(),
            Packages::Missing(error) => {
                let build = BuildInPlace { request: self.request, image: self.imaged, why: &error.why };
                build.run(self.cx, &self.place, env).await
            }
        };
        self.reporting.add(step).await;
    }

    /// Brings the variables together, gives them to the guest and remembers what can be given again.
    async fn environment(
        &mut self,
        making: &mut Creation<'_>,
        certificates: BTreeMap<String, String>,
        repo: Option<&ContainerPath>,
    ) -> Result<(SessionEnv, StepReport), Failure> {
        let passthrough = select(&self.cx.host.env, &self.request.provisioning.env, &session_env::rules(self.cx)?)?;
        let mut profile = self.request.chosen.profile.recipe.env.clone();
        match repo {
            Some(repo) => profile.extend(try_repo::variables(self.request, repo)),
            None => add_project_venv(&mut profile, self.request),
        }
        let token = match &self.person.token {
            Requested::Yes(token) if !container_proxy::has_github(self.cx, making.record()) => Some(token.clone()),
            Requested::Yes(_) | Requested::No(_) => None,
        };
        let call = self.request.env.clone();
        let proxy = match making.record().proxied {
            true => container_proxy::variables(self.cx, making.record())?,
            false => BTreeMap::new(),
        };
        let sources = Sources { before: self.before(), certificates, proxy, profile, passthrough, token, call };
        let session = SessionEnv::from_sources(sources.clone());
        self.reporting.keep_out(session_env::redactor(&session, &self.request.env, self.person));
        let mut step = session.send(&self.place.link).await;
        if self.request.provisioning.env_stays {
            step.detail = format!("{}; under `strict` no variable of the host goes in", step.detail);
        }
        self.reporting.add(step.clone()).await;
        let run = self.place.link.run_id().await?;
        let (keys, plain, held) = session_env::to_record(&session, &sources, run, self.person)?;
        for env in [&mut self.place.user_env, &mut self.place.root_env] {
            env.retain(|name, _| !keys.contains(name));
        }
        making.set_session_variables(keys, plain, held);
        Ok((session, step))
    }

    /// What commands have before the session: the image's variables, and those that a guest sets.
    fn before(&self) -> BTreeMap<String, String> {
        let of_image = self.imaged.image.env.iter().filter_map(|it| it.split_once('='));
        let mut before: BTreeMap<String, String> =
            of_image.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        // The guest puts the home's own directory in front by itself.
        before.entry("PATH".into()).or_insert_with(|| PATH.into());
        before.entry("LANG".into()).or_insert_with(|| "C.UTF-8".into());
        before.extend(self.place.user_env.clone());
        before
    }

    /// Files of the user's identity. They are independent of each other, so they go in together.
    async fn identity(&mut self, session: &SessionEnv, given: &StepReport, repo: Option<&ContainerPath>) {
        let config = self.git_config(repo);
        let keys = &self.person.keys;
        let hosts = self.known_hosts();
        let git = async {
            match &self.person.git {
                Requested::No(why) if config.helper_for.is_none() && config.known_hosts.is_empty() => {
                    StepReport::skipped("forward_git", why)
                }
                Requested::No(_) => git::forward(&self.place, &config, git::GitSkipReason::NotRequested).await,
                Requested::Yes(_) => git::forward(&self.place, &config, git::GitSkipReason::NoConfig).await,
            }
        };
        let gh = async {
            match &self.person.token {
                Requested::No(why) => StepReport::skipped("forward_gh", why),
                Requested::Yes(_) if container_proxy::has_github(self.cx, &self.found.record) => {
                    StepReport::skipped("forward_gh", "the proxy has the token, and its placeholder is inside")
                }
                Requested::Yes(_) => gh::forwarded(&self.place, session, given).await,
            }
        };
        let ssh = async {
            match keys {
                Requested::No(why) => StepReport::skipped("forward_ssh", why),
                Requested::Yes(keys) => ssh::forward(&self.place, keys, &hosts).await,
            }
        };
        let (git, gh, ssh) = tokio::join!(git, gh, ssh);
        for step in [git, gh, ssh] {
            self.reporting.add(step).await;
        }
    }

    fn git_config(&self, repo: Option<&ContainerPath>) -> GitConfig {
        let auto = &self.cx.config.auto_passthrough;
        let settings = match &self.person.git {
            Requested::Yes(printed) => Some(Settings::read(printed, &auto.git_keys)),
            Requested::No(_) => None,
        };
        let clones = self.request.provisioning.repos.iter().filter_map(|it| self.path_of(it).ok());
        let safe = [self.place.workdir.clone()].into_iter().chain(clones).chain(repo.cloned()).collect();
        let helper_for = matches!(self.person.token, Requested::Yes(_)).then(|| auto.gh_host.clone());
        // With keys they go where the keys are.
        let of_keys = matches!(&self.person.keys, Requested::Yes(keys) if !keys.is_empty());
        let known_hosts = if of_keys { Vec::new() } else { self.known_hosts() };
        GitConfig { settings, safe, helper_for, known_hosts }
    }

    /// The host's lines for the hosts of this call, and those that the user named.
    fn known_hosts(&self) -> Vec<u8> {
        let put_in = &self.request.provisioning;
        let urls = put_in.repos.iter().filter_map(|it| it.from.url());
        let dotfiles = match &put_in.dotfiles {
            Requested::Yes(it) => Some(&it.url),
            Requested::No(_) => None,
        };
        let hosts = urls.chain(dotfiles).map(|it| it.host().to_owned());
        let hosts: Vec<_> = hosts.chain(self.cx.config.auto_passthrough.known_hosts.iter().cloned()).collect();
        known_hosts(&self.person.known_hosts, &hosts)
    }

    async fn settings(&mut self) {
        if self.request.provisioning.amplifier {
            let step = match self.place.rootless {
                true => {
                    StepReport::skipped("amplifier_settings", "they may hold keys, and under `strict` none goes in")
                }
                false => amplifier::forward(&self.place, &self.person.settings).await,
            };
            self.reporting.add(step).await;
        }
    }

    /// The target of the repository to try, which is never the user's directory.
    fn repo_path(&self) -> Result<Option<ContainerPath>, Failure> {
        let above = if self.place.bound { self.place.home.clone() } else { ContainerPath::parse("/workspace")? };
        Ok(self.request.chosen.tried.as_ref().map(|_| above.join("repo")).transpose()?)
    }
}

/// Used when the image names no `PATH`.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Lets commands use the Python environment of the project in the working directory, as soon as `uv sync` or
/// `python3 -m venv .venv` has made it.
fn add_project_venv(profile: &mut BTreeMap<String, String>, request: &Request) {
    if request.chosen.profile.project_venv {
        let bin = format!("{}/.venv/bin", request.draft.workdir.as_str().trim_end_matches('/'));
        profile.entry("PATH".into()).or_insert_with(|| format!("{bin}:${{PATH}}"));
    }
}
