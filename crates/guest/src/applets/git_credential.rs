//! git's credential helper inside: it has none, and asks the host's proxy.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::protocol::relay::API_PORT;

/// Limit of git's description of the repository, in bytes.
const MAX_REQUEST: u64 = 4 << 10;

/// Limit of the proxy's answer with its head, in bytes.
const MAX_ANSWER: u64 = 64 << 10;

const TO_CONNECT: Duration = Duration::from_secs(5);
const IN_ALL: Duration = Duration::from_secs(10);

/// Does what git asks of a helper: `get` asks the proxy, `store` and `erase` do nothing.
///
/// # Errors
/// For another word, and when standard output is closed.
#[expect(clippy::print_stderr, reason = "git shows it to whoever runs it")]
pub async fn helper(act: &str) -> io::Result<()> {
    if !["get", "store", "erase"].contains(&act) {
        return Err(io::Error::other("git-credential takes get, store or erase"));
    }
    let mut asked = Vec::new();
    tokio::io::stdin().take(MAX_REQUEST + 1).read_to_end(&mut asked).await?;
    if act != "get" {
        return Ok(());
    }
    let answer =
        match timeout(IN_ALL, request_credential(API_PORT, &asked)).await.unwrap_or_else(|_| Err("no answer".into())) {
            Ok(answer) => answer,
            Err(why) => {
                eprintln!("coracle: no credential: {why}");
                // Without it git would ask the terminal.
                b"quit=true\n".to_vec()
            }
        };
    let mut stdout = tokio::io::stdout();
    stdout.write_all(&answer).await?;
    stdout.flush().await
}

/// The body of the proxy's answer, or why there is none.
async fn request_credential(port: u16, asked: &[u8]) -> Result<Vec<u8>, String> {
    if asked.len() as u64 > MAX_REQUEST {
        return Err("what git says of the repository is too long".into());
    }
    let connecting = timeout(TO_CONNECT, TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
    let unreachable = |_| "the proxy cannot be reached".to_owned();
    let mut stream = connecting.await.map_err(|_| unreachable(()))?.map_err(|_| unreachable(()))?;
    let head = format!(
        "POST /proxy/v1/git/credentials HTTP/1.1\r\nHost: proxy\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        asked.len()
    );
    stream.write_all(&[head.as_bytes(), asked].concat()).await.map_err(|_| unreachable(()))?;
    answered(&mut stream).await
}

async fn answered(from: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, String> {
    let mut answer = Vec::new();
    from.take(MAX_ANSWER).read_to_end(&mut answer).await.map_err(|_| "the proxy broke off")?;
    let ends = answer.windows(4).position(|it| it == b"\r\n\r\n").ok_or("the proxy gave no answer")?;
    let (head, body) = (&answer[..ends], &answer[ends + 4..]);
    if head.starts_with(b"HTTP/1.1 200 ") {
        return Ok(body.to_vec());
    }
    let said = serde_json::from_slice::<serde_json::Value>(body).ok();
    let code = said.as_ref().and_then(|it| it["error"]["code"].as_str()).unwrap_or("refused");
    Err(code.chars().filter(|it| it.is_ascii_lowercase() || *it == '_').take(64).collect())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn told(answer: &'static str) -> (Result<Vec<u8>, String>, String) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = vec![0; 4096];
            let count = stream.read(&mut heard).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&heard[..count]).into_owned()
        };
        tokio::join!(request_credential(port, b"protocol=https\nhost=example.com\n"), answers)
    }

    #[tokio::test]
    async fn the_answer_is_given_on_and_a_refusal_is_one_word() {
        let (got, heard) = told("HTTP/1.1 200 OK\r\nX: y\r\n\r\nusername=u\npassword=p\n").await;
        assert_eq!(got.unwrap(), b"username=u\npassword=p\n");
        assert!(heard.contains("Content-Length: 32\r\n") && heard.ends_with("host=example.com\n"), "{heard}");
        let refusal = "HTTP/1.1 403 Forbidden\r\n\r\n{\"error\":{\"code\":\"git_host_not_allowed\\n\"}}";
        assert_eq!(told(refusal).await.0.unwrap_err(), "git_host_not_allowed");
        assert_eq!(told("nonsense").await.0.unwrap_err(), "the proxy gave no answer");
        assert!(request_credential(1, &vec![b'x'; 5000]).await.unwrap_err().contains("too long"));
    }
}
