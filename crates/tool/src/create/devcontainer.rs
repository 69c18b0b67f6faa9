//! `create` by a `devcontainer.json`: what the file asks for becomes fields of the call, where the call does not have them.
//!
//! **Invariant:** a file of a stranger gets nothing that the call could not ask for, and is judged whole before anything is
//! made. Its commands run as the exec user, inside.

use std::path::Path;

use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_context::warning::Warning;
use coracle_devcontainer::file::{Devcontainer, Variables};
use coracle_devcontainer::hooks::{RunAs, run};
use coracle_devcontainer::mounts::MountKind;
use coracle_host::fs::HostPath;
use coracle_host::tree::DirHandle;
use coracle_prepare::preflight::ensure_ready;
use coracle_prepare::requests::{Create, MountArg, PortArg};
use coracle_prepare::resolve::{Request, copyable, host_path};
use coracle_prepare::sandbox::devcontainer::{BuildFiles, JudgedFile, bind, judge, local_env, searched, unmet};
use coracle_protocol::EnsureUser;
use coracle_provision::{ReportItem, StepReport, UserRequest};
use coracle_runtime::Tmpfs;
use coracle_types::{ByteSize, ContainerPath, Ids, SandboxWarning};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::provision::ProvisionRun;

/// Where the workspace is, unless the call or the file says otherwise.
const WORKSPACE: &str = "/workspace";

/// Room of a directory in memory.
const TMPFS: ByteSize = ByteSize::mib(1024);

/// What a container gets of its file, beyond the fields of its call.
#[derive(Debug)]
pub(crate) struct DevcontainerPlan {
    file: Devcontainer,
    answer: DevcontainerAnswer,
    warnings: Vec<SandboxWarning>,
}

/// What is answered of a file.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub(crate) struct DevcontainerAnswer {
    /// The file.
    file: String,
    /// Its image, or the one that was built of its parts.
    image: String,
    built: bool,
    features: Vec<String>,
    /// Files that the build did not get to see.
    kept_out: Vec<String>,
}

/// The file of a call, and the directory that it is for.
struct Source {
    root: HostPath,
    /// The path of the file in it.
    path: String,
}

/// Reads the file that a call names, makes its image, and fills the call's fields.
pub(super) async fn apply(args: &mut Create, cx: &Context) -> Result<Option<DevcontainerPlan>, Failure> {
    let Some(named) = args.devcontainer.clone() else { return Ok(None) };
    if cx.config.is_strict() {
        super::check_without_image(args, cx)?;
    }
    let taken = [("image", args.image.is_some()), ("repo_url", args.repo_url.is_some())];
    if let Some((field, _)) = taken.iter().find(|it| it.1) {
        return Err(Failure::conflicting(&[field, "devcontainer"], "the devcontainer.json says what the image is")
            .hint("leave one of them out"));
    }
    let source = source(&named, cx).await?;
    let root = DirHandle::from_path(&source.root).map_err(Failure::internal)?;
    let variables = variables(args, &source, cx);
    let files = BuildFiles::Directory(&root);
    let judged = judge(cx, files, &source.path, &variables, Some(&cx.config.default_image)).await?;
    fill(args, &judged.file, &source, cx)?;
    // A bad call is refused before minutes of building.
    super::check_without_image(args, cx)?;
    let ready = ensure_ready(cx).await?;
    let made = judged.build(cx, files, &source.path, &variables, &ready).await?;
    args.image = Some(made.reference.clone());
    let own = made.image.env.iter().filter_map(|it| it.split_once('='));
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let env = args.env.get_or_insert_default();
    for (name, value) in judged.file.env(&own) {
        env.entry(name).or_insert_with(|| value.into());
    }
    let JudgedFile { file, recipe, .. } = judged;
    let answer = DevcontainerAnswer {
        file: source.root.real().join(&source.path).display().to_string(),
        image: made.reference.to_string(),
        built: made.built,
        features: file.features.iter().map(|it| it.name.clone()).collect(),
        kept_out: recipe.excluded.clone(),
    };
    let mut warnings = [file.warnings.clone(), recipe.warnings].concat();
    let unforwarded = file.forward_ports.iter().filter(|it| it.parse::<u16>().is_err());
    warnings.extend(unforwarded.map(|it| {
        let message = format!("`forwardPorts` has `{it}`, and only ports of the container itself are published");
        SandboxWarning::new("devcontainer_ignored", message)
    }));
    Ok(Some(DevcontainerPlan { file, answer, warnings }))
}

/// `auto`, a directory, or a file: a file in `.devcontainer` is for the directory above that.
async fn source(named: &str, cx: &Context) -> Result<Source, Failure> {
    let at = if named == "auto" { cx.config.working_dir(&cx.host) } else { host_path(named, cx) };
    let opened = copyable(&at, cx)?;
    if opened.is_dir() {
        let dir = DirHandle::from_path(&opened).map_err(Failure::internal)?;
        let hint = "name one of them in `devcontainer`";
        let path = searched(BuildFiles::Directory(&dir), hint).await?.ok_or_else(|| {
            let message = format!("`{}` has no devcontainer.json", opened.real().display());
            Failure::new(Code::DevcontainerInvalid, message)
                .detail("field", "devcontainer")
                .hint("give the path of one, or create it as `.devcontainer/devcontainer.json`")
        })?;
        return Ok(Source { root: opened, path });
    }
    let real = opened.real();
    let above: Vec<&Path> = real.ancestors().skip(1).take(3).collect();
    let named = |it: &&Path| it.file_name().is_some_and(|it| it == ".devcontainer");
    let root = match above.iter().position(named) {
        Some(at) => real.ancestors().nth(at + 2),
        None => real.parent(),
    };
    let root = root.unwrap_or(Path::new("/"));
    let path = real.strip_prefix(root).map_err(Failure::internal)?.to_str().map(str::to_owned);
    let path = path.ok_or_else(|| Failure::invalid("devcontainer", "a path that is no text cannot be used"))?;
    Ok(Source { root: copyable(root, cx)?, path })
}

fn variables(args: &Create, source: &Source, cx: &Context) -> Variables {
    let root = source.root.real();
    let name = root.file_name().map_or_else(String::new, |it| it.to_string_lossy().into_owned());
    Variables {
        local_folder: root.display().to_string(),
        local_name: name,
        container_folder: args.workdir.as_ref().map_or_else(|| WORKSPACE.to_owned(), ToString::to_string),
        id: hex::encode(&Sha256::digest(root.as_os_str().as_encoded_bytes())[..16]),
        local_env: local_env(cx),
    }
}

/// Fields of the call that it does not have itself.
fn fill(args: &mut Create, file: &Devcontainer, source: &Source, cx: &Context) -> Result<(), Failure> {
    if args.workdir.is_none() {
        args.workdir.clone_from(&file.workspace_folder);
    }
    if let (None, Some(user)) = (&args.user, &file.user) {
        let user = UserRequest::parse(user.as_str())
            .map_err(|err| Failure::new(Code::DevcontainerInvalid, err.to_string()).detail("property", "remoteUser"))?;
        args.user = Some(user);
    }
    let workdir = args.workdir.clone().map_or_else(|| ContainerPath::parse(WORKSPACE), Ok)?;
    let here = cx.config.working_dir(&cx.host);
    let elsewhere = here.canonicalize().unwrap_or(here) != source.root.real();
    let mounts = args.mounts.get_or_insert_default();
    if elsewhere && args.mount_cwd.is_none() {
        args.mount_cwd = Some(false);
        mounts.push(MountArg { host: text(source.root.real())?, container: workdir, mode: None });
    }
    for (host, container, access) in file.mounts.iter().filter_map(|it| bind(&cx.config, it)) {
        mounts.push(MountArg { host: text(&host)?, container, mode: Some(access) });
    }
    if args.network.as_deref() != Some("none") {
        let ports = args.ports.get_or_insert_default();
        for port in file.forward_ports.iter().filter_map(|it| it.parse().ok()) {
            if !ports.iter().any(|it| it.container == port) {
                ports.push(PortArg { container: port, host: None, protocol: None });
            }
        }
    }
    Ok(())
}

fn text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Failure::invalid("devcontainer", "a path that is no text cannot be mounted"))
}

impl DevcontainerPlan {
    /// The decided call, with what no field of a call asks for.
    pub(super) fn on(&self, mut request: Request) -> Request {
        let memory = self.file.mounts.iter().filter(|it| it.kind == MountKind::Tmpfs);
        request.spec.tmpfs.extend(memory.map(|it| Tmpfs { at: it.at.clone(), size: TMPFS, mode: 0o1777 }));
        request
    }

    /// Its image was built here, of allowed parts.
    pub(super) fn is_built(&self) -> bool {
        self.answer.built
    }

    /// What is reported of it, and what has no effect.
    pub(super) fn answer(&self, request: &Request) -> (DevcontainerAnswer, Vec<Warning>) {
        let unmet = unmet(&self.file.needs, &request.spec.limits, request.spec.gpu);
        let warnings = self.warnings.iter().map(|it| Warning::new("devcontainer_ignored", it.message.clone()));
        let unmet = unmet.into_iter().map(|it| Warning::new("host_requirements", it));
        (self.answer.clone(), warnings.chain(unmet).collect())
    }

    fn volumes(&self) -> impl Iterator<Item = &ContainerPath> {
        self.file.mounts.iter().filter(|it| matches!(it.kind, MountKind::Volume(_))).map(|it| &it.at)
    }

    /// Whether anything has to be done inside.
    pub(super) fn needs_guest(&self) -> bool {
        !self.file.hooks.is_empty() || self.volumes().next().is_some()
    }
}

impl ProvisionRun<'_> {
    /// The directories and the commands of the file. A command that fails ends them.
    pub(super) async fn devcontainer(&mut self) -> Result<(), Failure> {
        let Some(plan) = self.devcontainer.filter(|it| it.needs_guest()) else { return Ok(()) };
        let mut items = Vec::new();
        for at in plan.volumes() {
            let Ids { uid, gid } = self.place.user;
            let bound = self.found.record.mounts.iter().map(|mount| mount.container.to_string()).collect();
            let ensure = EnsureUser { uid, gid, workdir: at.to_string(), bound };
            items.push(match self.place.link.ensure_user(ensure).await {
                Ok(_) => ReportItem::success(format!("directory {at}")),
                Err(err) => ReportItem::failed(format!("directory {at}"), err.to_string()),
            });
        }
        let user = RunAs {
            link: &self.place.link,
            user: self.place.user,
            workdir: self.place.workdir.clone(),
            cancel: self.place.cancel.clone(),
        };
        for (stage, hook) in &plan.file.hooks {
            self.cx.call.progress.message(format!("running {}", stage.property())).await;
            let commands = run(*stage, hook, &user).await;
            let failed = commands.iter().any(|it| it.error.is_some());
            items.extend(commands.into_iter().map(|it| {
                let name =
                    it.name.map_or_else(|| stage.property().to_owned(), |name| format!("{} {name}", stage.property()));
                let item = match it.error {
                    None => ReportItem::success(name),
                    Some(error) => ReportItem::failed(name, error),
                };
                item.with("output", it.output).with("exit_code", it.exit_code).with("duration_ms", it.duration_ms)
            }));
            if failed {
                break;
            }
        }
        let detail = format!("`{}` was carried out", plan.answer.file);
        self.reporting.add(StepReport::of_items("devcontainer", detail, "each command ended with 0", items)).await;
        Ok(())
    }
}
