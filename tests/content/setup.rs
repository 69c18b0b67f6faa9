//! Setup commands, by a guest and by the engine's own exec.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coracle_provision::{Setup, SetupCommand, Status, setup};
use coracle_types::{Command, ContainerPath};
use tokio_util::sync::CancellationToken;

use super::AGENT;
use crate::engines::{in_every_way, own_uid};

fn command(script: &str, as_root: bool) -> SetupCommand {
    SetupCommand { command: Command::Shell(script.into()), as_root, hint: false, alternative: None }
}

#[tokio::test]
async fn commands_run_as_root_or_as_the_user_with_their_own_variables() {
    in_every_way(async |running| {
        let env = |who: &str| BTreeMap::from([("WHO".to_owned(), who.to_owned())]);
        let (user_env, root_env, workdir) = (env("agent"), env("root"), ContainerPath::root());
        let show = "echo $WHO $(id -u)";
        let hint = SetupCommand {
            hint: true,
            alternative: Some(Command::Shell(show.into())),
            ..command("echo no >&2; exit 7", false)
        };
        let commands = [command(show, true), command(show, false), hint, command("sleep 60", true)];
        let it = Setup {
            commands: &commands,
            workdir: &workdir,
            user: AGENT,
            user_env: &user_env,
            root_env: &root_env,
            timeout: Duration::from_secs(6),
            deadline: Instant::now() + Duration::from_secs(60),
            grace: Duration::from_millis(500),
            cancel: CancellationToken::new(),
            live: None,
        };
        let step = setup(&running.inside, &it).await;
        assert_eq!((step.status, step.detail.as_str()), (Status::Partial, "3/4 commands succeeded"), "{step:#?}");
        let (root, agent) = if running.case.is_real() { (0, 1000) } else { (own_uid(), own_uid()) };
        let printed: Vec<_> = step.items.iter().map(|it| it.about["output"].as_str().unwrap()).collect();
        let (root, agent) = (format!("root {root}\n"), format!("agent {agent}\n"));
        assert_eq!(printed, [&root, &agent, &agent, ""]);
        assert_eq!(step.items[2].about["instead_of"]["error"], "exit 7: no");
        assert_eq!(step.items[3].error.as_deref(), Some("ended after 6 s"));
    })
    .await;
}
