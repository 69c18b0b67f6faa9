//! Errors of snapshots, with hints.

use coracle_archive::oci::ImageError;
use coracle_images::snapshot::Error;

use super::{Code, Failure};

impl From<Error> for Failure {
    fn from(err: Error) -> Self {
        let message = err.to_string();
        match err {
            Error::NotFound { name, near } => Self::new(Code::NotFound, message)
                .detail("kind", "snapshot")
                .detail("name", name)
                .hint(match near.first() {
                    Some(name) => format!("did you mean `{name}`? `snapshots` shows those there are"),
                    None => "`snapshots` shows those there are".to_owned(),
                })
                .detail("near", near),
            Error::NotManaged(name) => Self::new(Code::NotManaged, message)
                .detail("kind", "snapshot")
                .detail("name", name)
                .hint("coracle uses no image as a snapshot that it has not made; `snapshots` shows those it has"),
            Error::Taken { ours, .. } => Self::new(Code::NameTaken, message)
                .detail("kind", "snapshot")
                .detail("ours", ours)
                .hint(if ours { "choose another name, or say `replace: true`" } else { "choose another name" }),
            Error::InUse { by, .. } => Self::new(Code::InUse, message)
                .detail("kind", "snapshot")
                .detail("containers", by)
                .hint("`destroy` the containers that are made of it first"),
            Error::Archive(ImageError::Cancelled) => Self::cancelled(),
            Error::Archive(_) => Self::new(Code::CopyFailed, format!("the archive cannot be used: {message}"))
                .hint("make sure that there is room on both sides, then call again"),
            Error::NoSnapshot(_) => Self::new(Code::InvalidInput, message),
            Error::Image(err) => err.into(),
            Error::Engine(err) => err.into(),
            other => Self::internal(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle_images::snapshot::Error;
    use coracle_types::SnapshotName;

    use super::Failure;

    #[test]
    fn each_error_of_snapshots_has_a_code_and_a_hint() {
        let name = |it: &str| SnapshotName::parse(it).unwrap();
        for (err, code, hint) in [
            (Error::NotFound { name: name("Base"), near: vec![name("base")] }, "not_found", "did you mean `base`?"),
            (Error::NotFound { name: name("base"), near: vec![] }, "not_found", "`snapshots`"),
            (Error::NotManaged(name("base")), "not_managed", "has not made"),
            (Error::Taken { name: name("base"), ours: true }, "name_taken", "replace"),
            (Error::Taken { name: name("base"), ours: false }, "name_taken", "another name"),
            (Error::InUse { name: name("base"), by: vec!["web".into()] }, "in_use", "destroy"),
        ] {
            let failure = Failure::from(err);
            assert_eq!(failure.code.word(), code);
            assert!(failure.hint.as_deref().unwrap_or_default().contains(hint), "{:?}", failure.hint);
        }
    }
}
