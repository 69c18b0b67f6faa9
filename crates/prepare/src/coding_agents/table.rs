//! Packages, arguments and variables of each agent, as of its release of 2026.

use coracle_context::config::ProviderKind;

use super::{CodingAgent, ProviderAccess};

/// Access to Anthropic for agents that use the usual variables.
const fn anthropic(env: &'static [(&'static str, &'static str)]) -> ProviderAccess {
    ProviderAccess { kind: ProviderKind::Anthropic, env, model_prefix: "" }
}

/// Access to `OpenAI` for agents that use the usual variables.
const fn openai(env: &'static [(&'static str, &'static str)]) -> ProviderAccess {
    ProviderAccess { kind: ProviderKind::Openai, env, model_prefix: "" }
}

/// Opencode reads its configuration from a JSON document.
const OPENCODE_ANTHROPIC: &str = r#"{"autoupdate":false,"share":"disabled","permission":"allow","enabled_providers":["anthropic"],"small_model":"anthropic/{model}","provider":{"anthropic":{"models":{"{model}":{}},"options":{"baseURL":"{proxy}/v1","apiKey":"{key}"}}}}"#;

/// The document for providers with `OpenAI`'s API.
const OPENCODE_OPENAI: &str = r#"{"autoupdate":false,"share":"disabled","permission":"allow","enabled_providers":["openai"],"small_model":"openai/{model}","provider":{"openai":{"models":{"{model}":{}},"options":{"baseURL":"{proxy}/v1","apiKey":"{key}"}}}}"#;

/// Codex takes its configuration as options. Its own sandbox needs namespaces, which a container cannot create.
const CODEX: &[&str] = &[
    "--dangerously-bypass-approvals-and-sandbox",
    "-c",
    "model_provider=coracle",
    "-c",
    r#"model_providers.coracle={name="coracle",base_url="{proxy}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}"#,
];

pub static ALL: &[CodingAgent] = &[
    CodingAgent {
        name: "claude",
        packages: &["@anthropic-ai/claude-code"],
        below_root: None,
        program: "claude",
        always: &[],
        headless: &["--permission-mode", "bypassPermissions", "--print"],
        interactive: &[],
        task: &[],
        model: &[],
        needs_model: false,
        env: &[("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"), ("DISABLE_AUTOUPDATER", "1")],
        providers: &[anthropic(&[
            ("ANTHROPIC_BASE_URL", "{proxy}"),
            ("ANTHROPIC_AUTH_TOKEN", "{key}"),
            ("ANTHROPIC_MODEL", "{model}"),
        ])],
        first_file: Some((".claude.json", r#"{"hasCompletedOnboarding":true}"#)),
    },
    CodingAgent {
        name: "codex",
        packages: &["@openai/codex"],
        below_root: None,
        program: "codex",
        always: CODEX,
        headless: &["exec", "--skip-git-repo-check"],
        interactive: &[],
        task: &[],
        model: &["--model"],
        needs_model: false,
        env: &[],
        providers: &[openai(&[("OPENAI_API_KEY", "{key}")])],
        first_file: None,
    },
    CodingAgent {
        name: "gemini",
        // It needs a newer Node.js than Debian's. Its install scripts would compile modules that it also ships as
        // binaries.
        packages: &["--ignore-scripts", "node-linux-ARCH@22", "@google/gemini-cli"],
        below_root: None,
        program: "gemini",
        always: &["--skip-trust"],
        headless: &["--yolo"],
        interactive: &[],
        task: &["--prompt"],
        model: &["--model"],
        needs_model: false,
        env: &[],
        providers: &[ProviderAccess {
            kind: ProviderKind::Google,
            env: &[("GOOGLE_GEMINI_BASE_URL", "{proxy}"), ("GEMINI_API_KEY", "{key}")],
            model_prefix: "",
        }],
        first_file: Some((
            ".gemini/settings.json",
            r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false}}"#,
        )),
    },
    CodingAgent {
        name: "goose",
        packages: &["@aaif/goose-binary-linux-ARCH"],
        below_root: Some("@aaif/goose-binary-linux-ARCH/bin/goose"),
        program: "goose",
        always: &["--with-builtin", "developer"],
        headless: &["run"],
        interactive: &["session"],
        task: &["--text"],
        model: &[],
        needs_model: true,
        env: &[("GOOSE_DISABLE_KEYRING", "1"), ("GOOSE_MODE", "auto"), ("GOOSE_MODEL", "{model}")],
        providers: &[
            anthropic(&[
                ("GOOSE_PROVIDER", "anthropic"),
                ("ANTHROPIC_HOST", "{proxy}"),
                ("ANTHROPIC_API_KEY", "{key}"),
            ]),
            openai(&[("GOOSE_PROVIDER", "openai"), ("OPENAI_HOST", "{proxy}"), ("OPENAI_API_KEY", "{key}")]),
        ],
        first_file: None,
    },
    CodingAgent {
        name: "opencode",
        packages: &["opencode-ai"],
        below_root: None,
        program: "opencode",
        always: &[],
        headless: &["run"],
        interactive: &[],
        task: &[],
        model: &["--model"],
        needs_model: true,
        env: &[("OPENCODE_DISABLE_MODELS_FETCH", "1"), ("OPENCODE_DISABLE_AUTOUPDATE", "1")],
        providers: &[
            ProviderAccess {
                kind: ProviderKind::Anthropic,
                env: &[("OPENCODE_CONFIG_CONTENT", OPENCODE_ANTHROPIC)],
                model_prefix: "anthropic/",
            },
            ProviderAccess {
                kind: ProviderKind::Openai,
                env: &[("OPENCODE_CONFIG_CONTENT", OPENCODE_OPENAI)],
                model_prefix: "openai/",
            },
        ],
        first_file: None,
    },
];
