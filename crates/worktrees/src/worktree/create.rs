//! Creates the worktree of a workflow.

use std::collections::BTreeMap;

use coracle_host::branch::BranchName;
use coracle_host::lock::Lock;
use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{SandboxWarning, WorkflowId};
use serde::Serialize;

use super::dirty::UncommittedChanges;
use super::git_in_container::{Git, Workdir};
use super::mirror::Mirror;
use super::{WorktreeManager, parse};
use crate::near_names::near;
use crate::repository_source::{RepositorySource, branch_of, checked_repository};
use crate::shared_dir::ORPHANS;
use crate::workflow_records::{Records, Workflow, compose_project};
use crate::worktree::source_changes::SourceChanges;

/// The options of a new worktree.
#[derive(Clone, Debug)]
pub struct CreateRequest {
    /// The workflow.
    pub id: WorkflowId,
    /// A branch of the remote, a tag inside or a commit; default: the remote's HEAD.
    pub base: Option<String>,
    /// Its branch; default: the prefix and the id.
    pub branch: Option<String>,
    /// How uncommitted changes of a source directory are handled. Ignored with a base.
    pub uncommitted: SourceChanges,
}

impl CreateRequest {
    /// Creates options with the remote's HEAD and the default branch.
    #[must_use]
    pub fn new(id: WorkflowId) -> Self {
        Self { id, base: None, branch: None, uncommitted: SourceChanges::Reported }
    }
}

/// The worktree of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worktree {
    /// The workflow.
    pub id: WorkflowId,
    /// Its directory in the container.
    pub path: String,
    /// Its directory on the host; none if the files are only in the container.
    pub host_path: Option<String>,
    /// Its branch.
    pub branch: String,
    /// Its base, as requested.
    pub base: String,
    /// The commit of the base.
    pub base_commit: String,
    /// Whether it was created now.
    pub created: bool,
    /// Whether its branch existed before.
    pub resumed: bool,
    /// First and last of its 20 ports.
    pub ports: (u16, u16),
    /// The Compose project for its services.
    pub compose_project: String,
    /// `orphan_moved`, `uncommitted_not_included`, and others.
    pub warnings: Vec<SandboxWarning>,
}

impl Worktree {
    /// The environment of its commands.
    #[must_use]
    pub fn env(&self) -> BTreeMap<String, String> {
        let (base, project) = (self.ports.0.to_string(), self.compose_project.clone());
        let id = self.id.to_string();
        let pairs = [("CORACLE_WORKFLOW", id), ("CORACLE_PORT_BASE", base.clone()), ("PORT", base)];
        // Bytecode beside the sources would be committed unless `.gitignore` lists it.
        let pairs =
            pairs.into_iter().chain([("COMPOSE_PROJECT_NAME", project), ("PYTHONDONTWRITEBYTECODE", "1".into())]);
        pairs.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// A workflow to record.
#[derive(Clone, Copy)]
struct NewWorkflow<'a> {
    request: &'a CreateRequest,
    branch: &'a BranchName,
    mirror: &'a Mirror,
    uncommitted: Option<&'a UncommittedChanges>,
}

/// The existing parts of a workflow inside.
struct ExistingWorktree<'a> {
    /// In the repository.
    git: Git<'a>,
    /// Its directory exists.
    dir: bool,
    /// The repository lists it.
    registered: bool,
    /// Its branch, and the worktree in which it is checked out.
    branch: Option<String>,
}

impl WorktreeManager {
    /// Creates a worktree on its own branch, or returns the existing one. The repository was set up before.
    ///
    /// # Errors
    /// `invalid_input`, `invalid_branch`, `base_not_found`, `branch_conflict`, `limit_reached`, `repo_corrupt`.
    pub async fn create(&self, at: &Workdir, request: &CreateRequest) -> Result<Worktree> {
        let branch = branch_of(&self.settings.branch_prefix, &request.id, request.branch.as_deref())?;
        if request.uncommitted == SourceChanges::Included && request.base.is_some() {
            let message = "Uncommitted changes are based on the commit that is checked out.";
            return Err(Failure::new(Code::InvalidInput, message).hint("leave out `base` or `include_uncommitted`"));
        }
        let records = self.records(at)?;
        let _lock = records.lock(&format!("workflow-{}", request.id)).await?;
        let source = self.source_of(&records)?;
        let known = records.workflow(&request.id)?;
        if let Some(known) = known.as_ref().filter(|it| it.branch != branch.as_str()) {
            let message = format!("`{}` is on `{}`.", request.id, known.branch);
            return Err(Failure::new(Code::BranchConflict, message));
        }
        let state = match &source {
            RepositorySource::Dir(dir) if known.is_none() => {
                self.changes(dir, &self.mirror_dir(&source), request.uncommitted).await?
            }
            _ => None,
        };
        // Git fails to list worktrees while one is being created or removed.
        let listing = records.lock("worktrees").await?;
        let (found, mirror) =
            tokio::join!(self.find(at, &request.id, &branch), self.read_mirror(self.mirror_dir(&source), vec![]));
        let (found, mirror) = (found?, mirror?);
        let workflow = match known {
            Some(known) => known,
            None => {
                let (branch, mirror, uncommitted) = (&branch, &mirror, state.as_ref());
                self.begin(at, &records, NewWorkflow { request, branch, mirror, uncommitted }).await?
            }
        };
        let made = self.fill_place(at, &records, &workflow, &found, listing).await;
        match made {
            Ok((created, mut warnings)) => {
                let reported = state.filter(|_| request.uncommitted == SourceChanges::Reported);
                warnings.extend(reported.map(|it| it.warning()));
                Ok(worktree_report(at, workflow, created, found.branch.is_some(), warnings))
            }
            Err(err) => {
                // A workflow without files and branch inside needs no ports.
                if !found.dir && !found.registered && found.branch.is_none() {
                    let _ = records.forget(&request.id);
                }
                Err(err)
            }
        }
    }

    /// Checks whether a source may be used, before anything is created for it.
    ///
    /// # Errors
    /// `invalid_url`, `policy_denied`.
    pub fn expect_source(&self, source: &str) -> Result<()> {
        match self.source(source)? {
            RepositorySource::Url(..) => Ok(()),
            RepositorySource::Dir(dir) => checked_repository(&dir, &self.settings.allow_roots).map(drop),
        }
    }

    pub(super) fn source_of(&self, records: &Records) -> Result<RepositorySource> {
        let repository = records.repository()?.ok_or_else(|| {
            Failure::new(Code::InvalidInput, "This sandbox has no repository yet.").hint("set one up first")
        })?;
        self.source(&repository.url)
    }

    pub(super) fn source(&self, text: &str) -> Result<RepositorySource> {
        RepositorySource::parse(text, self.settings.allow_private, &self.settings.allow_roots)
    }

    /// Finds all parts at once, since each request is a round trip.
    async fn find<'a>(&self, at: &'a Workdir, id: &WorkflowId, branch: &BranchName) -> Result<ExistingWorktree<'a>> {
        let repo = at.repo();
        let name = format!("refs/heads/{branch}");
        let words = ["for-each-ref", "--format=%(refname)%00%(worktreepath)", &name];
        let (tree, admin) = (format!("worktrees/{id}"), format!("repo.git/worktrees/{id}"));
        let (output, dir, registered, git) =
            tokio::join!(repo.run(&words), at.stat(&tree), at.is_dir(&admin), at.repo().without_filters());
        let output = output?;
        if !output.ok() {
            let message = format!("The repository inside cannot be read: {}", output.failure());
            return Err(Failure::new(Code::RepoCorrupt, message).hint("set the repository up again"));
        }
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = output.lines().find_map(|it| it.strip_prefix(&name)?.strip_prefix('\0'));
        let elsewhere = line.filter(|it| !it.is_empty() && !it.ends_with(&format!("/{tree}")));
        if let Some(elsewhere) = elsewhere {
            let message = format!("`{branch}` is checked out in `{}`.", elsewhere.escape_debug());
            return Err(Failure::new(Code::BranchConflict, message));
        }
        Ok(ExistingWorktree {
            git: git?,
            dir: dir?.is_some(),
            registered: registered?,
            branch: line.map(str::to_owned),
        })
    }

    /// Resolves the base, and records the workflow with its own namespace.
    async fn begin(&self, at: &Workdir, records: &Records, new: NewWorkflow<'_>) -> Result<Workflow> {
        let NewWorkflow { request, branch, mirror, uncommitted } = new;
        let (base, base_commit) = match uncommitted.filter(|_| request.uncommitted == SourceChanges::Included) {
            Some(state) => self.uncommitted_base(at, mirror, state).await?,
            None => self.base(at, request.base.as_deref(), mirror).await?,
        };
        records
            .remember(|k| Workflow {
                id: request.id.clone(),
                branch: branch.to_string(),
                base,
                base_commit,
                k,
                compose_project: compose_project(&at.key, &request.id),
                ready: false,
                later: serde_json::Map::new(),
            })
            .await
    }

    /// Creates a commit of the uncommitted files, and sends it with objects that the repository there lacks. It is
    /// stored nowhere else.
    async fn uncommitted_base(
        &self,
        at: &Workdir,
        mirror: &Mirror,
        state: &UncommittedChanges,
    ) -> Result<(String, String)> {
        let (commit, dir) = self.commit_of(state).await?;
        let has: String = mirror.branches.values().map(|id| format!("^{id}\n")).collect();
        self.send_pack(at, "repo.git", dir, format!("{commit}\n{has}")).await?;
        Ok((mirror.head.clone().unwrap_or_else(|| "HEAD".to_owned()), commit))
    }

    async fn base(&self, at: &Workdir, given: Option<&str>, mirror: &Mirror) -> Result<(String, String)> {
        let name = given.or(mirror.head.as_deref()).unwrap_or("main");
        // The branch as fetched by the host, which code inside cannot change.
        if let Some(id) = mirror.branches.get(name) {
            return Ok((name.to_owned(), id.clone()));
        }
        let plain = BranchName::parse(name).is_ok() && !name.starts_with("refs/");
        if plain && given.is_some() {
            let repo = at.repo();
            let (tag, commit) = (format!("refs/tags/{name}"), parse::hexadecimal(name));
            for text in [Some(tag.as_str()), commit].into_iter().flatten() {
                if let Some(id) = repo.find_commit(text).await? {
                    return Ok((name.to_owned(), id));
                }
            }
        }
        if mirror.branches.is_empty() {
            let failure = Failure::new(Code::BaseNotFound, "The repository has no commit yet.");
            return Err(failure.hint("commit something there first"));
        }
        let near = near(name, mirror.branches.keys());
        let message = format!(
            "There is no branch, tag or commit `{}`.",
            name.chars().take(200).collect::<String>().escape_debug()
        );
        Err(Failure::new(Code::BaseNotFound, message).detail("near", near))
    }

    async fn fill_place(
        &self,
        at: &Workdir,
        records: &Records,
        workflow: &Workflow,
        found: &ExistingWorktree<'_>,
        listing: Lock,
    ) -> Result<(bool, Vec<SandboxWarning>)> {
        let mut warnings = Vec::new();
        let there = found.dir && found.registered;
        if there && workflow.ready {
            return Ok((false, warnings));
        }
        if found.dir && !found.registered {
            warnings.push(self.move_orphan(at, &workflow.id).await?);
        }
        if !there {
            let path = format!("worktrees/{}", workflow.id);
            // Twice, for stale entries that are locked, as Coracle's are.
            let force: &[&str] = if found.registered { &["--force", "--force"] } else { &[] };
            let begins: &[&str] = match &found.branch {
                Some(_) => &["--lock", "--", &path, &workflow.branch],
                None => &["--no-track", "-b", &workflow.branch, "--lock", "--", &path, &workflow.base_commit],
            };
            let words = [&["worktree", "add", "--quiet", "--no-checkout"], force, begins].concat();
            found.git.printed(&words).await?;
        }
        drop(listing);
        // Git would do the same here in one process, while all other calls wait.
        let mut tree = at.tree(&workflow.id);
        tree.env.clone_from(&found.git.env);
        let fills = ["reset", "--hard", "--quiet", "--no-recurse-submodules"];
        let (filled, sealed) = tokio::join!(tree.printed(&fills), self.seal(at, &workflow.id));
        filled?;
        sealed?;
        records.update(&Workflow { ready: true, ..workflow.clone() })?;
        Ok((true, warnings))
    }

    /// Makes the link from the worktree relative, so that it is valid wherever the root is mounted, and locks the
    /// worktree, since the link back is absolute.
    async fn seal(&self, at: &Workdir, id: &WorkflowId) -> Result<()> {
        let (dot_git, locked) = (format!("worktrees/{id}/.git"), format!("repo.git/worktrees/{id}/locked"));
        let link = link_of(id);
        let (linked, locked) = tokio::join!(at.write(&dot_git, &link), at.write(&locked, "coracle\n"));
        linked.and(locked)
    }

    /// Renames a directory that the repository does not list.
    async fn move_orphan(&self, at: &Workdir, id: &WorkflowId) -> Result<SandboxWarning> {
        let to = format!("{ORPHANS}/{id}-{}", jiff::Timestamp::now().as_millisecond());
        let made = at.link.make_dir(at.file(ORPHANS), 0o755, true).await;
        made.map_err(super::git_in_container::lost)?;
        let from = format!("worktrees/{id}");
        at.run(&["mv", "--", &from, &to]).await?.good()?;
        let message =
            format!("moved a directory that belongs to no worktree out of the way: it is now `{}/{to}`", at.root);
        Ok(SandboxWarning::new("orphan_moved", message))
    }
}

/// The content of a worktree's `.git`.
pub(super) fn link_of(id: &WorkflowId) -> String {
    format!("gitdir: ../../repo.git/worktrees/{id}\n")
}

fn worktree_report(
    at: &Workdir,
    it: Workflow,
    created: bool,
    had_branch: bool,
    warnings: Vec<SandboxWarning>,
) -> Worktree {
    let ports = it.ports();
    Worktree {
        path: at.tree_path(&it.id).to_string(),
        host_path: at.shared.as_ref().map(|dir| dir.join("worktrees").join(it.id.as_str()).display().to_string()),
        id: it.id,
        branch: it.branch,
        base: it.base,
        base_commit: it.base_commit,
        created,
        resumed: created && had_branch,
        ports: (ports.start, ports.end - 1),
        compose_project: it.compose_project,
        warnings,
    }
}
