//! Provides the containers of a session, from configuration and host.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_client::Link;
use coracle_context::context::Context;
use coracle_context::failure::{Failure, slot_failure};
use coracle_lifecycle::{ContainerTemplate, Reason, SessionContainers, SlotError, SlotKey, SlotRole};
use coracle_types::{ByteSize, ContainerId, failure};
use coracle_workspace::{ContainerProvider, ManagedOptions, ManagedSessions, RoleSettings, Warning};
use tokio::sync::OnceCell;

use super::backoff::PullBackoff;
use super::container_spec::{Plan, template};
use super::maintenance::{EndLimits, recover};
use super::session_egress::SessionEgress;

/// The provider of one call.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    cx: Context,
    slots: SessionContainers,
    shared: Arc<SharedState>,
}

/// State that all calls of a session share.
#[derive(Debug, Default)]
struct SharedState {
    backoff: PullBackoff,
    workspace_proxy: OnceCell<Option<SessionEgress>>,
    run_proxy: OnceCell<Option<SessionEgress>>,
}

impl Provider {
    pub(super) fn new(cx: &Context) -> Result<Self, Failure> {
        Ok(Self { cx: cx.clone(), slots: cx.session_containers()?, shared: Arc::default() })
    }

    pub(super) fn for_call(&self, cx: &Context) -> Self {
        Self { cx: cx.clone(), ..self.clone() }
    }

    /// The session's containers, as configured.
    pub(super) fn sessions(&self) -> Result<ManagedSessions, Failure> {
        let cx = &self.cx;
        let settings = |role| {
            let plan = Plan::for_user(role, cx)?;
            let code = if role == SlotRole::Run {
                Some(coracle_context::strict::code_dir(cx, &cx.call.session)?)
            } else {
                None
            };
            Ok::<_, Failure>(RoleSettings {
                spec_hash: plan.hash(),
                user: plan.user,
                rootless: plan.strict,
                memory: plan.limits.memory.unwrap_or(ByteSize(0)),
                has_proxy: plan.proxied.is_some(),
                code,
            })
        };
        let options = ManagedOptions {
            session: cx.call.session.clone(),
            slots: self.slots.clone(),
            store: cx.store()?,
            engines: cx.shared_engines(),
            observer: cx.slot_observer().into(),
            owner: cx.owner(),
            workspace: settings(SlotRole::Workspace)?,
            run: settings(SlotRole::Run)?,
        };
        Ok(ManagedSessions::new(options, Arc::new(self.clone())))
    }

    /// Returns the proxy of a role, which this process runs from its first use on.
    async fn proxy(&self, role: SlotRole) -> Result<Option<&SessionEgress>, Failure> {
        let SharedState { workspace_proxy, run_proxy, .. } = &*self.shared;
        let cell = if role == SlotRole::Run { run_proxy } else { workspace_proxy };
        Ok(cell.get_or_try_init(|| SessionEgress::for_role(&self.cx, role)).await?.as_ref())
    }

    async fn new_template(&self, role: SlotRole) -> Result<(ContainerTemplate, Vec<Warning>), Failure> {
        let proxy = self.proxy(role).await?;
        self.shared.backoff.check()?;
        let what = if role == SlotRole::Run { "snippets" } else { "the session" };
        self.cx.call.progress.message(format!("making the container for {what}")).await;
        Box::pin(recover(&self.cx, &self.slots, EndLimits::OF_A_CLIENT)).await;
        let sockets = proxy.map(SessionEgress::sockets).transpose()?.flatten();
        let template = Box::pin(template(&self.cx, role, sockets.as_deref().map(Path::new))).await;
        self.shared.backoff.note(&template);
        template
    }

    /// Converts a failure to the error type of `coracle-workspace`.
    fn to_library(&self, failure: Failure) -> failure::Failure {
        failure.for_reader(&self.cx.reader()).into_inner()
    }
}

#[async_trait]
impl ContainerProvider for Provider {
    async fn template(&self, role: SlotRole) -> Result<(ContainerTemplate, Vec<Warning>), failure::Failure> {
        self.new_template(role).await.map_err(|it| self.to_library(it))
    }

    async fn attach_proxy(&self, role: SlotRole, link: &Link, id: &ContainerId) -> Result<(), failure::Failure> {
        let to_library = |it| self.to_library(it);
        let Some(proxy) = self.proxy(role).await.map_err(to_library)? else { return Ok(()) };
        proxy.listen().map_err(to_library)?;
        let Err(failure) = Box::pin(proxy.prove(link, id)).await else { return Ok(()) };
        let slot = SlotKey::new(&self.cx.call.session, role);
        if let Err(err) = self.slots.discard(self.cx.engines(), slot, Reason::NotReady, Some(id)).await {
            tracing::warn!(%err, "cannot remove a container that is not ready");
        }
        Err(to_library(failure))
    }

    fn failure(&self, err: SlotError) -> failure::Failure {
        self.to_library(slot_failure(err))
    }
}
