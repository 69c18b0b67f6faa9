use async_trait::async_trait;
use coracle_client::{Dial, GuestStream, LinkSettings};
use coracle_types::{Error, ProfileName};
use tokio::time::sleep;

use super::*;
use crate::record::SandboxRecord;
use crate::{Code, Domain, SandboxKey};

/// A container that is gone.
#[derive(Debug)]
struct Nowhere;

#[async_trait]
impl Dial for Nowhere {
    async fn dial(&self) -> coracle_types::Result<GuestStream> {
        Err(Error::GuestFailed { reason: "no guest".into() })
    }
}

fn nowhere() -> Link {
    Link::new(Arc::new(Nowhere), LinkSettings::default())
}

/// Two processes with one sandbox.
fn two(state: &tempfile::TempDir, transport: Transport) -> [Arc<SandboxProxy>; 2] {
    let profile = ProfileName::parse("default").unwrap();
    let key = SandboxKey::new(&profile, &Domain::Named("a".into()), "local");
    let dir = SandboxDir::open(state.path(), &key).unwrap();
    let grants = || Grants::new(profile.clone(), Tokens::default());
    [(); 2].map(|()| Arc::new(SandboxProxy::new(dir.clone(), grants(), ProxyListeners::default()).by(transport)))
}

fn loopback() -> PrivateSubnet {
    PrivateSubnet { gateway: [127, 0, 0, 1].into(), subnet: "127.0.0.0/8".parse().unwrap() }
}

fn listens(proxy: &SandboxProxy) -> bool {
    proxy.state().listens.is_some()
}

#[tokio::test(start_paused = true)]
async fn a_process_without_a_link_blocks_no_other() {
    let state = tempfile::tempdir().unwrap();
    let [one, other] = two(&state, Transport::Link);
    let _used = (one.open().unwrap(), other.open().unwrap());
    assert!(!listens(&one), "no container is there yet");
    one.reached_by(&nowhere()).unwrap();
    other.reached_by(&nowhere()).unwrap();
    assert!(listens(&one) && !listens(&other));
    sleep(LINKLESS / 2).await;
    assert!(listens(&one), "it may be created again");
    sleep(LINKLESS).await;
    assert!(!listens(&one) && !listens(&other));
    other.reached_by(&nowhere()).unwrap();
    assert!(listens(&other));
}

#[tokio::test(start_paused = true)]
async fn by_sockets_the_first_one_listens_and_the_next_one_takes_its_place() {
    let state = tempfile::tempdir().unwrap();
    let [one, other] = two(&state, Transport::Unix);
    let (used, _other) = (one.open().unwrap(), other.open().unwrap());
    sleep(2 * LINKLESS).await;
    assert!(listens(&one) && !listens(&other));
    drop(used);
    sleep(2 * LOOKS).await;
    assert!(listens(&other));
}

#[tokio::test]
async fn on_a_network_the_next_proxy_listens_at_the_address_that_the_container_has() {
    let state = tempfile::tempdir().unwrap();
    let [one, other] = two(&state, Transport::Tcp);
    let (here, elsewhere) = (loopback(), PrivateSubnet { gateway: [192, 0, 2, 1].into(), ..loopback() });
    let used = one.open().unwrap();
    assert_eq!((listens(&one), one.places()), (false, None), "no container is there yet");
    one.reached_at(here).unwrap();
    let places = one.places().unwrap();
    assert!(listens(&one) && places.iter().all(|it| it.ip() == here.gateway && it.port() > 0));
    let _other = other.open().unwrap();
    other.reached_at(here).unwrap();
    assert_eq!((listens(&other), other.places()), (false, Some(places)));
    drop(used);
    other.reached_at(here).unwrap();
    assert_eq!((listens(&other), other.places()), (true, Some(places)));
    assert_eq!(other.reached_at(elsewhere).unwrap_err().code, Code::ProxyUnreachable);
    assert!(!listens(&other));
    assert_eq!(other.places(), None, "addresses of another network do not count");
    let everywhere = PrivateSubnet { gateway: [0, 0, 0, 0].into(), ..here };
    assert_eq!(other.reached_at(everywhere).unwrap_err().code, Code::ProxyUnreachable);
}

#[tokio::test]
async fn a_network_that_is_gone_is_not_listened_on_again() {
    let state = tempfile::tempdir().unwrap();
    let [one, other] = two(&state, Transport::Tcp);
    let gone = PrivateSubnet { gateway: [192, 0, 2, 1].into(), ..loopback() };
    let used = one.open().unwrap();
    one.reached_at(gone).unwrap_err();
    let again = one.open().expect("the container's creator has noted its address");
    one.reached_at(loopback()).unwrap();
    drop((used, again));
    assert_eq!(one.address(), None, "it is unused");
    let _used = one.open().unwrap();
    assert!(!listens(&one), "another process may have made another network");
    one.reached_at(loopback()).unwrap();
    one.close();
    assert_eq!((listens(&one), one.address()), (false, None));
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_on_a_removed_network_blocks_no_other() {
    let state = tempfile::tempdir().unwrap();
    let [one, other] = two(&state, Transport::Tcp);
    let _used = (one.open().unwrap(), other.open().unwrap());
    one.reached_at(loopback()).unwrap();
    other.reached_at(loopback()).unwrap();
    sleep(2 * LINKLESS).await;
    assert!(listens(&one) && !listens(&other));
    one.state().at = Some(PrivateSubnet { gateway: [192, 0, 2, 1].into(), ..loopback() });
    sleep(2 * LINKLESS).await;
    assert!(!listens(&one) && listens(&other));
}

#[tokio::test(start_paused = true)]
async fn a_link_opens_only_what_is_used() {
    let state = tempfile::tempdir().unwrap();
    let [one, _] = two(&state, Transport::Link);
    one.reached_by(&nowhere()).unwrap();
    assert!(!listens(&one));
}

#[tokio::test(start_paused = true)]
async fn what_is_used_is_written_down_meanwhile_and_forgotten_with_the_sandbox() {
    let state = tempfile::tempdir().unwrap();
    let [one, other] = two(&state, Transport::Unix);
    let _used = one.open().unwrap();
    let already = UsageTotals { input_tokens: 7, ..UsageTotals::default() };
    let proxy = Proxy::new(ProxySettings { already, ..ProxySettings::new("c") }).unwrap();
    one.state().listens.as_mut().unwrap().proxy = proxy;
    sleep(2 * NOTES).await;
    assert_eq!(other.metered().tokens(), 0, "without a record the sandbox is removed");
    let (key, profile) = (one.dir.key().clone(), ProfileName::parse("default").unwrap());
    one.dir.save(&SandboxRecord { key, profile, ready: None }).unwrap();
    sleep(2 * NOTES).await;
    assert_eq!(other.metered().tokens(), 7);
    one.forget().unwrap();
    assert_eq!(other.metered().tokens(), 0);
}
