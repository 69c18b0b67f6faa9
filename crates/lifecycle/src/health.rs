//! Waiting until what runs in a container is ready.

use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::{ContainerRuntime, ExecTarget, Health};
use coracle_types::{
    Capability, Capture, Command, ContainerId, Error as Engine, ExecLimits, ExecOutput, Exit, Handle, PortTarget,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{ExecContext, Result};

/// No wait is longer, whatever its attempts add up to.
const LONGEST: Duration = Duration::from_secs(3600);

/// Bytes of output that a failure tells.
const MAX_ERROR_BYTES: usize = 4 << 10;

/// The guest's own program, which can also try a port.
const GUEST: &str = "/.coracle/guest";

/// The kernel's tables of sockets, of the network namespace of the process that reads them.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// What is tried, time and again.
#[derive(Debug)]
pub struct Probe {
    /// Where.
    pub inside: ExecTarget,
    /// As whom.
    pub session: ExecContext,
    /// What.
    pub check: Check,
    /// Ends the wait, with what is just being tried.
    pub cancel: CancellationToken,
}

/// What has to hold.
#[derive(Clone, Debug)]
pub enum Check {
    /// A command ends with 0.
    Command(Command),
    /// A port takes connections, seen from inside.
    Port(PortTarget),
    /// The health check of the image passes.
    Image(Arc<dyn ContainerRuntime>, ContainerId),
}

/// How long is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Between two attempts.
    pub every: Duration,
    /// At most so many.
    pub attempts: u32,
    /// Then an attempt is ended, with all that it started.
    pub each: Duration,
}

/// What an attempt came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// It holds.
    Passed,
    /// It does not.
    Failed {
        /// Output of the attempt, at most 4 KiB.
        error: String,
        /// How it ended, if by itself.
        exit_code: Option<u8>,
    },
    /// The caller stopped waiting.
    Cancelled,
}

/// What a wait came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// The last attempt.
    pub last: ProbeOutcome,
    /// How many there were.
    pub attempts: u32,
    /// How long it took.
    pub took: Duration,
}

/// Tries until it holds, one attempt after the other. The wait is over with the last attempt, or after an hour.
///
/// # Errors
/// When the container stops, or nothing can be run in it: then there is nothing to wait for.
pub async fn wait_healthy(probe: &Probe, patience: &RetryPolicy) -> Result<HealthReport> {
    let begun = Instant::now();
    let mut attempts = 0;
    loop {
        attempts += 1;
        let left = LONGEST.saturating_sub(begun.elapsed());
        let last = probe.once(patience.each.min(left)).await?;
        let over = attempts >= patience.attempts || begun.elapsed() + patience.every >= LONGEST;
        if over || !matches!(last, ProbeOutcome::Failed { .. }) {
            return Ok(HealthReport { last, attempts, took: begun.elapsed() });
        }
        if probe.cancel.run_until_cancelled(sleep(patience.every)).await.is_none() {
            return Ok(HealthReport { last: ProbeOutcome::Cancelled, attempts, took: begun.elapsed() });
        }
    }
}

impl Probe {
    async fn once(&self, limit: Duration) -> Result<ProbeOutcome> {
        match (&self.check, &self.inside) {
            (Check::Command(command), _) => Ok(tried(&self.run(command.clone(), limit).await?)),
            (Check::Port(at), ExecTarget::Guest(_)) => {
                let words = [GUEST, "port", &at.to_string()].map(str::to_owned);
                Ok(tried(&self.run(Command::Argv(words.into()), limit).await?))
            }
            (Check::Port(at), ExecTarget::Plain(..)) => {
                // Whatever the image has for trying ports, if anything: most can print a file.
                let words = std::iter::once("cat").chain(TABLES).map(str::to_owned);
                let output = self.run(Command::Argv(words.collect()), limit).await?;
                let tables = output.stdout.text();
                if at.addresses().into_iter().any(|address| listens(&tables, address)) {
                    return Ok(ProbeOutcome::Passed);
                }
                Ok(ProbeOutcome::Failed { error: format!("nothing listens on {at}"), exit_code: None })
            }
            (Check::Image(runtime, id), _) => image(&**runtime, id).await,
        }
    }

    async fn run(&self, command: Command, limit: Duration) -> Result<ExecOutput> {
        let mut exec = self.session.exec(command);
        exec.limits = ExecLimits { total: Some(limit), ..exec.limits };
        exec.keep_bytes = 4 * MAX_ERROR_BYTES;
        exec.cancel = self.cancel.clone();
        Ok(self.inside.exec(exec).await?)
    }
}

/// What the image's own check says. A container that stopped is not going to be healthy.
async fn image(runtime: &dyn ContainerRuntime, id: &ContainerId) -> Result<ProbeOutcome> {
    let container = runtime.inspect(&Handle::from(id)).await?;
    if !container.running() {
        let (status, exit_code, oom_killed) = (container.status, container.exit_code, container.oom_killed);
        return Err(Engine::NotRunning { status, exit_code, oom_killed, output: None }.into());
    }
    let error = match runtime.check_health(id).await? {
        Some(Health::Healthy) => return Ok(ProbeOutcome::Passed),
        Some(Health::Starting) => "its health check has not passed yet",
        Some(Health::Unhealthy) => "its health check failed",
        None => {
            return Err(Engine::Unsupported { engine: runtime.kind(), capability: Capability::HealthCheck }.into());
        }
    };
    Ok(ProbeOutcome::Failed { error: error.to_owned(), exit_code: None })
}

fn tried(output: &ExecOutput) -> ProbeOutcome {
    let exit_code = match output.exit {
        Exit::Code(0) => return ProbeOutcome::Passed,
        Exit::Cancelled => return ProbeOutcome::Cancelled,
        Exit::Code(code) => Some(code),
        Exit::TimedOut(_) | Exit::Running(_) => None,
    };
    let printed = [&output.stderr, &output.stdout].into_iter().map(output_tail).find(|it| !it.is_empty());
    let silent = || exit_code.map_or_else(|| "timed out".to_owned(), |code| format!("exit code {code}, no output"));
    ProbeOutcome::Failed { error: printed.unwrap_or_else(silent), exit_code }
}

/// The end of what was printed, where programs say what went wrong.
fn output_tail(capture: &Capture) -> String {
    let text = capture.text();
    let text = text.trim();
    let from = text.len().saturating_sub(MAX_ERROR_BYTES);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text[from..].to_owned()
}

/// Whether a socket in the kernel's tables waits for connections at that address, or at any.
fn listens(tables: &str, at: std::net::SocketAddr) -> bool {
    let listening = |line: &str| {
        let mut fields = line.split_whitespace();
        let (Some(_), Some(local), Some(_), Some("0A")) = (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return false;
        };
        let Some((address, port)) = local.split_once(':') else { return false };
        let any = address.bytes().all(|it| it == b'0');
        // The kernel prints each four bytes in the order of the machine.
        let this = match at.ip() {
            std::net::IpAddr::V4(ip) => format!("{:08X}", u32::from_ne_bytes(ip.octets())),
            std::net::IpAddr::V6(ip) => ip.octets().chunks(4).fold(String::new(), |hex, word| {
                hex + &word.try_into().map_or_else(|_| String::new(), |it| format!("{:08X}", u32::from_ne_bytes(it)))
            }),
        };
        u16::from_str_radix(port, 16) == Ok(at.port()) && (any || address == this)
    };
    tables.lines().any(listening)
}

#[cfg(test)]
mod tests {
    use coracle_runtime::FakeRuntime;
    use coracle_runtime::fake::Reply;
    use coracle_types::{ContainerPath, Ids};

    use super::*;
    use crate::Error;

    async fn running() -> (FakeRuntime, ContainerId) {
        let fake = FakeRuntime::new();
        let id = fake.runs("web").await;
        (fake, id)
    }

    fn probe(fake: &FakeRuntime, id: &ContainerId, check: Check) -> Probe {
        let session = ExecContext { user: Ids::ROOT, workdir: ContainerPath::root(), env: Default::default() };
        let inside = ExecTarget::Plain(Arc::new(fake.clone()), id.clone());
        Probe { inside, session, check, cancel: CancellationToken::new() }
    }

    fn ready() -> Check {
        Check::Command(Command::Shell("ready".into()))
    }

    fn no(code: u8) -> Reply {
        Reply::new(Exit::Code(code), "", "not yet\n")
    }

    const fn patience(every_s: u64, attempts: u32, each_s: u64) -> RetryPolicy {
        RetryPolicy { every: Duration::from_secs(every_s), attempts, each: Duration::from_secs(each_s) }
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_after_the_last_attempt_without_sleeping_again() {
        let (fake, id) = running().await;
        fake.replies("ready", [no(3)]);
        let waited = wait_healthy(&probe(&fake, &id, ready()), &patience(2, 15, 7)).await.unwrap();
        assert_eq!(waited.last, ProbeOutcome::Failed { error: "not yet".into(), exit_code: Some(3) });
        assert_eq!((waited.attempts, waited.took), (15, Duration::from_secs(2 * 14)));
    }

    #[tokio::test(start_paused = true)]
    async fn passes_at_the_third_attempt() {
        let (fake, id) = running().await;
        fake.replies("ready", [no(1), no(1), Reply::new(Exit::Code(0), "", "")]);
        let waited = wait_healthy(&probe(&fake, &id, ready()), &patience(2, 15, 7)).await.unwrap();
        assert_eq!((waited.last, waited.attempts, waited.took), (ProbeOutcome::Passed, 3, Duration::from_secs(4)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_has_its_limit_and_all_together_an_hour() {
        let (fake, id) = running().await;
        fake.replies("ready", [Reply::new(Exit::Code(0), "", "").after(LONGEST * 2)]);
        let timed_out = ProbeOutcome::Failed { error: "timed out".into(), exit_code: None };
        let waited = wait_healthy(&probe(&fake, &id, ready()), &patience(0, 2, 5)).await.unwrap();
        assert_eq!((waited.last, waited.took), (timed_out.clone(), Duration::from_secs(10)));
        let waited = wait_healthy(&probe(&fake, &id, ready()), &patience(60, 1000, 300)).await.unwrap();
        assert_eq!((waited.last, waited.attempts), (timed_out, 10));
        assert_eq!(waited.took, LONGEST - Duration::from_secs(60), "another attempt would begin after the hour");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_when_the_container_stops_or_the_caller_cancels() {
        let (fake, id) = running().await;
        fake.replies("ready", [no(1)]);
        let waiting = probe(&fake, &id, ready());
        let withdraws = async {
            sleep(Duration::from_secs(5)).await;
            waiting.cancel.cancel();
        };
        let patience = patience(60, 9, 5);
        let (waited, ()) = tokio::join!(wait_healthy(&waiting, &patience), withdraws);
        assert_eq!(waited.unwrap().last, ProbeOutcome::Cancelled);
        let waiting = probe(&fake, &id, ready());
        let stops = async {
            sleep(Duration::from_secs(5)).await;
            fake.crash(&id);
        };
        let (waited, ()) = tokio::join!(wait_healthy(&waiting, &patience), stops);
        assert!(matches!(waited, Err(Error::Runtime(Engine::NotRunning { .. }))), "{waited:?}");
    }

    #[tokio::test]
    async fn an_image_without_a_check_is_not_waited_for() {
        let (fake, id) = running().await;
        let check = Check::Image(Arc::new(fake.clone()), id.clone());
        let waited = wait_healthy(&probe(&fake, &id, check), &patience(60, 9, 5)).await;
        assert!(matches!(waited, Err(Error::Runtime(Engine::Unsupported { .. }))), "{waited:?}");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_listening_socket_is_found_in_the_kernels_tables() {
        let tables = "  sl  local_address rem_address   st tx_queue\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n\
             1: 00000000:0050 00000000:0000 0A 00000000:00000000\n\
             2: 0100007F:0051 0100007F:9999 01 00000000:00000000\n\
             3: 00000000000000000000000001000000:0052 00000000000000000000000000000000:0000 0A";
        for (at, open) in [
            ("127.0.0.1:8080", true),
            ("10.0.0.2:8080", false),
            ("10.0.0.2:80", true),
            ("127.0.0.1:81", false),
            ("[::1]:82", true),
            ("127.0.0.1:82", false),
        ] {
            assert_eq!(listens(tables, at.parse().unwrap()), open, "{at}");
        }
    }
}
