//! What is installed and written in a container after it starts, resolved before it is created.

use std::collections::BTreeMap;

use coracle_context::arg_types::Passthrough;
use coracle_context::config::Config;
use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_context::requested::Requested;
use coracle_host::branch::BranchName;
use coracle_host::git_url::{GitRules, GitUrl, InvalidGitUrl};
use coracle_provision::env::EnvRequest;
use coracle_runtime::{PolicyRefusal, Problem};
use coracle_types::{Command, ContainerPath};

use super::clone_source::CloneSource;
use super::inside_path::PathInside;
use super::profile::ResolvedProfile;
use crate::requests::{Content, Create, RepoArg};

/// All provisioning of a container.
#[derive(Debug)]
pub struct Provisioning {
    pub env: EnvRequest,
    /// The settings would pass host variables, but the policy does not allow it.
    pub env_stays: bool,
    pub git: Requested,
    pub gh: Requested,
    pub ssh: Requested,
    pub certs: Requested,
    pub dotfiles: Requested<Dotfiles>,
    /// Paths below the home directory.
    pub inline: BTreeMap<String, Content>,
    pub repos: Vec<Repo>,
    pub files: Vec<(PathInside, Content)>,
    /// Write Amplifier's settings.
    pub amplifier: bool,
    pub setup: Vec<Command>,
    /// A bundle that is added to Amplifier before the setup commands.
    pub bundle: Option<String>,
}

/// Dotfiles in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dotfiles {
    pub url: GitUrl,
    pub branch: Option<BranchName>,
    pub script: Option<String>,
    pub target: PathInside,
}

/// A repository to clone.
#[derive(Clone, Debug)]
pub struct Repo {
    pub from: CloneSource,
    /// Without a path, it is cloned to a directory of its name.
    pub path: Option<PathInside>,
    pub branch: Option<BranchName>,
    pub install: Option<Command>,
    pub as_root: bool,
}

/// Resolves all of it.
pub(super) fn decide(args: &Create, chosen: &ResolvedProfile, cx: &Context) -> Result<Provisioning, Failure> {
    let config = &*cx.config;
    let (auto, profile) = (&config.auto_passthrough, &chosen.profile);
    let git = forward(
        "forward_git",
        args.forward_git,
        profile.forward_git.unwrap_or(auto.forward_git),
        Grant { allowed: config.security.allow_git, rule: "identity.git", setting: "security.allow_git" },
    )?;
    // Of the user's identity, only name and address enter a container of `strict`, whatever single settings grant.
    let strict = config.is_strict();
    let granted = |allowed, rule, setting| match strict {
        true => Grant { allowed: false, rule, setting: "policy" },
        false => Grant { allowed, rule, setting },
    };
    let gh = forward(
        "forward_gh",
        args.forward_gh,
        profile.forward_gh.unwrap_or(auto.forward_gh),
        granted(config.security.allow_gh, "identity.gh", "security.allow_gh"),
    )?;
    let ssh = forward(
        "forward_ssh",
        args.forward_ssh,
        profile.forward_ssh.unwrap_or(auto.forward_ssh),
        granted(config.security.allow_ssh, "identity.ssh", "security.allow_ssh"),
    )?;
    let rules = GitRules { allow_private: config.images.git_allow_private, ssh: ssh == Requested::Yes(()) };
    let skip = args.dotfiles_skip.unwrap_or(profile.dotfiles == Some(false));
    let certs = match auto.ca_certificates {
        true => Requested::Yes(()),
        false => Requested::No("switched off by `auto_passthrough.ca_certificates`".into()),
    };
    Ok(Provisioning {
        env_stays: strict && passthrough(args, chosen, config) != EnvRequest::None,
        env: if strict { EnvRequest::None } else { passthrough(args, chosen, config) },
        git,
        gh,
        ssh,
        certs,
        dotfiles: match dotfiles(args, skip, config, rules)? {
            Requested::Yes(_) if strict => {
                Requested::No("under `strict` there is no network to clone them over".into())
            }
            dotfiles => dotfiles,
        },
        inline: inline(args, skip)?,
        repos: repos(args, rules, cx)?,
        files: files(args)?,
        amplifier: chosen.is("amplifier"),
        setup: setup(args)?,
        bundle: bundle(args, chosen)?,
    })
}

/// Whether the configuration grants something, with its rule and setting.
struct Grant {
    allowed: bool,
    rule: &'static str,
    setting: &'static str,
}

/// The caller's request overrides the default, and may not exceed what the configuration grants.
fn forward(
    field: &'static str,
    requested: Option<bool>,
    default: bool,
    Grant { allowed, rule, setting }: Grant,
) -> Result<Requested, Failure> {
    match (requested, default, allowed) {
        (Some(true), _, false) => {
            let message = format!("`{field}` is not allowed: `{setting}` is false");
            Err(PolicyRefusal {
                problems: vec![Problem { rule, setting: Some(setting), value: "true".into(), message }],
            }
            .into())
        }
        (Some(false), ..) => Ok(Requested::No("not requested".into())),
        (None, false, _) => Ok(Requested::No("not requested".into())),
        (None, true, false) => Ok(Requested::No(format!("not allowed by `{setting}`"))),
        (_, _, true) => Ok(Requested::Yes(())),
    }
}

fn passthrough(args: &Create, chosen: &ResolvedProfile, config: &Config) -> EnvRequest {
    let requested = args.env_passthrough.as_ref().or(chosen.profile.env_passthrough.as_ref());
    match requested.unwrap_or(&config.auto_passthrough.mode) {
        Passthrough::Auto => EnvRequest::Auto,
        Passthrough::All => EnvRequest::All,
        Passthrough::None => EnvRequest::None,
        Passthrough::Names(names) => EnvRequest::Names(names.clone()),
    }
}

fn dotfiles(args: &Create, skip: bool, config: &Config, rules: GitRules) -> Result<Requested<Dotfiles>, Failure> {
    let of_config = &config.dotfiles;
    let Some(url) = args.dotfiles_repo.as_ref().or(of_config.repo.as_ref()) else {
        return Ok(Requested::No("none are configured".into()));
    };
    let url = git_url("dotfiles_repo", url, rules)?;
    let pick = |given: &Option<String>, configured: &Option<String>| given.clone().or_else(|| configured.clone());
    let script = pick(&args.dotfiles_script, &of_config.script);
    if script.as_ref().is_some_and(|it| PathInside::parse("dotfiles_script", it).is_err() || it.starts_with(['/', '~']))
    {
        return Err(Failure::invalid("dotfiles_script", "a path relative to the repository"));
    }
    let target = pick(&args.dotfiles_target, &of_config.target).unwrap_or_else(|| "~/.dotfiles".into());
    let branch = pick(&args.dotfiles_branch, &of_config.branch).map(|it| branch("dotfiles_branch", &it)).transpose()?;
    let target = PathInside::parse("dotfiles_target", &target)?;
    if skip {
        return Ok(Requested::No("`dotfiles_skip`, or the purpose, leaves them out".into()));
    }
    Ok(Requested::Yes(Dotfiles { url, branch, script, target }))
}

fn inline(args: &Create, skip: bool) -> Result<BTreeMap<String, Content>, Failure> {
    let files = args.dotfiles_inline.clone().unwrap_or_default();
    if files.len() > MAX_FILES {
        return Err(Failure::invalid("dotfiles_inline", "at most 200 files"));
    }
    for path in files.keys() {
        let rest = path.strip_prefix("~/").unwrap_or(path);
        if rest.starts_with(['/', '~']) {
            let message = format!("`{}`: a path below the home", path.escape_debug());
            return Err(Failure::invalid("dotfiles_inline", message));
        }
        PathInside::parse("dotfiles_inline", rest)?;
    }
    Ok(if skip { BTreeMap::new() } else { files })
}

const MAX_FILES: usize = 200;

fn files(args: &Create) -> Result<Vec<(PathInside, Content)>, Failure> {
    let files = args.config_files.as_ref();
    if files.is_some_and(|it| it.len() > MAX_FILES) {
        return Err(Failure::invalid("config_files", "at most 200 files"));
    }
    let read = |(path, content): (&String, &Content)| {
        let inside = PathInside::parse("config_files", path)?;
        let reserved = |at: &ContainerPath| ["/proc", "/sys", "/dev", "/.coracle"].iter().any(|it| at.is_beneath(it));
        if matches!(&inside, PathInside::Absolute(at) if reserved(at)) {
            let message = format!("`{}` lies in a system directory", path.escape_debug());
            return Err(Failure::invalid("config_files", message));
        }
        Ok((inside, content.clone()))
    };
    files.into_iter().flatten().map(read).collect()
}

fn repos(args: &Create, rules: GitRules, cx: &Context) -> Result<Vec<Repo>, Failure> {
    let requested = args.repos.as_deref().unwrap_or_default();
    if requested.len() > 20 {
        return Err(Failure::invalid("repos", "at most 20 repositories"));
    }
    let read = |it: &RepoArg| {
        Ok(Repo {
            from: CloneSource::read(&it.url, rules, cx)?,
            path: it.path.as_deref().map(|path| PathInside::parse("repos", path)).transpose()?,
            branch: it.branch.as_deref().map(|it| branch("repos", it)).transpose()?,
            install: it.install.clone().map(|it| it.0),
            as_root: it.as_root.unwrap_or(false),
        })
    };
    requested.iter().map(read).collect()
}

fn setup(args: &Create) -> Result<Vec<Command>, Failure> {
    let commands = args.setup_commands.as_deref().unwrap_or_default();
    if commands.len() > 100 {
        return Err(Failure::invalid("setup_commands", "at most 100 commands"));
    }
    Ok(commands.iter().map(|it| it.0.clone()).collect())
}

fn bundle(args: &Create, chosen: &ResolvedProfile) -> Result<Option<String>, Failure> {
    for (field, given) in [("amplifier_version", &args.amplifier_version), ("amplifier_bundle", &args.amplifier_bundle)]
    {
        if given.is_some() && !chosen.is("amplifier") {
            return Err(Failure::conflicting(&["purpose", field], "it goes with `purpose: amplifier` only"));
        }
    }
    let is_unsupported =
        |it: &&String| it.is_empty() || it.starts_with('-') || it.len() > 2048 || it.chars().any(char::is_control);
    if args.amplifier_bundle.as_ref().filter(is_unsupported).is_some() {
        return Err(Failure::invalid("amplifier_bundle", "a URI of at most 2048 bytes without control characters"));
    }
    Ok(args.amplifier_bundle.clone())
}

/// Parses a URL for git. A refusal names the policy's rule.
pub(super) fn git_url(field: &str, text: &str, rules: GitRules) -> Result<GitUrl, Failure> {
    GitUrl::parse(text, rules).map_err(|err| refused_url(field, err))
}

fn refused_url(field: &str, err: InvalidGitUrl) -> Failure {
    let Some(rule) = err.rule() else { return Failure::invalid(field, err.to_string()) };
    let problem =
        Problem { rule, setting: Some("images.git_allow_private"), value: field.to_owned(), message: err.to_string() };
    PolicyRefusal { problems: vec![problem] }.into()
}

fn branch(field: &str, text: &str) -> Result<BranchName, Failure> {
    BranchName::parse(text).map_err(|err| Failure::invalid(field, err.to_string()))
}
