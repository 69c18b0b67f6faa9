//! The profile of a call, with the call's own packages and image.

use std::path::PathBuf;

use coracle_context::config::Config;
use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_context::suggest;
use coracle_host::git_url::{GitRules, GitUrl};
use coracle_images::Recipe;
use coracle_images::detect::DetectedProfile;
use coracle_images::packages::PackageName;
use coracle_images::profile::{self, Profile, ProfileError, Purpose};

use super::CreateFrom;
use super::host_paths::{copyable, host_path};
use super::provisioning::git_url;
use crate::requests::Create;

/// The profile of a container.
#[derive(Debug)]
pub struct ResolvedProfile {
    /// The requested purpose.
    pub requested: Option<Purpose>,
    /// The profile's name; for `try-repo`, that of the detected purpose.
    pub purpose: Option<Purpose>,
    pub profile: Profile,
    pub cache_bust: bool,
    /// The repository to try.
    pub tried: Option<TryRepo>,
    /// What was detected in it.
    pub seen: Option<RepoScan>,
}

/// A repository to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryRepo {
    Url(GitUrl),
    /// A directory on the host, which is copied.
    Directory(PathBuf),
}

/// What its top directory contains.
#[derive(Clone, Debug)]
pub struct RepoScan {
    pub detected: DetectedProfile,
    /// Why it could not be inspected; it then counts as `general`.
    pub unseen: Option<String>,
}

impl ResolvedProfile {
    /// Whether the purpose is that one.
    pub fn is(&self, purpose: &str) -> bool {
        self.purpose.as_ref().is_some_and(|it| it.as_str() == purpose)
    }
}

/// The purpose of a repository that is not inspected yet.
const UNSEEN: &str = "general";

/// Finds the profile and applies the call's own packages and image.
pub(super) fn choose(args: &Create, basis: CreateFrom, cx: &Context) -> Result<ResolvedProfile, Failure> {
    let config = &cx.config;
    let seen = match basis {
        CreateFrom::Image(seen) => seen,
        CreateFrom::Source(origin) => return of_origin(args, origin.purpose, cx),
        CreateFrom::Unknown => return of_origin(args, None, cx),
    };
    let tried = tried(args, cx)?;
    let purpose = match (&tried, &seen) {
        (None, _) => args.purpose.clone(),
        (Some(_), Some(seen)) => Some(seen.detected.purpose.clone()),
        (Some(_), None) => Some(Purpose::parse(UNSEEN)?),
    };
    let mut profile = match &purpose {
        Some(purpose) => configured(purpose, args, config)?,
        None => profile::bare(config.default_image.clone()),
    };
    if let Some(image) = &args.image {
        profile.image = image.clone();
    }
    let packages = args.packages.as_deref().unwrap_or_default();
    if packages.len() > 100 {
        return Err(Failure::invalid("packages", "at most 100 packages"));
    }
    let packages: Vec<_> = packages
        .iter()
        .map(PackageName::parse)
        .collect::<Result<_, _>>()
        .map_err(|err| Failure::invalid("packages", err.to_string()))?;
    profile.recipe = profile.recipe.with(packages);
    let cache_bust = args.cache_bust.unwrap_or(false);
    Ok(ResolvedProfile { requested: args.purpose.clone(), purpose, profile, cache_bust, tried, seen })
}

/// Returns the profile of a snapshot with only its variables, which refer to files in the snapshot. Of a requested
/// profile it uses only the settings for the user's identity: its recipe is in the files, or not wanted.
fn of_origin(args: &Create, stored: Option<Purpose>, cx: &Context) -> Result<ResolvedProfile, Failure> {
    if args.purpose.as_ref().is_some_and(Purpose::is_detected) {
        return Err(Failure::invalid(
            "purpose",
            "`try-repo` inspects a repository, and a snapshot has none to inspect",
        )
        .hint("leave `purpose` out to have that of the snapshot"));
    }
    let image = &cx.config.default_image;
    // The profile may have been removed from the configuration.
    let known = stored.as_ref().and_then(|it| configured(it, args, &cx.config).ok());
    let purpose = args.purpose.clone().or_else(|| stored.filter(|_| known.is_some()));
    let variables = known.as_ref().map(|it| it.recipe.env.clone()).unwrap_or_default();
    let mut profile = match (&args.purpose, known) {
        (Some(purpose), _) => configured(purpose, args, &cx.config)?,
        (None, Some(known)) => known,
        (None, None) => profile::bare(image.clone()),
    };
    profile.recipe = Recipe { env: variables, ..Recipe::default() };
    profile.bootstrap = Recipe::default();
    // The files of the snapshot do not contain the server of a newly requested purpose.
    profile.server = profile.server.filter(|_| args.purpose.is_none());
    let requested = args.purpose.clone();
    Ok(ResolvedProfile { requested, purpose, profile, cache_bust: false, tried: None, seen: None })
}

fn configured(purpose: &Purpose, args: &Create, config: &Config) -> Result<Profile, Failure> {
    let mut settings = config.profiles.clone();
    if let Some(own) = settings.get_mut(purpose).filter(|_| profile::is_new(purpose)) {
        own.image.get_or_insert_with(|| config.default_image.clone());
    }
    profile::resolve(purpose, &settings, args.amplifier_version.as_deref()).map_err(|err| match &err {
        ProfileError::Unknown { purpose, known } => {
            let known: Vec<_> = known.iter().map(Purpose::as_str).collect();
            let names: Vec<String> = known.iter().map(|it| (*it).to_owned()).collect();
            let near = suggest::nearest(purpose.as_str(), &names).map(|it| format!("did you mean `{it}`? "));
            let hint = format!("{}choose one of {}", near.unwrap_or_default(), known.join(", "));
            Failure::invalid("purpose", format!("there is no purpose `{purpose}`"))
                .detail("allowed", known)
                .hint_setting(&hint, &format!("[profiles.{purpose}]"))
        }
        ProfileError::Version(_) => Failure::invalid("amplifier_version", err.to_string()),
        ProfileError::NoImage(name) => Failure::config(format!("profiles.{name}.image"), None, err.to_string()),
        ProfileError::Detected(_) => Failure::internal(err),
    })
}

fn tried(args: &Create, cx: &Context) -> Result<Option<TryRepo>, Failure> {
    let trying = args.purpose.as_ref().is_some_and(Purpose::is_detected);
    match (&args.repo_url, trying) {
        (None, false) => Ok(None),
        (None, true) => {
            Err(Failure::conflicting(&["purpose", "repo_url"], "`try-repo` needs the `repo_url` that is to be tried")
                .hint("give `repo_url`: an https URL, or a directory of the host"))
        }
        (Some(_), false) => {
            Err(Failure::conflicting(&["purpose", "repo_url"], "`repo_url` goes with `purpose: try-repo` only")
                .hint("to clone a repository into another container, use `repos`"))
        }
        (Some(text), true) => source(text, cx).map(Some),
    }
}

/// A URL, or a directory that may be copied. Text that looks like a URL is never a path.
fn source(text: &str, cx: &Context) -> Result<TryRepo, Failure> {
    let rules = GitRules { allow_private: cx.config.images.git_allow_private, ssh: false };
    if text.contains(':') || text.starts_with('-') {
        return git_url("repo_url", text, rules).map(TryRepo::Url);
    }
    let opened = copyable(&host_path(text, cx), cx)?;
    if !opened.is_dir() {
        return Err(Failure::invalid("repo_url", format!("`{}` is no directory", text.escape_debug())));
    }
    Ok(TryRepo::Directory(opened.real().to_owned()))
}
