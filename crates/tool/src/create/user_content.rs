//! Dotfiles, repositories, files and commands: what the caller brings into a container.

use coracle_context::failure::Failure;
use coracle_context::requested::Requested;
use coracle_prepare::requests::Content;
use coracle_prepare::resolve::{CloneSource, PathInside, Repo};
use coracle_provision::{
    Dotfiles, FileToPut, InlineFile, ProtectedBinds, RepoSource, Setup, SetupCommand, StepReport, config_files,
    dotfiles, dotfiles_inline, repos, setup,
};
use coracle_runtime::ExecTarget;
use coracle_types::{Command, ContainerPath};

use super::provision::ProvisionRun;
use super::{local_repo, try_repo};

impl ProvisionRun<'_> {
    pub(super) async fn dotfiles(&mut self) -> Result<(), Failure> {
        let put_in = &self.request.provisioning;
        let step = match &put_in.dotfiles {
            Requested::No(why) => StepReport::skipped("dotfiles", why),
            Requested::Yes(requested) => {
                self.cx.call.progress.message("setting up the dotfiles").await;
                let wanted = Dotfiles {
                    url: requested.url.clone(),
                    branch: requested.branch.clone(),
                    target: self.inside(&requested.target)?,
                    script: requested.script.clone(),
                };
                dotfiles(&self.place, &wanted, Some(&self.reporting.live())).await
            }
        };
        self.reporting.add(step).await;
        if !put_in.inline.is_empty() {
            let file = |(path, it): (&String, &Content)| InlineFile {
                path: path.strip_prefix("~/").unwrap_or(path).to_owned(),
                content: it.bytes.clone(),
                mode: it.mode.unwrap_or(0o644),
            };
            let files: Vec<_> = put_in.inline.iter().map(file).collect();
            let step = dotfiles_inline(&self.place, &files, &self.protected()).await;
            self.reporting.add(step).await;
        }
        Ok(())
    }

    pub(super) async fn repositories(&mut self, tried: Option<&ContainerPath>) -> Result<(), Failure> {
        let clone = try_repo::repo(self.request, tried);
        let requested = &self.request.provisioning.repos;
        if clone.is_some() || !requested.is_empty() {
            self.cx.call.progress.message("cloning repositories").await;
        }
        let (mut all, mut failed) = (Vec::from_iter(clone), Vec::new());
        for it in requested {
            match self.repo(it).await {
                Ok(repo) => all.push(repo),
                Err(failure) => failed.push(local_repo::failed(&it.from.name(), &self.path_of(it)?, &failure)),
            }
        }
        let mut step = repos(&self.place, &all, Some(&self.reporting.live())).await;
        local_repo::clear(&self.place, &all).await;
        let inside = ExecTarget::Guest(self.place.link.clone());
        let copied = try_repo::copied(self.cx, self.request, &self.found, &inside, tried).await;
        for item in failed.into_iter().rev().chain(copied) {
            step = step.with_first(item);
        }
        self.reporting.add(step).await;
        Ok(())
    }

    /// The target of a clone: the requested path, else its name in the work directory, or in the home if the work
    /// directory is the user's.
    pub(super) fn path_of(&self, requested: &Repo) -> Result<ContainerPath, Failure> {
        let above = if self.place.bound { &self.place.home } else { &self.place.workdir };
        match &requested.path {
            Some(path) => self.inside(path),
            None => Ok(above.join(&requested.from.name())?),
        }
    }

    async fn repo(&self, requested: &Repo) -> Result<coracle_provision::RepoRequest, Failure> {
        let path = self.path_of(requested)?;
        let from = match &requested.from {
            CloneSource::Url(url) => RepoSource::Url(url.clone()),
            CloneSource::Directory(dir) => {
                let inside = ExecTarget::Guest(self.place.link.clone());
                let name = requested.from.name();
                RepoSource::Copy(Box::pin(local_repo::brought(self.cx, &self.found, &inside, dir, name)).await?)
            }
        };
        Ok(coracle_provision::RepoRequest {
            from,
            path,
            branch: requested.branch.clone(),
            install: requested.install.clone(),
            as_root: requested.as_root,
        })
    }

    pub(super) async fn files(&mut self) -> Result<(), Failure> {
        let file = |(path, it): &(PathInside, Content)| {
            let (path, mode) = (self.inside(path)?, it.mode.unwrap_or(0o644));
            Ok(FileToPut { path, content: it.bytes.clone(), mode })
        };
        let files: Vec<_> = self.request.provisioning.files.iter().map(file).collect::<Result<_, Failure>>()?;
        let step = config_files(&self.place, &files, &self.protected()).await;
        self.reporting.add(step).await;
        Ok(())
    }

    /// The bundle, what the caller wants, and what the kind of project suggests.
    pub(super) async fn commands(&mut self, repo: Option<&ContainerPath>) {
        let put_in = &self.request.provisioning;
        let bundle = put_in.bundle.iter().map(|uri| SetupCommand {
            command: Command::Argv(["amplifier", "bundle", "add", "--", uri].map(str::to_owned).into()),
            as_root: false,
            hint: false,
            alternative: None,
        });
        let given = put_in.setup.iter().map(|command| SetupCommand {
            command: command.clone(),
            as_root: true,
            hint: false,
            alternative: None,
        });
        let commands: Vec<_> = bundle.chain(given).collect();
        let hints = try_repo::hints(self.request);
        match commands.len() + hints.len() {
            0 => {}
            1 => self.cx.call.progress.message("running the setup command").await,
            n => self.cx.call.progress.message(format!("running {n} setup commands")).await,
        }
        let inside = ExecTarget::Guest(self.place.link.clone());
        let in_repo = repo.unwrap_or(&self.place.workdir);
        let run = async |commands: &[SetupCommand], workdir| {
            let live = Some(self.reporting.live());
            setup(&inside, &Setup { workdir, live, ..Setup::at(&self.place, commands) }).await
        };
        let step = match (commands.is_empty(), hints.is_empty()) {
            (_, true) => run(&commands, &self.place.workdir).await,
            (true, _) => run(&hints, in_repo).await,
            _ => run(&commands, &self.place.workdir).await.and(run(&hints, in_repo).await),
        };
        self.reporting.add(step).await;
    }

    fn inside(&self, path: &PathInside) -> Result<ContainerPath, Failure> {
        path.resolve(&self.place.home, &self.place.workdir)
    }

    fn protected(&self) -> ProtectedBinds {
        let roots = self.request.spec.mounts.iter().map(|it| it.at.clone()).collect();
        ProtectedBinds { roots, names: self.cx.config.workspace.protected.clone() }
    }
}
