//! What programs in the container find in their environment.

/// Where models are, for programs inside.
pub const LLM_URL: &str = "http://127.0.0.1:3129/proxy/v1";

/// What programs inside find in their environment, to reach names by the proxy.
pub const PROXY_ENV: [(&str, &str); 6] = [
    ("HTTP_PROXY", "http://127.0.0.1:3128"),
    ("HTTPS_PROXY", "http://127.0.0.1:3128"),
    ("http_proxy", "http://127.0.0.1:3128"),
    ("https_proxy", "http://127.0.0.1:3128"),
    ("NO_PROXY", "127.0.0.1,localhost"),
    ("no_proxy", "127.0.0.1,localhost"),
];

/// The same for git and models, which have routes of their own.
pub const ROUTES_ENV: [(&str, &str); 2] =
    [("GIT_CONFIG_SYSTEM", "/.coracle/run/gitconfig"), ("LLM_PROXY_URL", LLM_URL)];
