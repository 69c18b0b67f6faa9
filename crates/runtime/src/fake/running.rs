//! Containers that run already, for tests of what happens in them: made under a policy that allows everything.
//!
//! Every function panics if the fake cannot create what it asks for.

use coracle_client::{Link, LinkSettings};
use coracle_types::{ContainerId, ContainerName, ImageRef};

use super::{FakeRuntime, LOCAL_IMAGE};
use crate::images::ImageStore as _;
use crate::{ContainerRuntime, CreateSpec, GuestDelivery, NetworkAttachment, Placed, Policy, admit};

impl FakeRuntime {
    /// A container of [`LOCAL_IMAGE`] without a guest.
    pub async fn runs(&self, name: &str) -> ContainerId {
        self.runs_as(self.placed(name, None).await).await
    }

    /// A container of [`LOCAL_IMAGE`] with a guest that answers.
    pub async fn runs_guest(&self, name: &str) -> (ContainerId, Link) {
        let guest = GuestDelivery::Bound { program: "/".into(), link: "/".into() };
        let id = self.runs_as(self.placed(name, Some(guest)).await).await;
        let link = self.link(&id, None, LinkSettings::default()).await.expect("a guest that was placed is linked to");
        (id, link)
    }

    async fn runs_as(&self, placed: Placed) -> ContainerId {
        let id = self.create(&placed).await.expect("the name is free");
        self.start(&id).await.expect("what was just made can be started");
        id
    }

    /// The request of [`runs`](Self::runs).
    pub(super) async fn placed(&self, name: &str, guest: Option<GuestDelivery>) -> Placed {
        let image = ImageRef::parse(LOCAL_IMAGE).expect("the local image has a name");
        let found = self.find_images(std::slice::from_ref(&image)).await.expect("images are looked for");
        let found = found.first().expect("the local image is there").id.clone();
        let spec = CreateSpec::new(ContainerName::parse(name).expect("the name is one"), image);
        let admitted = admit(spec, &Policy::everything()).expect("everything is allowed");
        admitted.with_guest(guest).with_image(found, NetworkAttachment::EngineDefault)
    }
}
