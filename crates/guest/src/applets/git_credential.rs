//! The credential helper of git inside: it has no credentials and requests them from the host's proxy.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::protocol::relay::API_PORT;

/// Limit of git's description of the repository, in bytes.
const MAX_REQUEST: u64 = 4 << 10;

/// Limit of the proxy's response with its head, in bytes.
const MAX_RESPONSE: u64 = 64 << 10;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TOTAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Handles an action of git's credential protocol: `get` requests a credential from the proxy, `store` and `erase` do
/// nothing.
///
/// # Errors
/// Fails for another action, and if standard output is closed.
#[expect(clippy::print_stderr, reason = "git shows it to its user")]
pub async fn helper(action: &str) -> io::Result<()> {
    if !["get", "store", "erase"].contains(&action) {
        return Err(io::Error::other("git-credential accepts get, store or erase"));
    }
    let mut description = Vec::new();
    tokio::io::stdin().take(MAX_REQUEST + 1).read_to_end(&mut description).await?;
    if action != "get" {
        return Ok(());
    }
    let credential = match timeout(TOTAL_TIMEOUT, request_credential(API_PORT, &description))
        .await
        .unwrap_or_else(|_| Err("no response".into()))
    {
        Ok(credential) => credential,
        Err(why) => {
            eprintln!("coracle: no credential: {why}");
            // Without this line git would prompt on the terminal.
            b"quit=true\n".to_vec()
        }
    };
    let mut stdout = tokio::io::stdout();
    stdout.write_all(&credential).await?;
    stdout.flush().await
}

/// Returns the body of the proxy's response, or the reason why there is no credential.
async fn request_credential(port: u16, description: &[u8]) -> Result<Vec<u8>, String> {
    if description.len() as u64 > MAX_REQUEST {
        return Err("git's description of the repository is too long".into());
    }
    let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
    let unreachable = |_| "the proxy cannot be reached".to_owned();
    let mut stream = connecting.await.map_err(|_| unreachable(()))?.map_err(|_| unreachable(()))?;
    let head = format!(
        "POST /proxy/v1/git/credentials HTTP/1.1\r\nHost: proxy\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        description.len()
    );
    stream.write_all(&[head.as_bytes(), description].concat()).await.map_err(|_| unreachable(()))?;
    read_response(&mut stream).await
}

async fn read_response(from: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, String> {
    let mut response = Vec::new();
    from.take(MAX_RESPONSE).read_to_end(&mut response).await.map_err(|_| "the proxy closed the connection")?;
    let head_end = response.windows(4).position(|it| it == b"\r\n\r\n").ok_or("the proxy sent no valid response")?;
    let (head, body) = (&response[..head_end], &response[head_end + 4..]);
    if head.starts_with(b"HTTP/1.1 200 ") {
        return Ok(body.to_vec());
    }
    let parsed = serde_json::from_slice::<serde_json::Value>(body).ok();
    let code = parsed.as_ref().and_then(|it| it["error"]["code"].as_str()).unwrap_or("refused");
    Err(code.chars().filter(|it| it.is_ascii_lowercase() || *it == '_').take(64).collect())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn exchange(response: &'static str) -> (Result<Vec<u8>, String>, String) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let count = stream.read(&mut request).await.unwrap();
            stream.write_all(response.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..count]).into_owned()
        };
        tokio::join!(request_credential(port, b"protocol=https\nhost=example.com\n"), proxy)
    }

    #[tokio::test]
    async fn a_credential_is_returned_and_a_refusal_is_reported_as_its_code() {
        let (got, request) = exchange("HTTP/1.1 200 OK\r\nX: y\r\n\r\nusername=u\npassword=p\n").await;
        assert_eq!(got.unwrap(), b"username=u\npassword=p\n");
        assert!(request.contains("Content-Length: 32\r\n") && request.ends_with("host=example.com\n"), "{request}");
        let refusal = "HTTP/1.1 403 Forbidden\r\n\r\n{\"error\":{\"code\":\"git_host_not_allowed\\n\"}}";
        assert_eq!(exchange(refusal).await.0.unwrap_err(), "git_host_not_allowed");
        assert_eq!(exchange("nonsense").await.0.unwrap_err(), "the proxy sent no valid response");
        assert!(request_credential(1, &vec![b'x'; 5000]).await.unwrap_err().contains("too long"));
    }
}
