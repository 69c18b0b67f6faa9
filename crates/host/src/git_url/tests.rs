//! Tables of valid and invalid URLs.

use proptest::prelude::*;

use super::InvalidGitUrl::{self as E, *};
use super::{GitRules, GitUrl};

const STANDARD: GitRules = GitRules { allow_private: false, ssh: false };
const ALL: GitRules = GitRules { allow_private: true, ssh: true };

fn why(text: &str, rules: GitRules) -> Option<E> {
    GitUrl::parse(text, rules).err()
}

/// Accepted by all rules.
const FINE: &[(&str, &str, u16, &str)] = &[
    ("https://github.com/o/r", "github.com", 443, "r"),
    ("https://github.com/o/r.git", "github.com", 443, "r"),
    ("https://github.com/o/r.git/", "github.com", 443, "r"),
    ("https://GitHub.com/O/R", "GitHub.com", 443, "R"),
    ("https://git.example.com:8443/a/b/c.git", "git.example.com", 8443, "c"),
    ("https://xn--bcher-kva.example/x", "xn--bcher-kva.example", 443, "x"),
    ("https://8.8.8.8/x", "8.8.8.8", 443, "x"),
    ("https://[2606:4700::1111]/x", "2606:4700::1111", 443, "x"),
    ("https://[2606:4700::1111]:444/x", "2606:4700::1111", 444, "x"),
    ("https://[64:ff9b::8.8.8.8]/x", "64:ff9b::8.8.8.8", 443, "x"),
    ("https://e.com/~me/my%20repo", "e.com", 443, "my%20repo"),
    ("https://e.com/a/b+c,d;e=f&g!h$i'(j)*", "e.com", 443, "b+c,d;e=f&g!h$i'(j)*"),
    ("https://e.com/...", "e.com", 443, "..."),
    ("https://3com.example/x", "3com.example", 443, "x"),
    ("https://1.example/x", "1.example", 443, "x"),
];

/// Refused by all rules.
const NEVER: &[(&str, E)] = &[
    ("", Length),
    ("-", Scheme),
    ("--upload-pack=x", Scheme),
    ("--upload-pack=touch /tmp/x", Scheme),
    ("-ohttps://e.com/x", Scheme),
    ("ext::sh", Scheme),
    ("ext::sh -c id", Character),
    ("ext::sh@e.com:x", Scheme),
    ("fd::17/x", Scheme),
    ("file:///x", Scheme),
    ("file://e.com/x", Scheme),
    ("git://e.com/x", Scheme),
    ("ftp://e.com/x", Scheme),
    ("ftps://e.com/x", Scheme),
    ("git+ssh://e.com/x", Scheme),
    ("ssh+git://e.com/x", Scheme),
    ("HTTPS://e.com/x", Scheme),
    ("Https://e.com/x", Scheme),
    ("https::https://e.com/x", Scheme),
    ("ext::https://e.com/x", Scheme),
    ("https:e.com/x", Scheme),
    ("https:/e.com/x", Scheme),
    ("://e.com/x", Scheme),
    ("//e.com/x", Scheme),
    ("/etc", Scheme),
    ("./x", Scheme),
    ("../x", Scheme),
    ("x", Scheme),
    ("e.com/x", Scheme),
    ("e.com:x", Scheme),
    ("C:/x", Scheme),
    ("javascript:alert(1)", Scheme),
    (" https://e.com/x", Character),
    ("https://e.com/x ", Character),
    ("https://e.com/a b", Character),
    ("https://e.com/x\n", Character),
    ("https://e.com/x\0", Character),
    ("https://e.com/x\t", Character),
    ("https://e.com/x\u{7f}", Character),
    ("https://e.com/x\u{202e}", Character),
    ("https://e.com\\@8.8.8.8/x", Character),
    ("https://e.com/\\..\\x", Character),
    ("https://b\u{fc}cher.example/x", Character),
    ("https://e.com\u{3002}evil/x", Character),
    ("https://\u{2488}27.0.0.1/x", Character),
    ("https://e.com/\"x", Character),
    ("https://e.com/`x`", Character),
    ("https://e.com/{a,b}", Character),
    ("https://e.com/a|b", Character),
    ("https://e.com/a^b", Character),
    ("https://e.com/[x]", Character),
    ("https://e.com/x%0a", Character),
    ("https://e.com/x%00", Character),
    ("https://e.com/x%7F", Character),
    ("https://e.com/x%2", Character),
    ("https://e.com/x%zz", Character),
    ("https://e.com/x%+1", Character),
    ("https://me@e.com/x", User),
    ("https://me:hunter2@e.com/x", User),
    ("https://:hunter2@e.com/x", User),
    ("https://@e.com/x", User),
    ("https://me%40x@e.com/x", User),
    ("https://a@b@e.com/x", User),
    ("https://github.com@8.8.8.8/x", User),
    ("http://me@e.com/x", User),
    ("ssh://me:hunter2@e.com/x", User),
    ("ssh://-oProxyCommand=x@e.com/x", User),
    ("ssh://@e.com/x", User),
    ("-oProxyCommand=x@e.com:x", Scheme),
    ("me!@e.com:x", User),
    ("@e.com:x", User),
    ("https:///x", Host),
    ("https://:443/x", Host),
    ("https://-e.com/x", Host),
    ("https://e-.com/x", Host),
    ("https://.e.com/x", Host),
    ("https://e..com/x", Host),
    ("https://e.com./x", Host),
    ("https://../x", Host),
    ("https://e_.com/x", Host),
    ("https://%65.com/x", Host),
    ("https://*.e.com/x", Host),
    ("https://e.com,8.8.8.8/x", Host),
    ("https://127.1/x", Host),
    ("https://127.0.1/x", Host),
    ("https://0x7f.1/x", Host),
    ("https://0x7f000001/x", Host),
    ("https://0x7f.0.0.0x1/x", Host),
    ("https://2130706433/x", Host),
    ("https://017700000001/x", Host),
    ("https://0177.0.0.1/x", Host),
    ("https://127.0.0.01/x", Host),
    ("https://127.0.0.1./x", Host),
    ("https://256.0.0.1/x", Host),
    ("https://0/x", Host),
    ("https://1.2.3.4.5/x", Host),
    ("https://[::1/x", Host),
    ("https://::1/x", Host),
    ("https://[]/x", Host),
    ("https://[127.0.0.1]/x", Host),
    ("https://[fe80::1%25eth0]/x", Host),
    ("https://[::1]x/x", Host),
    ("ssh://-oProxyCommand=x/x", Host),
    ("git@-oProxyCommand=x:x", Host),
    ("git@:x", Host),
    ("https://e.com:/x", Port),
    ("https://e.com:0/x", Port),
    ("https://e.com:65536/x", Port),
    ("https://e.com:+1/x", Port),
    ("https://e.com:http/x", Port),
    ("https://e.com:443:443/x", Port),
    ("https://e.com:0443/x", Port),
    ("https://e.com", Path),
    ("https://e.com/", Path),
    ("https://e.com//", Path),
    ("https://e.com/.git", Path),
    ("https://e.com/a/.git/", Path),
    ("https://e.com/a/..", Path),
    ("https://e.com/../x", Path),
    ("https://e.com/a/./x", Path),
    ("https://e.com/a/%2e%2E/x", Path),
    ("https://e.com/a/.%2e/x", Path),
    ("git@e.com:", Path),
    ("git@e.com:-x", Path),
    ("git@e.com::x", Path),
    ("git@e.com:../x", Path),
    ("https://e.com/x?ref=1", Query),
    ("https://e.com/x?token=hunter2", Query),
    ("https://e.com/x#main", Query),
    ("https://e.com?@8.8.8.8/x", Query),
    ("https://e.com#@8.8.8.8/x", Query),
];

/// Refused by a policy that the user can lift.
const POLICY: &[(&str, E)] = &[
    ("http://e.com/x", Http),
    ("http://8.8.8.8:8080/x", Http),
    ("http://127.0.0.1/x", Http),
    ("https://localhost/x", Private),
    ("https://LOCALHOST:8443/x", Private),
    ("https://git.localhost/x", Private),
    ("https://127.0.0.1/x", Private),
    ("https://127.255.255.254/x", Private),
    ("https://0.0.0.0/x", Private),
    ("https://10.0.0.1/x", Private),
    ("https://100.64.0.1/x", Private),
    ("https://100.100.100.200/x", Private),
    ("https://169.254.169.254/x", Private),
    ("https://172.16.0.1/x", Private),
    ("https://172.31.255.255/x", Private),
    ("https://192.168.1.1:3000/x", Private),
    ("https://168.63.129.16/x", Private),
    ("https://192.0.0.192/x", Private),
    ("https://224.0.0.1/x", Private),
    ("https://255.255.255.255/x", Private),
    ("https://[::]/x", Private),
    ("https://[::1]/x", Private),
    ("https://[0:0:0:0:0:0:0:1]/x", Private),
    ("https://[::ffff:127.0.0.1]/x", Private),
    ("https://[::ffff:169.254.169.254]/x", Private),
    ("https://[::ffff:a9fe:a9fe]/x", Private),
    ("https://[::127.0.0.1]/x", Private),
    ("https://[64:ff9b::10.0.0.1]/x", Private),
    ("https://[64:ff9b:1::8.8.8.8]/x", Private),
    ("https://[2002:7f00:1::]/x", Private),
    ("https://[2001:0:7f00:1::]/x", Private),
    ("https://[fe80::1]/x", Private),
    ("https://[fc00::1]/x", Private),
    ("https://[fd00:ec2::254]/x", Private),
    ("https://[ff02::1]/x", Private),
    ("https://[2001:db8::1]/x", Private),
];

/// Accepted if the SSH identity is forwarded.
const SSH: &[(&str, &str, u16, &str)] = &[
    ("ssh://e.com/o/r.git", "e.com", 22, "r"),
    ("ssh://git@e.com/o/r.git", "e.com", 22, "r"),
    ("ssh://git@e.com:2222/~me/r", "e.com", 2222, "r"),
    ("git@github.com:o/r.git", "github.com", 22, "r"),
    ("git@e.com:r", "e.com", 22, "r"),
    ("git@e.com:/srv/r.git", "e.com", 22, "r"),
    ("first.last-2_x@e.com:r", "e.com", 22, "r"),
];

#[test]
fn a_url_is_stored_unchanged_and_its_parts_are_parsed() {
    let ssh = GitRules { ssh: true, ..STANDARD };
    for (rules, rows) in [(STANDARD, FINE), (ALL, FINE), (ssh, SSH), (ALL, SSH)] {
        for (text, host, port, repository) in rows {
            let url = GitUrl::parse(text, rules).unwrap_or_else(|err| panic!("{text}: {err}"));
            assert_eq!((url.as_str(), url.host(), url.port(), url.repository()), (*text, *host, *port, *repository));
        }
    }
}

#[test]
fn ambiguous_text_is_refused() {
    for (text, reason) in NEVER {
        assert_eq!(why(text, ALL), Some(*reason), "{text:?}");
        assert!(why(text, STANDARD).is_some(), "{text:?}");
    }
    assert_eq!(why(&format!("https://e.com/{}", "x".repeat(2035)), STANDARD), Some(Length));
    assert_eq!(why(&format!("https://e.com/{}", "x".repeat(2034)), STANDARD), None);
    assert_eq!(why(&format!("https://{}/x", vec!["a"; 128].join(".")), STANDARD), Some(Host));
}

#[test]
fn http_and_private_hosts_can_be_allowed_by_the_user() {
    for (text, reason) in POLICY {
        assert_eq!(why(text, STANDARD), Some(*reason), "{text}");
        assert_eq!(reason.rule(), Some("repo.private"));
        assert_eq!(why(text, ALL), None, "{text}");
    }
    assert!(GitUrl::parse("http://e.com/x", ALL).unwrap().insecure());
}

#[test]
fn ssh_needs_its_identity() {
    for (text, ..) in SSH {
        assert_eq!(why(text, STANDARD), Some(Ssh), "{text}");
        assert!(GitUrl::parse(text, ALL).unwrap().is_ssh());
    }
    assert_eq!(why("ssh://git@10.0.0.1/x", GitRules { ssh: true, ..STANDARD }), Some(Private));
}

#[test]
fn no_reason_repeats_the_text() {
    let err = why("https://me:hunter2@e.com/x", ALL).unwrap();
    assert!(!err.to_string().contains("hunter2") && !format!("{err:?}").contains("hunter2"));
}

proptest! {
    #[test]
    fn what_is_taken_is_https_of_a_public_host(text in "(https?://|ssh://|git@|-)?[a-z0-9.:@\\[-]{0,12}[/:][a-zA-Z./@%_?#\\\\ -]{0,8}") {
        if let Ok(url) = GitUrl::parse(&text, STANDARD) {
            prop_assert!(text.starts_with("https://") && !text.contains(['@', ' ', '\\', '?', '#']));
            prop_assert!(url.address().is_none_or(crate::address::is_public));
            prop_assert!(text["https://".len()..].trim_start_matches('[').starts_with(url.host()));
            prop_assert!(!url.repository().is_empty() && !url.repository().contains('/'));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        let _ = GitUrl::parse(&text, ALL);
    }
}
