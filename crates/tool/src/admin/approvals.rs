//! `approvals`: requests that the proxies of containers refused, and the user's decisions about them.

use std::path::PathBuf;

use coracle_context::approvals::{self, ApprovalsFile, Choice, ContainerApprovals, RefusedRequest, RuleList};
use coracle_context::config::with_rule;
use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render, StyledText};
use coracle_context::failure::Failure;
use coracle_context::humanize::ago;
use coracle_context::planned_file::{self, PlannedFile};
use coracle_context::suggest;
use coracle_context::warning::Warning;
use coracle_prepare::process::Process;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::dispatch::{Effect, Operation, execute_request};

/// List requests that the proxies of containers refused and a rule would allow, and what you have allowed.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListApprovals {
    /// Only of this container.
    name: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ListApprovalsResponse {
    requests: Vec<RequestRow>,
    allowed: Vec<AllowedRow>,
}

#[derive(Debug, Serialize)]
struct RequestRow {
    container: String,
    state: RequestState,
    #[serde(flatten)]
    request: RefusedRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum RequestState {
    /// A program waits for the decision.
    Waiting,
    Pending,
    /// The next such request is allowed.
    AllowedOnce,
    Denied,
}

impl RequestState {
    fn of(request: &RefusedRequest, now: Timestamp) -> Self {
        match request.decided {
            _ if request.is_pending() && request.waits_until.is_some_and(|it| it > now) => Self::Waiting,
            _ if request.is_pending() => Self::Pending,
            Some(approvals::Decided::Denied) => Self::Denied,
            _ => Self::AllowedOnce,
        }
    }

    fn shown(self, request: &RefusedRequest, now: Timestamp) -> String {
        let left = request.waits_until.map_or(0, |it| it.duration_since(now).as_secs());
        match self {
            Self::Waiting => format!("waits {left} s"),
            Self::Pending => "refused".to_owned(),
            Self::AllowedOnce => "allowed once".to_owned(),
            Self::Denied => "denied".to_owned(),
        }
    }
}

#[derive(Debug, Serialize)]
struct AllowedRow {
    container: String,
    rule: String,
}

impl Operation for ListApprovals {
    const NAME: &'static str = "approvals list";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = ListApprovalsResponse;

    async fn run(self, cx: &Context) -> Result<ListApprovalsResponse, Failure> {
        let (now, mut all) = (Timestamp::now(), approvals::all(cx.state()?)?);
        all.retain(|(_, it)| self.name.as_ref().is_none_or(|name| *name == it.container));
        let mut response = ListApprovalsResponse { requests: Vec::new(), allowed: Vec::new() };
        for (_, ContainerApprovals { container, allowed, requests, .. }) in all {
            response.allowed.extend(allowed.into_iter().map(|rule| AllowedRow { container: container.clone(), rule }));
            response.requests.extend(requests.into_iter().map(|request| RequestRow {
                container: container.clone(),
                state: RequestState::of(&request, now),
                request,
            }));
        }
        Ok(response)
    }
}

const COLUMNS: [Column; 5] = [
    Column::fixed("ID"),
    Column::fixed("CONTAINER"),
    Column::fixed("STATE"),
    Column::fixed("LAST").or_left_out(1),
    Column::flexible("RULE THAT WOULD ALLOW IT"),
];

impl Render for ListApprovalsResponse {
    fn render(&self, now: Timestamp) -> Document {
        let row = |it: &RequestRow| {
            let RefusedRequest { id, rule, last, reason, count, .. } = &it.request;
            let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
            let reason = reason.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
            let (state, last) = (it.state.shown(&it.request, now), ago(&last.to_string(), now));
            vec![
                id.as_str().into(),
                it.container.as_str().into(),
                state.into(),
                last.into(),
                format!("{rule}{times}{reason}").into(),
            ]
        };
        let document = Document::rows(&COLUMNS, &self.requests, row, "no refused request can be allowed by a rule");
        let allowed = self.allowed.iter().map(|it| format!("{}: you allowed {}", it.container, it.rule).into());
        document.and_lines(allowed)
    }
}

/// Allow a refused request.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AllowRequest {
    /// Its id, from `approvals list`.
    id: String,
    /// `once`: the next such request; `session`: the rule, as long as the container exists; `always`: the rule, in the configuration.
    scope: ApprovalScope,
}

/// What a permission is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ApprovalScope {
    /// The next such request.
    Once,
    /// The rule, as long as the container exists.
    Session,
    /// The rule, also in the configuration.
    Always,
}

/// Deny a refused request, so that no program waits for it again.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DenyRequest {
    /// Its id, from `approvals list`.
    id: String,
}

/// Remove a rule that you have allowed for a container.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RevokeRule {
    /// The rule, as `approvals list` shows it.
    rule: String,
    /// Only of this container.
    name: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct DecisionResponse {
    container: String,
    rule: String,
    /// `once`, `session`, `always`, `denied` or `revoked`
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<WrittenRule>,
}

/// The change of the configuration.
#[derive(Debug, Serialize)]
struct WrittenRule {
    file: PathBuf,
    diff: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<PathBuf>,
}

impl Operation for AllowRequest {
    const NAME: &'static str = "approvals allow";
    const EFFECT: Effect = Effect::Mutating;
    type Response = DecisionResponse;

    async fn run(self, cx: &Context) -> Result<DecisionResponse, Failure> {
        let (file, approvals, request) = find(cx, &self.id)?;
        let (choice, decision, written) = match self.scope {
            ApprovalScope::Once => (Choice::Once, "once", None),
            ApprovalScope::Session => (Choice::Session, "session", None),
            ApprovalScope::Always => (Choice::Session, "always", Some(write_rule(cx, approvals.list, &request.rule)?)),
        };
        file.decide(&request.id, choice).await?;
        Ok(DecisionResponse { container: approvals.container, rule: request.rule, decision, written })
    }
}

impl Operation for DenyRequest {
    const NAME: &'static str = "approvals deny";
    const EFFECT: Effect = Effect::Mutating;
    type Response = DecisionResponse;

    async fn run(self, cx: &Context) -> Result<DecisionResponse, Failure> {
        let (file, approvals, request) = find(cx, &self.id)?;
        file.decide(&request.id, Choice::Deny).await?;
        let (container, rule) = (approvals.container, request.rule);
        Ok(DecisionResponse { container, rule, decision: "denied", written: None })
    }
}

impl Operation for RevokeRule {
    const NAME: &'static str = "approvals revoke";
    const EFFECT: Effect = Effect::Mutating;
    type Response = DecisionResponse;

    async fn run(self, cx: &Context) -> Result<DecisionResponse, Failure> {
        let all = approvals::all(cx.state()?)?;
        let mut containers = Vec::new();
        for (file, approvals) in &all {
            if self.name.as_ref().is_none_or(|it| *it == approvals.container) && file.revoke(&self.rule).await? {
                containers.push(approvals.container.clone());
            }
        }
        if containers.is_empty() {
            let known: Vec<_> = all.into_iter().flat_map(|(_, it)| it.allowed).collect();
            return Err(unknown("rule", &self.rule, known));
        }
        let is_configured = |(_, it): &(ApprovalsFile, ContainerApprovals)| {
            it.list.is_some_and(|list| list.table(&cx.config).allow.contains(&self.rule))
        };
        let stays =
            || Warning::new("rule_configured", "the configuration allows the same rule, also for new containers");
        cx.warn(all.iter().any(is_configured).then(stays));
        Ok(DecisionResponse { container: containers.join(", "), rule: self.rule, decision: "revoked", written: None })
    }
}

impl Render for DecisionResponse {
    fn render(&self, _: Timestamp) -> Document {
        let Self { container, rule, decision, written } = self;
        let line = match *decision {
            "once" => format!("{container}: the next request by {rule} is allowed"),
            "session" => format!("{container}: {rule} is allowed as long as the container exists"),
            "always" => format!("{container}: {rule} is allowed, also for new containers"),
            _ => format!("{container}: {rule} is {decision}"),
        };
        let mut lines: Vec<StyledText> = vec![line.into()];
        if let Some(WrittenRule { file, diff, backup }) = written {
            let before = backup.as_ref().map(|it| format!("; before it was: {}", it.display())).unwrap_or_default();
            lines.push(format!("wrote {}{before}", file.display()).into());
            lines.extend(diff.lines().map(StyledText::from));
        }
        Document::default().and_lines(lines)
    }
}

/// Records the decision that the user made in a front end of agents. Without a scope, the request is denied.
///
/// # Errors
/// Those of the operations.
pub async fn decide_request(process: &Process, id: &str, scope: Option<ApprovalScope>) -> Result<(), Failure> {
    let (id, fields) = (id.to_owned(), json!({ "id": id, "scope": scope }));
    match scope {
        Some(scope) => execute_request(process, AllowRequest { id, scope }, fields).await,
        None => execute_request(process, DenyRequest { id }, fields).await,
    }
    .map(drop)
}

fn find(cx: &Context, id: &str) -> Result<(ApprovalsFile, ContainerApprovals, RefusedRequest), Failure> {
    let mut known = Vec::new();
    for (file, approvals) in approvals::all(cx.state()?)? {
        if let Some(request) = approvals.requests.iter().find(|it| it.id == id).cloned() {
            return Ok((file, approvals, request));
        }
        known.extend(approvals.requests.into_iter().map(|it| it.id));
    }
    Err(unknown("request", id, known))
}

fn unknown(kind: &str, name: &str, known: Vec<String>) -> Failure {
    let hint = suggest::hint(name, &known, "`coracle approvals list` shows what there is");
    Failure::not_found(kind, name, &[]).detail("near", known).hint(hint)
}

/// Adds a rule to the configuration file.
fn write_rule(cx: &Context, list: Option<RuleList>, rule: &str) -> Result<WrittenRule, Failure> {
    let list = list.ok_or_else(|| Failure::internal("the file of the approvals names no list of the configuration"))?;
    let file = cx.settings.file.clone();
    let before = planned_file::read(&file)?;
    let after = with_rule(before.as_deref().unwrap_or_default(), list.setting(), rule)?;
    let planned = PlannedFile { path: &file, before: before.as_deref(), after: &after };
    let (diff, backup) = (planned.diff(), if before.as_ref() == Some(&after) { None } else { planned.write()? });
    Ok(WrittenRule { file, diff, backup })
}
