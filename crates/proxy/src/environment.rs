//! The environment variables that lead programs in the container to the proxy.

/// The base URL of models, for programs in the container.
pub const LLM_URL: &str = "http://127.0.0.1:3129/proxy/v1";

/// The variables with which programs in the container reach names through the proxy.
pub const PROXY_ENV: [(&str, &str); 6] = [
    ("HTTP_PROXY", "http://127.0.0.1:3128"),
    ("HTTPS_PROXY", "http://127.0.0.1:3128"),
    ("http_proxy", "http://127.0.0.1:3128"),
    ("https_proxy", "http://127.0.0.1:3128"),
    ("NO_PROXY", "127.0.0.1,localhost"),
    ("no_proxy", "127.0.0.1,localhost"),
];

/// The variables for git and models, which have their own routes.
pub const ROUTES_ENV: [(&str, &str); 2] =
    [("GIT_CONFIG_SYSTEM", "/.coracle/run/gitconfig"), ("LLM_PROXY_URL", LLM_URL)];
