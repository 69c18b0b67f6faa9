//! The environment variables that lead programs in the container to the proxy.

/// The base URL of models, for programs in the container.
pub const LLM_URL: &str = "http://127.0.0.1:3129/proxy/v1";

/// The variables with which programs in the container reach names through the proxy.
pub const PROXY_ENV: [(&str, &str); 7] = [
    ("HTTP_PROXY", "http://127.0.0.1:3128"),
    ("HTTPS_PROXY", "http://127.0.0.1:3128"),
    ("http_proxy", "http://127.0.0.1:3128"),
    ("https_proxy", "http://127.0.0.1:3128"),
    ("NO_PROXY", "127.0.0.1,localhost"),
    ("no_proxy", "127.0.0.1,localhost"),
    // Node reads the others only with this one, since its versions 22.21 and 24.5.
    ("NODE_USE_ENV_PROXY", "1"),
];

/// The variable with options of Java, which reads no others.
pub const JAVA_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// The options with which Java finds the proxy, and trusts the certificates of a store.
#[must_use]
pub fn java_options(store: &str) -> String {
    let proxy = ["http", "https"].map(|it| format!("-D{it}.proxyHost=127.0.0.1 -D{it}.proxyPort=3128"));
    format!("{} -Djavax.net.ssl.trustStore={store}", proxy.join(" "))
}

/// The variables for git and models, which have their own routes.
pub const ROUTES_ENV: [(&str, &str); 2] =
    [("GIT_CONFIG_SYSTEM", "/.coracle/run/gitconfig"), ("LLM_PROXY_URL", LLM_URL)];
