//! Users of commands, in images of every kind.

use serde_json::{Value, json};

use super::debian::{debian, derived};
use super::{Tool, with_rootful_engine, with_rootful_tool};
use crate::engines::{IMAGE, is_root, ran};

/// Uid, gid, home, name and directory of a command.
const WHO: &str = "id -u; id -g; echo $HOME $USER $LOGNAME; pwd";

/// The output of [`WHO`] on one line. The home has to be usable.
async fn who(tool: &Tool<'_>, more: Value) -> String {
    let name = tool.created(more).await;
    let seen = tool.prints(&name, &format!("touch ~/x && {WHO}")).await;
    tool.destroy(&name).await;
    seen.replace('\n', " ")
}

#[tokio::test]
async fn s20_an_images_uid_keeps_its_name_and_home_and_gets_the_users_git_settings() {
    with_rootful_engine("", async |tool| {
        tool.at_home(".gitconfig", "[user]\n\tname = Ann O'Neil\n");
        let script = "echo 'ubuntu:x:1000:1000:Ubuntu:/home/ubuntu:/bin/bash' >>/etc/passwd; \
            echo 'ubuntu:x:1000:' >>/etc/group; mkdir /home/ubuntu; chown 1000:1000 /home/ubuntu";
        let image = derived(tool, debian(tool.case).await, script, &[]).await;
        if !is_root() {
            return tool.case.left_out(); // the directory below cannot be given away
        }
        // As for a user with that uid whose directory is bound.
        std::os::unix::fs::chown(tool.work(), Some(1000), Some(1000)).unwrap();
        let answer = tool.made(json!({ "image": image, "mount_cwd": true, "user": "1000:1000" })).await;
        assert_eq!((&answer["home"], &answer["user"]), (&"/home/ubuntu".into(), &"1000:1000".into()), "{answer:#}");
        let name = answer["container"].as_str().unwrap();
        assert_eq!(
            tool.prints(name, "git config user.name; echo $HOME; pwd; touch made").await,
            "Ann O'Neil\n/home/ubuntu\n/workspace"
        );
        ran("s20", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s22_users_are_numbers_or_names_on_the_fake_too() {
    with_rootful_tool("", async |tool| {
        for (user, seen) in [("1000", "1000:1000"), ("1000:1000", "1000:1000"), ("root", "0:0"), ("agent", "1000:1000")]
        {
            let answer = tool.made(json!({ "user": user })).await;
            assert_eq!(answer["user"], seen, "{user}");
            assert_eq!(tool.exec(answer["container"].as_str().unwrap(), "true").await["exit_code"], 0);
            tool.destroy(answer["container"].as_str().unwrap()).await;
        }
        for user in ["x:y", "1000:", ":1000", "-1", "4294967296", "a b", ""] {
            assert_eq!(tool.create(json!({ "user": user })).await["code"], "invalid_input", "{user}");
        }
        assert_eq!(tool.create(json!({ "user": "nobody-knows-them" })).await["code"], "user_not_found");
        tool.nothing_left().await;
        ran("s22", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn an_image_without_accounts_shells_or_tools_gets_what_a_command_needs() {
    with_rootful_engine("", async |tool| {
        let bare = derived(tool, IMAGE, "rm -rf /etc/passwd /etc/group /home /root", &[]).await;
        assert_eq!(who(tool, json!({ "image": bare, "user": "1000" })).await, "1000 1000 /home/agent agent agent /workspace");
        // Podman itself writes an entry for root, with the home `/`.
        let root = who(tool, json!({ "image": bare })).await;
        assert!(["0 0 /root root root /workspace", "0 0 / root root /workspace"].contains(&root.as_str()), "{root}");
        let others = "echo 'node:x:1000:1000::/srv/node:/bin/bash' >/etc/passwd; echo 'agent:x:5:5::/home/agent:/bin/sh' >>/etc/passwd";
        let image = derived(tool, IMAGE, others, &[]).await;
        assert_eq!(who(tool, json!({ "image": image, "user": "1000" })).await, "1000 1000 /srv/node node node /workspace");
        // The name and the home `agent` are taken.
        assert_eq!(who(tool, json!({ "image": image, "user": "7" })).await, "7 7 /home/agent2 agent2 agent2 /workspace");
        // The last line of a file that ends without a newline is a line too.
        let torn = derived(tool, IMAGE, "rm -r /home; printf 'root:x:0:0::/root:/bin/sh\\nme:x:42:43::/home/me:/bin/sh' >/etc/passwd", &[]).await;
        assert_eq!(who(tool, json!({ "image": torn, "user": "me" })).await, "42 43 /home/me me me /workspace");
        assert_eq!(who(tool, json!({ "image": torn, "user": "44" })).await, "44 44 /home/agent agent agent /workspace");
        // Without a shell, commands that need none run.
        let shellless = derived(tool, IMAGE, "cp /bin/busybox /id; rm /bin/sh", &[]).await;
        let name = tool.created(json!({ "image": shellless, "user": "1000" })).await;
        assert_eq!(tool.exec(&name, json!(["/id", "-u"])).await["stdout"], "1000\n");
        assert_eq!(tool.exec(&name, "true").await["code"], "no_shell");
    })
    .await;
}

#[tokio::test]
async fn entrypoint_user_workdir_and_volumes_of_an_image_change_nothing() {
    with_rootful_engine("", async |tool| {
        if !tool.case.engine().has_program() {
            return tool.case.left_out(); // such an image is committed by an engine's program
        }
        let changes = [
            "ENTRYPOINT [\"/bin/false\"]",
            "CMD [\"--help\"]",
            "USER 4242:4242",
            "WORKDIR /nowhere/here",
            "VOLUME /home/agent",
            "VOLUME /workspace",
            "ENV HOME=/evil",
        ];
        let image = derived(tool, IMAGE, "busybox chown 1000:1000 /home/agent", &changes).await;
        assert_eq!(
            who(tool, json!({ "image": image, "user": "1000" })).await,
            "1000 1000 /home/agent agent agent /workspace"
        );
        assert_eq!(who(tool, json!({ "image": image })).await, "0 0 /root root root /workspace");
        let name = tool.created(json!({ "image": image, "user": "1000", "workdir": "/work/deep" })).await;
        assert_eq!(tool.prints(&name, "touch x; pwd; stat -c %u .").await, "/work/deep\n1000");
    })
    .await;
}

#[tokio::test]
async fn a_home_that_is_a_trap_is_not_fallen_into() {
    with_rootful_engine("", async |tool| {
        let script = "echo 'me:x:1000:1000::/home/me:/bin/sh' >/etc/passwd; mkdir /precious; ln -s /precious /home/me";
        let image = derived(tool, IMAGE, script, &[]).await;
        let answer = tool.create(json!({ "image": image, "user": "1000" })).await;
        // Whether the home is used or refused, the owner of the link's target does not change.
        if let Some(name) = answer["container"].as_str().filter(|_| answer["success"] == true) {
            assert_eq!(tool.prints(name, "stat -c %u:%a /precious").await, "0:755");
        }
        for entry in [
            "me:x:1000:1000::relative:/bin/sh",
            "me:x:1000:1000::/:/bin/sh",
            "me:x:1000:1000:::",
            "me:x:1000:1000::/../etc:/bin/sh",
        ] {
            let image = derived(tool, IMAGE, &format!("echo '{entry}' >/etc/passwd"), &[]).await;
            let answer = tool.create(json!({ "image": image, "user": "1000" })).await;
            if let Some(name) = answer["container"].as_str().filter(|_| answer["success"] == true) {
                assert_eq!(tool.prints(name, "stat -c %u / /etc").await, "0\n0", "{entry}");
                assert!(tool.prints(name, "echo $HOME").await.starts_with('/'), "{entry}");
            }
        }
    })
    .await;
}
