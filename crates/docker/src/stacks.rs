//! Stacks by Compose, and what comes with services.

use std::time::Duration;

use async_trait::async_trait;
use coracle_engine_program::LOG_LINES;
use coracle_host::process::{ProgramOutput, Stdin};
use coracle_runtime::stack_model::StackModel;
use coracle_runtime::{ContainerRuntime, Health, StackUp, Stacks};
use coracle_types::{ContainerId, Error, Excerpt, Input, ProjectName, Result};

use super::compose::{file, named};
use super::transient::{is_interface_gone, retry};
use super::{CliRuntime, Dialect, args, deadline};

/// Time that Compose may take beyond the timeout that it is given.
const COMPOSE_OVERHEAD: Duration = Duration::from_secs(30);

const DOWN_WITHIN: Duration = Duration::from_secs(120);

/// The engine aborts an image's check that exceeds its own limit.
const CHECK_WITHIN: Duration = Duration::from_secs(120);

#[async_trait]
impl Stacks for CliRuntime {
    async fn compose_version(&self) -> Option<String> {
        self.installed_compose().await
    }

    async fn check_stack(&self, _: &StackModel) -> Result<()> {
        self.compose().await.map(drop)
    }

    async fn stack_up(&self, stack: &StackUp) -> Result<Option<Excerpt>> {
        // Compose continues where it failed.
        retry(|| self.compose_up(stack), |it| matches!(it, Ok(Some(message)) if is_interface_gone(message))).await
    }

    async fn stack_down(&self, project: &ProjectName) -> Result<()> {
        let words = named(project).words(["down", "--remove-orphans", "--volumes", "--timeout=10"]);
        let ended = self.compose_acts("compose down", words, Stdin::Empty, DOWN_WITHIN).await?;
        if ended.ok() { Ok(()) } else { Err(refused("compose down", &ended)) }
    }

    async fn logs(&self, id: &ContainerId, max_bytes: usize) -> Result<Vec<u8>> {
        let words = args::logs(id, LOG_LINES);
        let ended = self.client.query("logs", words, deadline::READ).await?;
        // The engine's program separates the streams; a failing service explains itself on one of them.
        let all = [ended.stdout.bytes(), ended.stderr.bytes()].concat();
        Ok(all[all.len().saturating_sub(max_bytes)..].to_vec())
    }

    async fn check_health(&self, id: &ContainerId) -> Result<Option<Health>> {
        let container = self.inspect(&id.into()).await?;
        if container.health.is_none() || !container.running() || self.dialect != Dialect::Podman {
            return Ok(container.health);
        }
        // Its exit status is the result of this one check. `inspect` has the state that follows from all checks.
        self.client.run("healthcheck run", args::on("healthcheck run", [id.as_str()]), CHECK_WITHIN).await?;
        Ok(self.inspect(&id.into()).await?.health)
    }
}

impl CliRuntime {
    /// Compose's message if it failed.
    async fn compose_up(&self, stack: &StackUp) -> Result<Option<Excerpt>> {
        let building = if stack.build { "--build" } else { "--no-build" };
        let words = file(&stack.project, &stack.dir)
            .words(["up", "--detach", "--wait", "--pull=never", "--quiet-pull", building])
            .flag("wait-timeout", stack.patience.as_secs().max(1));
        let model = args::stack_file(self.dialect, &stack.model).to_string().into_bytes();
        let within = stack.patience + COMPOSE_OVERHEAD;
        let ended = self.compose_acts("compose up", words, Stdin::Input(Input::Bytes(model)), within).await?;
        Ok((!ended.ok()).then(|| Excerpt::from_bytes(&ended.stderr.bytes())))
    }
}

fn refused(verb: &'static str, ended: &ProgramOutput) -> Error {
    Error::Engine { verb, exit: ended.exit, excerpt: Excerpt::from_bytes(&ended.stderr.bytes()) }
}
