//! Attacks through files that the user's git, editors, shells and builds would run.

use super::Act;

/// None of these stops git from working, so that the attack can take effect.
pub(super) const GIT: &[Act] = &[
    ("configuration", "hostile .git/config"),
    ("configuration of the worktree", "hostile .git/config.worktree"),
    (
        "common directory",
        "cp -R .git evil.git; rm -f evil.git/commondir; hostile evil.git/config; echo ../evil.git | put .git/commondir",
    ),
    (
        "hooks",
        "for h in pre-commit post-commit post-checkout reference-transaction pre-auto-gc post-index-change; do
           put .git/hooks/$h <evil.sh; chmod 755 .git/hooks/$h; done",
    ),
    ("hook by a rename", "mkdir h; cp evil.sh h/pre-commit; chmod 755 h/pre-commit; mv -T h .git/hooks; mv h/pre-commit .git/hooks/"),
    ("hook by a link", "ln -sf $HERE/evil.sh .git/hooks/pre-commit; ln -sfn $HERE .git/hooks"),
    ("attributes", "echo '* filter=mark diff=mark' | put .git/info/attributes; echo '* filter=mark diff=mark' >.gitattributes"),
    ("grafts", "cat .git/refs/heads/main | put .git/info/grafts; echo f | put .git/info/sparse-checkout"),
    ("modules", "mkdir -p .git/modules/sub; cp .git/HEAD .git/modules/sub; hostile .git/modules/sub/config"),
    ("where a worktree is", "echo $HERE/evil.git | put .git/worktrees/linked/commondir; echo $OUT | put .git/worktrees/linked/gitdir"),
    ("configuration of a linked worktree", "hostile .git/worktrees/linked/config.worktree"),
    ("a new worktree", "mkdir -p .git/worktrees/w; echo $HERE/evil.git | put .git/worktrees/w/commondir; cp .git/HEAD .git/worktrees/w"),
    ("other objects", "echo $OUT | put .git/objects/info/alternates; echo $OUT | put .git/objects/info/http-alternates"),
    (
        "a rebase that runs a command",
        "mkdir -p .git/rebase-merge; cd .git/rebase-merge; echo \"exec touch $MARK\" >git-rebase-todo; : >done
         echo refs/heads/main >head-name; cat ../refs/heads/main >onto; cat onto >orig-head; echo 1 >msgnum; echo 1 >end",
    ),
    ("a command to go on with", "mkdir -p .git/sequencer; echo \"exec touch $MARK\" >.git/sequencer/todo"),
    ("remotes in files", "printf 'URL: ext::sh -c touch%% %s\\n' $MARK | put .git/remotes/evil; echo \"ext::$HERE/evil.sh\" | put .git/branches/evil"),
    ("submodule by a program", "printf '[submodule \"s\"]\\n\\tpath = s\\n\\turl = ext::%s/evil.sh\\n' $HERE >.gitmodules; mkdir -p s"),
    ("nested repository", "mkdir -p nested; cp -R .git nested/.git; hostile nested/.git/config; cp evil.sh nested/.git/hooks/pre-commit"),
    ("repository without a directory of its own", "mkdir -p data/objects data/refs; cp .git/HEAD data; hostile data/config"),
    ("a file that leads to a repository", "mkdir -p leads; echo 'gitdir: ../evil.git' >leads/.git"),
    ("a directory in place of a lock", "mkdir -p .git/config.lock .git/info.lock"),
    ("changed files", "echo changed >>f; cp evil.sh git-evil; cp evil.sh git; mkdir -p bin; cp evil.sh bin/git"),
];

pub(super) const GIT_AS_ROOT: &[Act] = &[
    ("root: configuration", "umount .git/config; mount -o remount,rw .git/config; hostile .git/config"),
    ("root: configuration of the worktree", "umount .git/config.worktree; hostile .git/config.worktree"),
    ("root: hooks", "umount -l .git/hooks; put .git/hooks/pre-commit <evil.sh; chmod 755 .git/hooks/pre-commit"),
    (
        "root: git's directory away",
        "umount -l .git; mv .git root-away; mount --bind . /home; hostile /home/.git/config",
    ),
    ("root: common directory", "umount .git/commondir; echo ../evil.git | put .git/commondir"),
    (
        "root: the directory by another mount",
        "mkdir -p /tmp/w; mount --bind /workspace /tmp/w; hostile /tmp/w/.git/config",
    ),
    ("root: immutable files", "chattr +i .git/index; chattr -i .git/config; hostile .git/config"),
    ("root: by the first process", "hostile /proc/1/root/workspace/.git/config; hostile /proc/1/cwd/.git/config"),
];

pub(super) const OTHER_PROGRAMS: &[Act] = &[
    ("direnv", "put .envrc <evil.sh"),
    (
        "tasks of an editor",
        "mkdir -p .vscode; echo \"{\\\"tasks\\\": [{\\\"command\\\": \\\"$HERE/evil.sh\\\"}]}\" | put .vscode/tasks.json",
    ),
    ("settings of an editor", "echo '{\"git.path\": \"./git-evil\"}' | put .vscode/settings.json"),
    ("another editor", "echo '<x/>' | put .idea/workspace.xml; put .idea/externalTools.xml <evil.sh"),
    ("husky", "put .husky/pre-commit <evil.sh; chmod 755 .husky/pre-commit; put .husky/_/husky.sh <evil.sh"),
    ("configured hooks", "put .githooks/pre-commit <evil.sh; chmod 755 .githooks/pre-commit"),
    ("devcontainer", "echo '{\"initializeCommand\": \"./evil.sh\"}' | put .devcontainer/devcontainer.json"),
    ("agents", "echo '{\"hooks\": {}}' | put .claude/settings.json; echo '{\"mcpServers\": {}}' | put .mcp.json"),
    (
        "cargo",
        "printf '[build]\\nrustc-wrapper = \"%s/evil.sh\"\\n' $HERE | put .cargo/config.toml; put .cargo/config <evil.sh",
    ),
    ("cargo by a rename", "mkdir c; cp evil.sh c/config; mv .cargo .cargo.was; mv -T c .cargo"),
    (
        "hooks of other tools",
        "put .pre-commit-config.yaml <evil.sh; put lefthook.yml <evil.sh; put .lfsconfig <evil.sh",
    ),
    ("jj and hg", "hostile .jj/repo/config.toml; hostile .hg/hgrc; echo x | put .hg/requires"),
];
