//! The block about the workspace in a system prompt.

use std::path::Path;

use coracle_context::config::{HostMount, MountMode};
use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_context::workspace_mounts;
use coracle_runtime::Baseline;
use coracle_workspace::{
    ImportEstimate, PromptContext, PromptMount, SlotRole, estimate, prompt as render_prompt, unavailable,
};

use super::container_spec::Plan;
use crate::preflight::ensure_ready;

/// Describes the session's workspace for a model, or why there is none. Creates nothing.
pub async fn prompt(cx: &Context) -> String {
    match block(cx).await {
        Ok(text) => text,
        Err(failure) => {
            let failure = Failure::from(coracle_workspace::engine_unavailable(failure.into_inner()));
            unavailable(&reason(&failure), &sentence(failure.hint.as_deref().unwrap_or_default()))
        }
    }
}

async fn block(cx: &Context) -> Result<String, Failure> {
    // Without an engine, this call has the most helpful error.
    cx.runtime().await?;
    ensure_ready(cx).await?;
    let plan = Plan::for_user(SlotRole::Workspace, cx)?;
    let shell = cx.config.workspace.shell_names.first().map_or("shell_execute", String::as_str);
    let own = cx.clone();
    let mounts = tokio::task::spawn_blocking(move || mounted(&own)).await.map_err(Failure::internal)??;
    Ok(render_prompt(&PromptContext {
        uid: plan.user.uid,
        workdir: plan.workdir,
        shell,
        image: plan.image.as_str(),
        memory: cx.config.workspace.memory,
        cpus: cx.config.workspace.cpus,
        network: super::session_egress::names(&cx.config),
        mounts,
    }))
}

/// Lists the host directories: as they were copied if the workspace exists, else as they would be.
fn mounted(cx: &Context) -> Result<Vec<PromptMount>, Failure> {
    let baseline = cx
        .session_containers()?
        .baseline(&cx.call.session)
        .map_err(coracle_lifecycle::Error::from)?
        .unwrap_or_default();
    cx.config.workspace.mounts.iter().map(|it| of_mount(cx, it, &baseline)).collect()
}

fn of_mount(cx: &Context, mount: &HostMount, baseline: &Baseline) -> Result<PromptMount, Failure> {
    let prepared = workspace_mounts::copied_from(mount, cx)?;
    let estimate = match mount.mode {
        // The container writes there, so the host does not count the files.
        MountMode::Bind => None,
        MountMode::Copy => Some(match copied(baseline, &prepared) {
            Some(copied) => copied,
            None => estimate(&prepared)?,
        }),
    };
    let inner = prepared.host.real().strip_prefix(prepared.root.real()).unwrap_or(Path::new(""));
    let named =
        if inner.as_os_str().is_empty() { prepared.host.real().file_name().map(Path::new) } else { Some(inner) };
    Ok(PromptMount {
        name: named.unwrap_or(Path::new("")).display().to_string(),
        at: prepared.at,
        estimate,
        include: mount.include_glob.clone(),
        exclude: mount.exclude_glob.clone(),
    })
}

fn copied(baseline: &Baseline, mount: &coracle_workspace::HostMount) -> Option<ImportEstimate> {
    let index = baseline.mounts.iter().position(|it| it.host == mount.host.real() && it.at == mount.at)?;
    let files = baseline.files.keys().filter_map(|it| baseline.mount_of(it)).filter(|it| it.0 == index);
    Some(ImportEstimate::from_files(files.map(|it| it.1), baseline.mounts[index].bytes))
}

fn reason(failure: &Failure) -> String {
    failure.message.trim_end_matches('.').to_owned()
}

/// Turns a hint, which is a fragment, into a sentence.
fn sentence(hint: &str) -> String {
    let mut chars = hint.chars();
    let first = chars.next().map(|it| it.to_uppercase().to_string()).unwrap_or_default();
    let end = if hint.is_empty() || hint.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}
