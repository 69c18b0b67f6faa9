//! An SFTP server, version 3, on standard input and output. It runs as a command of the container's user, in the
//! directory where commands run, so the kernel decides what it may do and what a path means.
//!
//! It behaves like the `sftp-server` of OpenSSH, extensions included, except that error messages are those of the system.

mod attributes;
mod handles;
mod packet;
mod paths;
mod requests;

use std::io::{self, BufReader, BufWriter, Read, Write};

use self::requests::SftpServer;

/// Longest packet in bytes. Clients of OpenSSH request this limit.
const MAX_PACKET: usize = 256 << 10;

/// Serves standard input until it ends.
///
/// # Errors
/// Fails if a stream breaks, and for a client that does not follow the protocol.
pub fn serve() -> io::Result<()> {
    serve_on(io::stdin().lock(), io::stdout().lock())
}

fn serve_on(input: impl Read, output: impl Write) -> io::Result<()> {
    let (mut input, mut output) = (BufReader::with_capacity(MAX_PACKET, input), BufWriter::new(output));
    let mut server = SftpServer::default();
    let mut packet = Vec::new();
    loop {
        if input.buffer().is_empty() {
            output.flush()?;
        }
        let mut length = [0; 4];
        match input.read_exact(&mut length) {
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return output.flush(),
            read => read?,
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if !(1..=MAX_PACKET).contains(&length) {
            output.flush()?;
            return Err(io::Error::other(format!("invalid SFTP request: a packet of {length} bytes")));
        }
        packet.resize(length, 0);
        input.read_exact(&mut packet)?;
        output.write_all(&server.handle(&packet)?.finish())?;
    }
}

#[cfg(test)]
mod tests;
