//! The configuration of an image, as registries serve it.

use coracle_archive::oci::Configuration;
use coracle_runtime::Image;
use coracle_types::ImageId;

/// A registry's description of one image of one architecture.
#[derive(Clone, Debug)]
pub(crate) struct RegistryImage {
    /// Digest of the manifest.
    pub(crate) digest: String,
    /// Digest of the list that the manifest is in, if it is in one.
    pub(crate) list_digest: Option<String>,
    /// The configuration, as JSON.
    pub(crate) config: String,
    /// Bytes of its layers.
    pub(crate) size_bytes: u64,
}

impl RegistryImage {
    /// Returns the image with the name that led to it. Its id is the digest of its manifest, by which nodes pull it.
    pub(crate) fn image(self, name: String) -> Result<Image, String> {
        let configuration = Configuration::parse(self.config.as_bytes()).map_err(|err| err.to_string())?;
        let id = ImageId::parse(&self.digest).map_err(|err| err.to_string())?;
        let (tags, digest) = (vec![name], Some(self.list_digest.unwrap_or(self.digest)));
        Ok(Image { tags, digest, size_bytes: self.size_bytes, ..Image::from_configuration(id, configuration) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_identified_by_the_digest_of_its_manifest() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let config = r#"{"architecture":"arm64","config":{"Env":["PATH=/bin"],"Labels":null,"User":"app","Cmd":["sh"]},"rootfs":{"diff_ids":[]}}"#;
        let seen = RegistryImage { digest: digest.clone(), list_digest: None, config: config.into(), size_bytes: 7 };
        let image = seen.image("registry:5000/x:1".into()).unwrap();
        assert_eq!((image.id.as_str(), image.arch.as_str(), image.config.user.as_str()), (&*digest, "arm64", "app"));
        assert_eq!((image.env, image.digest), (vec!["PATH=/bin".to_owned()], Some(digest)));
    }
}
