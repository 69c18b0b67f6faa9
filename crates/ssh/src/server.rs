//! The server: authentication, and the handling of channel requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use coracle::{PersonSession, audited, operations};
use coracle_context::{Context, Failure};
use coracle_types::{Handle as ContainerHandle, TerminalSize};
use russh::keys::PublicKey;
use russh::server::{
    Auth, ChannelOpenHandle, Config, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey, run_stream,
};
use russh::{Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, MethodKind, MethodSet, Pty, Sig, SshId};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::channel_input::{ChannelInputSender, channel_input};
use crate::command_channel::{ChannelProgram, CommandChannel};
use crate::input_gate::{GatedStream, InputGate, MAX_WAITING};
use crate::keys::SshKeys;
use crate::port_channel;

/// The receive window of a channel, in bytes.
const WINDOW: u32 = 1 << 20;

/// Maximum size of the variables that a client sets for a command.
const MAX_ENV: usize = 64 << 10;

/// Maximum number of channels.
const MAX_CHANNELS: usize = 256;

/// How long commands may take to end after the client has disconnected.
const END: Duration = Duration::from_secs(5);

/// Serves one client on a pair of streams until it disconnects, or the call is cancelled.
///
/// # Errors
/// Errors of `exec`, when the container cannot be reached. Errors of the client are not reported.
pub async fn serve<R, W>(
    cx: &Context,
    container: &ContainerHandle,
    keys: &SshKeys,
    input: R,
    output: W,
) -> Result<(), Failure>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let session = PersonSession::open(cx, container, false).await?;
    let (gate, tasks) = (Arc::new(InputGate::default()), TaskTracker::new());
    let cancel = cx.call.cancel.child_token();
    let server = SshServer {
        cx: cx.clone(),
        container: container.clone(),
        client: keys.client.clone(),
        session: Ok(session),
        gate: gate.clone(),
        tasks: tasks.clone(),
        cancel: cancel.clone(),
        channels: HashMap::new(),
        ports: BTreeSet::new(),
    };
    let stream = tokio::io::join(GatedStream { stream: input, gate }, output);
    let serving = async {
        let running = run_stream(Arc::new(config(keys)), stream, server).await?;
        running.await
    };
    if let Some(Err(err)) = cancel.run_until_cancelled(serving).await {
        tracing::debug!(%err, "an ssh client left");
    }
    cancel.cancel();
    tasks.close();
    let _ = tokio::time::timeout(END, tasks.wait()).await;
    Ok(())
}

fn config(keys: &SshKeys) -> Config {
    Config {
        server_id: SshId::Standard(concat!("SSH-2.0-coracle_", env!("CARGO_PKG_VERSION")).into()),
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        keys: vec![keys.server.clone()],
        window_size: WINDOW,
        auth_rejection_time: Duration::ZERO,
        inactivity_timeout: None,
        ..Config::default()
    }
}

/// One client's connection.
struct SshServer {
    cx: Context,
    container: ContainerHandle,
    client: PublicKey,
    /// Every command prints why there is no target.
    session: Result<PersonSession, Failure>,
    gate: Arc<InputGate>,
    tasks: TaskTracker,
    cancel: CancellationToken,
    channels: HashMap<ChannelId, SshChannel>,
    /// Addresses in the container that are already recorded in the trail.
    ports: BTreeSet<String>,
}

/// An open channel.
struct SshChannel {
    /// A channel without a program.
    write: Option<ChannelWriteHalf<Msg>>,
    env: BTreeMap<String, String>,
    sizes: Option<watch::Sender<TerminalSize>>,
    input: Option<ChannelInputSender>,
    cancel: CancellationToken,
}

impl Drop for SshChannel {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl SshServer {
    fn is_client(&self, key: &PublicKey) -> bool {
        self.client.key_data() == key.key_data()
    }

    fn is_full(&self) -> bool {
        self.channels.len() >= MAX_CHANNELS
    }

    fn add(&mut self, id: ChannelId, write: Option<ChannelWriteHalf<Msg>>) -> &mut SshChannel {
        let cancel = self.cancel.child_token();
        let state = SshChannel { write, env: BTreeMap::new(), sizes: None, input: None, cancel };
        self.channels.entry(id).insert_entry(state).into_mut()
    }

    /// Runs a program on a channel that has none yet.
    fn start(&mut self, id: ChannelId, program: ChannelProgram, session: &mut Session) -> Result<(), russh::Error> {
        let Some((state, write)) = self.channels.get_mut(&id).and_then(|it| it.write.take().map(|write| (it, write)))
        else {
            return session.channel_failure(id);
        };
        let (sender, input) = channel_input(&self.gate);
        state.input = Some(sender);
        let command = CommandChannel {
            cx: self.cx.clone(),
            session: self.session.clone(),
            program,
            env: std::mem::take(&mut state.env),
            terminal: state.sizes.as_ref().map(watch::Sender::subscribe),
            input,
            write,
            handle: session.handle(),
            gate: self.gate.clone(),
            cancel: state.cancel.clone(),
        };
        session.channel_success(id)?;
        self.tasks.spawn(command.run());
        Ok(())
    }

    /// Switches to root. If root is refused, that is recorded in the trail, and each command prints why.
    async fn become_root(&mut self) {
        let Ok(session) = &self.session else { return };
        if session.user().is_root() {
            return;
        }
        let opened = Box::pin(PersonSession::open(&self.cx, &self.container, true)).await;
        self.session = match opened {
            Ok(session) => Ok(session),
            Err(refused) => audited::root_refused(&self.cx, "ssh", &session.name, &refused).await.and(Err(refused)),
        };
    }

    /// Whether an address may be reached; recorded once in the trail.
    async fn open_port(&mut self, address: &str, port: u16) -> Result<PersonSession, Failure> {
        let session = self.session.clone()?;
        let allowed = operations::may_open_port(&self.cx, port);
        if allowed.is_err() || !self.ports.contains(address) {
            let what = json!({ "channel": "port", "address": address });
            let intent = audited::intent(&self.cx, "ssh", &session, what).await?;
            intent.finish_program(allowed.as_ref().map(|()| None)).await;
        }
        // Only after success: if the record could not be written, the next connection tries again.
        if allowed.is_ok() {
            self.ports.insert(address.to_owned());
        }
        allowed.map(|()| session)
    }
}

fn size(cols: u32, rows: u32) -> TerminalSize {
    let within = |it: u32, usual: u16| u16::try_from(it).ok().filter(|it| *it > 0).unwrap_or(usual);
    TerminalSize { cols: within(cols, 80), rows: within(rows, 24) }
}

impl Handler for SshServer {
    type Error = russh::Error;

    async fn auth_publickey_offered(&mut self, _: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        Ok(if self.is_client(offer.public_key) { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        if !self.is_client(key.public_key) {
            return Ok(Auth::reject());
        }
        if user == "root" {
            self.become_root().await;
        }
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        if self.is_full() {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let (id, (_, write)) = (channel.id(), channel.split());
        self.add(id, Some(write));
        reply.accept().await;
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        let Some((address, port)) = port_channel::address(host, port) else {
            let reason = format!("`{host}:{port}` is not an address that the container can connect to");
            reply.reject(ChannelOpenFailure::Other { code: 2, reason }).await;
            return Ok(());
        };
        if self.is_full() {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let session = match Box::pin(self.open_port(&address, port)).await {
            Ok(session) => session,
            Err(failure) => {
                reply.reject(ChannelOpenFailure::Other { code: 1, reason: failure.message.clone() }).await;
                return Ok(());
            }
        };
        let (id, (_, write)) = (channel.id(), channel.split());
        let (sender, input) = channel_input(&self.gate);
        let state = self.add(id, None);
        state.input = Some(sender);
        let cancel = state.cancel.clone();
        reply.accept().await;
        self.tasks.spawn(port_channel::run(session, address, input, write, cancel));
        Ok(())
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        kind: &str,
        cols: u32,
        rows: u32,
        _: u32,
        _: u32,
        _: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let Some(state) = self.channels.get_mut(&id).filter(|it| it.write.is_some()) else {
            return session.channel_failure(id);
        };
        state.env.insert("TERM".to_owned(), kind.to_owned());
        state.sizes = Some(watch::channel(size(cols, rows)).0);
        session.channel_success(id)
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        cols: u32,
        rows: u32,
        _: u32,
        _: u32,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        if let Some(sizes) = self.channels.get(&id).and_then(|it| it.sizes.as_ref()) {
            sizes.send_replace(size(cols, rows));
        }
        Ok(())
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let taken = |env: &BTreeMap<String, String>| env.iter().map(|it| it.0.len() + it.1.len()).sum::<usize>();
        let fits = |it: &&mut SshChannel| taken(&it.env) + name.len() + value.len() <= MAX_ENV;
        match self.channels.get_mut(&id).filter(fits) {
            Some(state) if !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0') => {
                state.env.insert(name.to_owned(), value.to_owned());
                session.channel_success(id)
            }
            _ => session.channel_failure(id),
        }
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        self.start(id, ChannelProgram::Shell, session)
    }

    async fn exec_request(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        match std::str::from_utf8(data) {
            Ok(script) => self.start(id, ChannelProgram::Script(script.to_owned()), session),
            Err(_) => session.channel_failure(id),
        }
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        match name {
            "sftp" => self.start(id, ChannelProgram::Sftp, session),
            _ => session.channel_failure(id),
        }
    }

    async fn signal(&mut self, id: ChannelId, signal: Sig, _: &mut Session) -> Result<(), russh::Error> {
        let ends = matches!(signal, Sig::HUP | Sig::INT | Sig::KILL | Sig::QUIT | Sig::TERM);
        if let Some(state) = self.channels.get(&id).filter(|_| ends) {
            state.cancel.cancel();
        }
        Ok(())
    }

    async fn data(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        let Some(state) = self.channels.get_mut(&id) else { return Ok(()) };
        if state.input.as_ref().is_some_and(|it| !it.send(data)) {
            state.cancel.cancel();
            state.input = None;
            let text = format!("coracle: more than {} MiB of input waited; the command is ended\n", MAX_WAITING >> 20);
            session.extended_data(id, 1, text.into_bytes())?;
        }
        Ok(())
    }

    async fn channel_eof(&mut self, id: ChannelId, _: &mut Session) -> Result<(), russh::Error> {
        if let Some(state) = self.channels.get_mut(&id) {
            state.input = None;
        }
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut Session) -> Result<(), russh::Error> {
        self.channels.remove(&id);
        Ok(())
    }
}
