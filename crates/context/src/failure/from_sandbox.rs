//! Hints for failures of sandboxes and worktrees.

use super::Code;

/// Returns the hint for a failure of a sandbox.
pub(super) fn hint(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::HostUnresolved => "check the name and this host's network and DNS, then try again",
        Code::SandboxUnavailable => "wait half a minute; `coracle preflight` says whether the engine works",
        Code::SandboxNotReady => "try again; if it stays, the step in `details.step` says where to look",
        Code::SandboxLost => "try again: the next call starts the sandbox again, with its files",
        Code::EgressNotEnforced => "use another version of the engine: no sandbox runs where its network is open",
        Code::TeardownIncomplete => "try again: it goes on where it stopped",
        Code::WorktreeMissing => "`coracle worktree list` shows the worktrees",
        Code::BaseNotFound => "name a branch of origin, a tag or a commit",
        Code::BranchConflict => "use another id, or remove the worktree that has the branch",
        Code::GitMissing => "use an image with git inside, or leave `sandbox.profiles.NAME.image` out",
        Code::FetchFailed => "see whether the repository can be reached, and whether you may read it",
        Code::ApplyConflict => "nothing was changed; commit or take back the files that are named, then try again",
        Code::NoCommits => "commit in the worktree first",
        Code::PushRefused => "only the workflow's own branch can be pushed, forwards",
        Code::PushRejected => "the remote refused the push; its reason is in the message",
        Code::SaveFailed => "nothing was removed; make room, or remove with `discard` if the work may be lost",
        Code::ProxyRequired | Code::ProxyUnreachable => {
            "keep coracle running on the host: model requests go through it"
        }
        Code::LlmUnauthorized => {
            "check the key of the profile's provider: `key_env` or `key_file` of `sandbox.profiles.NAME.provider`"
        }
        Code::LlmFailed => "try again later; the provider's answer is in the message",
        Code::ContextOverflow => "give a smaller task",
        Code::MaxTurns | Code::WallLimit | Code::BudgetExhausted => {
            "look at what was done with `coracle worktree diff`, then go on with a new run, or raise the limit"
        }
        Code::WorkerDied => "look at what was done with `coracle worktree diff`, then start the run again",
        Code::SchemaUnsupported | Code::SchemaInvalid => "give a JSON Schema, draft 2020-12",
        _ => return None,
    })
}
