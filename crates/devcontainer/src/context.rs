//! Selects the files of a repository that a build may read.

/// Names of directories and files that contain credentials.
const EXCLUDED: &[&str] = &[
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

/// Name prefixes of keys.
const PREFIXES: &[&str] = &[".env", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"];

/// Name suffixes of keys.
const SUFFIXES: &[&str] =
    &[".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".ovpn", ".tfstate", ".tfvars", ".env"];

/// Whether a file, by its path in the repository, is excluded from every image: `.git`, `.env*`, and names like those
/// of keys.
#[must_use]
pub fn is_excluded(path: &str) -> bool {
    path.split('/').any(|name| {
        let name = name.to_ascii_lowercase();
        EXCLUDED.contains(&name.as_str())
            || PREFIXES.iter().any(|it| name.starts_with(it))
            || SUFFIXES.iter().any(|it| name.ends_with(it))
    })
}

/// Resolves a path relative to a directory of the repository. `None` if it leads out of the repository. The repository
/// itself is the empty text.
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
    fn x64_files_named_like_keys_are_excluded_from_every_image() {
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
            assert!(is_excluded(path), "{path}");
        }
        for path in
            ["Dockerfile", "src/env.rs", ".gitignore", ".github/ci.yml", "keys.md", "environment", "a/.dockerignore"]
        {
            assert!(!is_excluded(path), "{path}");
        }
    }

    #[test]
    fn a_path_does_not_lead_out_of_the_repository() {
        let cases = [
            ((".devcontainer", ".."), Some("")),
            ((".devcontainer", "Dockerfile"), Some(".devcontainer/Dockerfile")),
            (("", "./a//b/"), Some("a/b")),
            ((".devcontainer/a", "../../x"), Some("x")),
            ((".devcontainer", "../.."), None),
            (("", "/etc"), None),
            (("a", "b\0"), None),
        ];
        for ((dir, path), expected) in cases {
            assert_eq!(relative(dir, path).as_deref(), expected, "{dir} {path}");
        }
    }
}
