//! `engines forward ADDRESS`: connections to the socket that is the standard input go on to `ADDRESS`. `up` starts it in
//! a namespace that the host does not reach.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::thread;

use anyhow::{Context as _, Result};

/// Accepts until it is ended.
pub(crate) fn run(address: &str) -> Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned().context("take the socket")?;
    let listener = TcpListener::from(input);
    for client in listener.incoming() {
        let (client, address) = (client.context("accept a connection")?, address.to_owned());
        thread::spawn(move || {
            // A server that does not run yet closes the connection, as it would without a forward.
            if let Ok(server) = TcpStream::connect(&address) {
                join(&client, &server).unwrap_or_default();
            }
        });
    }
    Ok(())
}

/// Copies both ways, each until its own end.
fn join(client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    thread::scope(|scope| {
        scope.spawn(|| copy(client, server));
        copy(server, client);
    });
    Ok(())
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    if io::copy(&mut from, &mut to).is_err() {
        let _ = from.shutdown(Shutdown::Both); // the other direction has nothing to wait for
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn an_answer_after_the_end_of_the_question_arrives() {
        let [front, back] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a socket"));
        let (door, target) = (front.local_addr().expect("an address"), back.local_addr().expect("an address"));
        thread::spawn(move || {
            let client = front.accept().expect("a client").0;
            join(&client, &TcpStream::connect(target).expect("a server")).expect("a join");
        });
        let server = thread::spawn(move || {
            let (mut stream, mut text) = (back.accept().expect("a connection").0, String::new());
            stream.read_to_string(&mut text).expect("the question");
            stream.write_all(text.to_uppercase().as_bytes()).expect("the answer");
        });
        let mut client = TcpStream::connect(door).expect("a connection");
        client.write_all(b"question").expect("a question");
        client.shutdown(Shutdown::Write).expect("its end");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer, "QUESTION");
        server.join().expect("the server");
    }
}
