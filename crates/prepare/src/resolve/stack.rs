//! The stack of a call: which file, which project, and the base of its relative paths.

use std::io::Read;
use std::path::PathBuf;

use coracle_compose::{ComposeFile, ReadError, read};
use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_host::fs::HostPath;
use coracle_runtime::PolicyRefusal;
use coracle_types::{ContainerName, ProjectName, random_hex};

use super::host_path;
use crate::requests::Create;

/// Maximum size of a Compose file.
const MAX_BYTES: u64 = 1 << 20;

/// Number of random digits that make a project's name unique.
const SUFFIX: usize = 7;

/// The stack beside a container.
#[derive(Clone, Debug)]
pub enum StackRequest {
    No,
    /// A running project of Coracle that the container joins.
    Join(ProjectName),
    /// One that is created with the container.
    Make(Box<NewStack>),
}

/// A stack whose file was read.
#[derive(Clone, Debug)]
pub struct NewStack {
    pub project: ProjectName,
    pub reading: ComposeFile,
    /// The base of relative paths: the file's directory, or an empty one.
    pub dir: PathBuf,
    /// The path of the file, if it was given.
    pub file: Option<PathBuf>,
    /// Every published port gets a free one.
    pub namespace: bool,
}

impl StackRequest {
    pub fn project(&self) -> Option<&ProjectName> {
        match self {
            Self::No => None,
            Self::Join(project) => Some(project),
            Self::Make(stack) => Some(&stack.project),
        }
    }
}

/// Reads the requested stack. Creates nothing.
pub(crate) fn resolve(args: &Create, name: &ContainerName, cx: &Context) -> Result<StackRequest, Failure> {
    let namespace = args.namespace.unwrap_or(false);
    let (text, dir, file) = match (&args.compose_content, &args.compose_file, &args.compose_project) {
        (Some(_), Some(_), _) => {
            let fields = ["compose_content", "compose_file"];
            return Err(Failure::conflicting(&fields, "a stack comes from a file or from the call, not both"));
        }
        (None, None, _) if namespace => {
            return Err(Failure::invalid(
                "namespace",
                "there is no stack: it needs `compose_content` or `compose_file`",
            ));
        }
        (None, None, None) => return Ok(StackRequest::No),
        (None, None, Some(project)) => {
            enabled(cx)?;
            return Ok(StackRequest::Join(project.clone()));
        }
        (Some(content), None, _) => (content.clone(), cx.state()?.empty(), None),
        (None, Some(path), _) => {
            let (text, dir, real) = of_file(path, cx)?;
            (text, dir, Some(real))
        }
    };
    enabled(cx)?;
    let reading = read(&text, &dir, &cx.policy()?).map_err(|err| from_reading(err, file.is_some()))?;
    let project = args.compose_project.clone().map_or_else(|| fresh_project(name), Ok)?;
    Ok(StackRequest::Make(Box::new(NewStack { project, reading, dir, file, namespace })))
}

/// Returns the requested network. With a stack it is that of the stack.
pub(crate) fn network(args: &Create) -> Result<Option<&str>, Failure> {
    let requested = args.network.as_deref();
    let stack = [("compose_content", args.compose_content.is_some()), ("compose_file", args.compose_file.is_some())];
    let stack = stack.into_iter().chain([("compose_project", args.compose_project.is_some())]).find(|it| it.1);
    match (stack, requested) {
        (Some((field, _)), Some(other)) if other != "bridge" => {
            Err(Failure::conflicting(&["network", field], "with a stack the container is on the stack's network"))
        }
        _ => Ok(requested),
    }
}

fn enabled(cx: &Context) -> Result<(), Failure> {
    if cx.config.compose.enabled {
        return Ok(());
    }
    let message = "stacks are not granted".to_owned();
    let problem = coracle_runtime::Problem {
        rule: "compose.enabled",
        setting: Some("compose.enabled"),
        value: "true".into(),
        message,
    };
    Err(PolicyRefusal { problems: vec![problem] }.into())
}

fn of_file(path: &str, cx: &Context) -> Result<(String, PathBuf, PathBuf), Failure> {
    let opened = HostPath::open(&host_path(path, cx)).map_err(coracle_lifecycle::Error::from)?;
    if let Some(problem) = cx.policy()?.host_path_problem("compose", opened.real()) {
        return Err(PolicyRefusal { problems: vec![problem] }.into());
    }
    if opened.is_dir() {
        return Err(Failure::invalid("compose_file", "it is a directory").hint("name the file in it"));
    }
    let unreadable = |why: String| Failure::invalid("compose_file", why);
    let mut text = String::new();
    let file = opened.file().map_err(|err| unreadable(err.to_string()))?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|err| unreadable(err.to_string()))?;
    let dir = opened.real().parent().map(PathBuf::from).unwrap_or_default();
    Ok((text, dir, opened.real().to_owned()))
}

/// Builds a name from the container's name in Compose's grammar, and random digits.
fn fresh_project(name: &ContainerName) -> Result<ProjectName, Failure> {
    let mut plain = name.as_str().to_ascii_lowercase().replace('.', "-");
    plain.truncate(63 - "_default".len() - SUFFIX);
    ProjectName::parse(format!("{plain}-{}", random_hex::<3>())).map_err(Failure::internal)
}

fn from_reading(err: ReadError, of_file: bool) -> Failure {
    let failure = Failure::from(err);
    let field = if of_file { "compose_file" } else { "compose_content" };
    failure.detail("field", field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_named_after_its_container() {
        let named = |name: &str| fresh_project(&ContainerName::parse(name).unwrap()).unwrap().to_string();
        assert!(named("Web_1.x").starts_with("web_1-x-"));
        assert!(named(&"w".repeat(63)).len() + "_default".len() <= 63);
    }
}
