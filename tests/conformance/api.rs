//! The engine's API and its program give the same answers.

use coracle_runtime::{
    Container, CreateSpec, Image, ImageStore as _, LabelFilter, Limits, NetworkCreate, Networks as _, Port, Protocol,
    VolumeCreate, VolumeMount, Volumes as _,
};
use coracle_types::{ByteSize, ContainerId, ContainerStatus, EngineKind, Error, Handle, ImageId, ImageRef, VolumeName};

use super::{path, placed, sh};
use crate::conformance::import;
use crate::engines::{Case, IMAGE, on_every_engine, tar_of};

/// The engine of a case, read only over one way.
struct Ways {
    api: coracle_docker::CliRuntime,
    program: coracle_docker::CliRuntime,
}

impl Ways {
    /// `None` where the engine has no socket.
    fn of(case: &Case) -> Option<Self> {
        Some(Self { api: case.by_api_alone()?, program: case.by_program_alone()? })
    }
}

/// Containers in each state, and their description by the engines.
async fn containers(case: &Case) -> Vec<ContainerId> {
    let runtime = &case.runtime;
    let volume = VolumeName::parse(case.name("api").as_str()).unwrap();
    let new = VolumeCreate { name: volume.clone(), labels: vec![case.label()], size: None };
    runtime.create_volume(&new).await.unwrap();
    let spec = CreateSpec {
        ports: vec![Port { container: 80, host: None, protocol: Protocol::Tcp }],
        limits: Limits { memory: Some(ByteSize::mib(64)), cpus: Some(0.5), pids: Some(50) },
        volumes: vec![VolumeMount { name: volume, at: path("/v"), access: coracle_runtime::Access::ReadOnly }],
        ..case.spec("running")
    };
    let running = runtime.create(&placed(case, spec)).await.unwrap();
    let exited = runtime.create(&placed(case, case.spec("exited"))).await.unwrap();
    let created = runtime.create(&placed(case, case.spec("created"))).await.unwrap();
    for id in [&running, &exited] {
        runtime.start(id).await.unwrap();
    }
    runtime.exec(&running, sh("echo some >/file")).await.unwrap();
    runtime.stop(&exited, std::time::Duration::from_secs(10)).await.unwrap();
    vec![running, exited, created]
}

fn by_id(mut all: Vec<Container>) -> Vec<Container> {
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

#[tokio::test]
async fn the_api_tells_of_containers_what_the_program_tells() {
    on_every_engine(async |case| {
        let Some(ways) = Ways::of(case) else { return case.left_out() };
        use coracle_runtime::ContainerRuntime as _;
        let ids = containers(case).await;
        let mut statuses = Vec::new();
        for (id, name) in ids.iter().zip(["running", "exited", "created"]) {
            for handle in [Handle::from(id), Handle::parse(id.short()).unwrap(), Handle::Name(case.name(name))] {
                let (api, program) = tokio::join!(ways.api.inspect(&handle), ways.program.inspect(&handle));
                assert_eq!(api.unwrap(), program.unwrap(), "{handle}");
            }
            statuses.push(ways.api.inspect(&id.into()).await.unwrap().status);
        }
        assert_eq!(statuses, [ContainerStatus::Running, ContainerStatus::Exited, ContainerStatus::Created]);
        let never = ["d".repeat(64), case.name("never").to_string(), case.name("runnin").to_string()];
        for handle in never.map(|it| Handle::parse(it).unwrap()) {
            for found in [ways.api.inspect(&handle).await, ways.program.inspect(&handle).await] {
                assert!(matches!(found, Err(Error::NoSuchContainer(_))), "{handle}: {found:?}");
            }
        }
        let none = LabelFilter(vec![("coracle-test.none".into(), None)]);
        for (filter, count) in [(case.mine(), 3), (none, 0)] {
            let (api, program) = tokio::join!(ways.api.list(&filter), ways.program.list(&filter));
            let (api, program) = (by_id(api.unwrap()), by_id(program.unwrap()));
            assert_eq!((&api, api.len()), (&program, count));
        }
        let (api, program) = tokio::join!(ways.api.usage(&ids[0]), ways.program.usage(&ids[0]));
        let [api, program] = [api, program].map(|it| it.unwrap().map(|it| (it.pids, it.disk_bytes)));
        assert_eq!(api, program);
        assert!(api.is_none_or(|it| it.1.is_some_and(|it| it > 0)), "{api:?}");
    })
    .await;
}

#[tokio::test]
async fn the_api_tells_of_images_networks_and_volumes_what_the_program_tells() {
    on_every_engine(async |case| {
        let Some(ways) = Ways::of(case) else { return case.left_out() };

        let (one, other) = (case.tag("one"), case.tag("other"));
        let made = import(case, &one, tar_of(|_| ())).await;
        case.runtime.tag_image(&made.id, &other).await.unwrap();
        let id = |it: &ImageId| ImageRef::from(it.clone());
        let missing = [ImageRef::parse("coracle-test-never:1").unwrap(), ImageRef::parse("b".repeat(64)).unwrap()];
        for (names, count) in [
            (vec![one.clone(), missing[0].clone(), other.clone(), id(&made.id)], 3),
            (vec![ImageRef::parse(IMAGE).unwrap(), id(&case.image)], 2),
            (missing.to_vec(), 0),
        ] {
            let (api, program) = tokio::join!(ways.api.find_images(&names), ways.program.find_images(&names));
            let (api, program) = (api.unwrap(), program.unwrap());
            assert_eq!((&api, api.len()), (&program, count), "{names:?}");
        }
        let unusual = ("coracle-test.odd".to_owned(), None);
        let both = LabelFilter(case.mine().0.into_iter().chain([unusual]).collect());
        let (api, program): (Vec<Image>, Vec<Image>) =
            (ways.api.list_images(&both).await.unwrap(), ways.program.list_images(&both).await.unwrap());
        assert_eq!((&api, api.len(), api[0].tags.len()), (&program, 1, 2));
        case.runtime.untag_image(&other).await.unwrap();

        let network = case.network_name("api");
        let (name, labels) = (network.clone(), vec![case.label()]);
        case.runtime.create_network(&NetworkCreate { name, labels, reach: true, internal: true }).await.unwrap();
        let volume = VolumeName::parse(case.name("api").as_str()).unwrap();
        let new = VolumeCreate { name: volume.clone(), labels: vec![case.label()], size: None };
        let made = case.runtime.create_volume(&new).await.unwrap();
        let (api, program) =
            (ways.api.list_networks(&case.mine()).await, ways.program.list_networks(&case.mine()).await);
        let (api, program) = (api.unwrap(), program.unwrap());
        assert_eq!((&api, api.len()), (&program, 1));
        let (api, program) = (ways.api.find_network(&network).await, ways.program.find_network(&network).await);
        let (api, program) = (api.unwrap(), program.unwrap());
        assert_eq!((api.is_some(), &api), (true, &program));
        let never = case.network_name("never");
        for way in [&ways.api, &ways.program] {
            assert_eq!(way.find_network(&never).await.unwrap(), None);
            assert_eq!(way.list_volumes(&case.mine()).await.unwrap(), std::slice::from_ref(&made));
        }
    })
    .await;
}

#[tokio::test]
async fn the_api_tells_of_docker_what_the_program_tells() {
    on_every_engine(async |case| {
        // Podman is called through its program.
        if case.engine() != EngineKind::Docker {
            return;
        }
        let Some(ways) = Ways::of(case) else { return case.left_out() };
        use coracle_runtime::ContainerRuntime as _;
        let (api, program) = (ways.api.info().await.unwrap(), ways.program.info().await.unwrap());
        // The program that must not be called gets the engine's address.
        let reported = coracle_runtime::EngineInfo { endpoint: program.endpoint.clone(), ..api };
        assert_eq!(reported, program);
    })
    .await;
}
