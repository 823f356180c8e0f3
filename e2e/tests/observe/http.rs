//! One GET, and its whole answer.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The body of an answer that is well.
pub(crate) async fn get(port: u16, path: &str) -> Result<String> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path)
        .header("host", "localhost")
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    ensure!(status.is_success(), "GET {path}: {status}: {text}");
    Ok(text)
}

/// A text as a part of a query.
pub(crate) fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => (byte as char).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
