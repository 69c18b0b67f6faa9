//! Which files of a repository a build may see.

/// Names of directories and files that hold what opens something.
const KEPT_OUT: &[&str] = &[
    ".git",
    ".gitconfig",
    ".git-credentials",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".gcloud",
    ".kube",
    ".docker",
    ".dockercfg",
    ".htpasswd",
    ".terraformrc",
    "credentials.json",
    "service-account.json",
    "secrets.yml",
    "secrets.yaml",
    "secrets.json",
];

/// What names of keys begin with.
const PREFIXES: &[&str] = &[".env", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"];

/// What they end with.
const SUFFIXES: &[&str] =
    &[".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".ovpn", ".tfstate", ".tfvars", ".env"];

/// Whether a file, by its path in the repository, stays out of every image: `.git`, `.env*`, and what is named like a key.
#[must_use]
pub fn is_kept_out(path: &str) -> bool {
    path.split('/').any(|name| {
        let name = name.to_ascii_lowercase();
        KEPT_OUT.contains(&name.as_str())
            || PREFIXES.iter().any(|it| name.starts_with(it))
            || SUFFIXES.iter().any(|it| name.ends_with(it))
    })
}

/// A path of the repository, from one that is relative to a directory in it. `None` for one that leads out of it. The
/// repository itself is the empty text.
#[must_use]
pub fn relative(dir: &str, path: &str) -> Option<String> {
    if path.starts_with('/') || path.contains('\0') {
        return None;
    }
    let mut parts: Vec<&str> = dir.split('/').filter(|it| !it.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x64_what_is_named_like_a_key_stays_out_of_every_image() {
        let out = [
            ".git",
            ".git/config",
            "sub/.git/HEAD",
            ".env",
            ".env.local",
            "api/.ENV",
            ".envrc",
            "deploy/id_rsa",
            "id_ed25519.pub",
            "tls/server.key",
            "tls/CERT.PEM",
            ".npmrc",
            "home/.ssh/config",
            ".aws/credentials",
            "prod.tfstate",
            "prod.env",
        ];
        for path in out {
            assert!(is_kept_out(path), "{path}");
        }
        for path in
            ["Dockerfile", "src/env.rs", ".gitignore", ".github/ci.yml", "keys.md", "environment", "a/.dockerignore"]
        {
            assert!(!is_kept_out(path), "{path}");
        }
    }

    #[test]
    fn a_path_leads_nowhere_out_of_the_repository() {
        let cases = [
            ((".devcontainer", ".."), Some("")),
            ((".devcontainer", "Dockerfile"), Some(".devcontainer/Dockerfile")),
            (("", "./a//b/"), Some("a/b")),
            ((".devcontainer/a", "../../x"), Some("x")),
            ((".devcontainer", "../.."), None),
            (("", "/etc"), None),
            (("a", "b\0"), None),
        ];
        for ((dir, path), told) in cases {
            assert_eq!(relative(dir, path).as_deref(), told, "{dir} {path}");
        }
    }
}
