//! The kernel's configuration sockets: requests with acknowledgements, and dumps.

mod message;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with, sockopt,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use message::NetlinkReply;
pub(super) use message::{Message, NESTED, attribute, attributes};

/// The kernel responds at once; the timeout only prevents waiting forever after a bug.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The kernel fills at most 32 KiB of a dump at once.
const BUFFER_BYTES: usize = 64 << 10;

/// A socket of one protocol, in the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Netlink(OwnedFd);

impl Netlink {
    /// Opens a socket for links, addresses and routes.
    pub(super) fn route() -> io::Result<Self> {
        Self::open(None)
    }

    /// Opens a socket for packet filters.
    pub(super) fn netfilter() -> io::Result<Self> {
        Self::open(Some(rustix::net::netlink::NETFILTER))
    }

    /// Opens a socket for links, addresses and routes of another network namespace, which a short-lived thread enters.
    pub(super) fn route_in(namespace: &Path) -> io::Result<Self> {
        let namespace = File::open(namespace)?;
        let enter = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Self::route()
        };
        std::thread::spawn(enter).join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    }

    /// Opens a socket. Without a protocol, it is 0: links and routes.
    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self(fd))
    }

    /// The number of a link in the socket's namespace.
    pub(super) fn index(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.0, name)?)
    }

    /// Sends requests in one packet and waits for all acknowledgements.
    ///
    /// # Errors
    /// The error of the first request that failed. Requests of one packet are independent, except batches of the packet
    /// filter.
    pub(super) fn request(&self, messages: Vec<Message>) -> io::Result<()> {
        let (packet, mut expected) = message::packet(messages);
        self.send(&packet)?;
        let (mut buffer, mut outcome) = (vec![0; BUFFER_BYTES], Ok(()));
        while expected > 0 {
            for answer in message::answers(self.receive(&mut buffer)?) {
                let NetlinkReply::Status(errno) = answer else { continue };
                expected = expected.saturating_sub(1);
                // A batch that is refused as a whole gets only this reply.
                if errno == libc::ERESTART {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                if errno != 0 && outcome.is_ok() {
                    outcome = Err(io::Error::from_raw_os_error(errno));
                }
            }
        }
        outcome
    }

    /// Sends a request for objects, and returns each without its header.
    pub(super) fn dump(&self, request: Message) -> io::Result<Vec<Vec<u8>>> {
        self.send(&message::packet(vec![request]).0)?;
        let (mut buffer, mut objects) = (vec![0; BUFFER_BYTES], Vec::new());
        loop {
            for answer in message::answers(self.receive(&mut buffer)?) {
                match answer {
                    NetlinkReply::Object(bytes) => objects.push(bytes.to_vec()),
                    NetlinkReply::Status(0) | NetlinkReply::Done => return Ok(objects),
                    NetlinkReply::Status(errno) => return Err(io::Error::from_raw_os_error(errno)),
                }
            }
        }
    }

    fn send(&self, packet: &[u8]) -> io::Result<()> {
        sendto(&self.0, packet, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        Ok(())
    }

    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        loop {
            match recv(&self.0, &mut *buffer, RecvFlags::empty()) {
                Ok((count, _)) => return Ok(&buffer[..count.min(buffer.len())]),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
