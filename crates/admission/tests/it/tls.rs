//! Connections: what is no review, what is too large, renewed certificates, the end.

use std::time::Duration;

use anyhow::Result;
use grove_admission::Webhook;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::kit::{Connection, PATIENCE, made, request, serve};

fn any_request() -> Value {
    request("CREATE", "podcliquesets", Value::Null, json!({"kind": "PodCliqueSet"}))
}

#[tokio::test]
async fn garbage_is_answered_and_the_connection_lives_on() -> Result<()> {
    let served = serve("").await?;
    let mut connection = served.connect(&served.material).await?;
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 6] = [
        b"",
        b"\xff\xfe\x00",
        b"{}",
        b"[1, 2",
        br#"{"request": {"uid": "u", "operation": "EXPLODE"}}"#,
        deep.as_bytes(),
    ];
    for webhook in Webhook::ALL {
        for body in bodies {
            let (status, text) = connection.post(webhook, body.to_vec()).await?;
            assert_eq!(status, 400, "{webhook:?}: {text}");
            assert!(text.starts_with("not an AdmissionReview"), "{text}");
        }
        for object in [
            json!(null),
            json!(7),
            json!([]),
            json!({"spec": {"template": 1}}),
            json!({"metadata": "x"}),
        ] {
            let asked = request("UPDATE", "podcliquesets", object.clone(), object);
            let response = connection.ask(webhook, asked).await?;
            assert!(response["allowed"].is_boolean(), "{webhook:?}: {response}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_body_without_end_is_refused() -> Result<()> {
    let served = serve("").await?;
    let mut connection = served.connect(&served.material).await?;
    let (status, _) = connection.post(Webhook::ValidateSet, vec![b' '; 9 << 20]).await?;
    assert_eq!(status, 413);
    Ok(())
}

/// Peers that begin and never go on: without a word, in the head of a request, in its body. However many they are, the API
/// server is answered at once, and they are let go within seconds.
#[tokio::test(start_paused = true)]
async fn who_never_goes_on_is_let_go_and_holds_nobody_up() -> Result<()> {
    let served = serve("").await?;
    let head = format!("POST {} HTTP/1.1\r\nhost: x\r\n", Webhook::ValidateSet.path());
    let body = format!("{head}content-length: 1000000\r\n\r\n{{");
    let cases = [(String::new(), ""), (head, ""), (body, "HTTP/1.1 408 Request Timeout")];
    let mut slow = JoinSet::new();
    for (words, farewell) in cases.into_iter().cycle().take(120) {
        let mut stream = served.open().await?;
        stream.write_all(words.as_bytes()).await?;
        slow.spawn(async move {
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).await.ok();
            assert!(
                heard.starts_with(farewell.as_bytes()),
                "{:?}",
                String::from_utf8_lossy(&heard)
            );
        });
    }
    let begun = Instant::now();
    let mut connection = Connection::over(served.open().await?).await?;
    connection.ask(Webhook::DefaultSet, any_request()).await?;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    timeout(Duration::from_secs(15), slow.join_all()).await?;
    Ok(())
}

#[tokio::test]
async fn one_address_has_so_many_connections_and_no_more() -> Result<()> {
    let served = serve("").await?;
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(served.connect(&served.material).await?);
    }
    let refused = served.connect(&served.material).await;
    assert!(refused.is_err(), "one more is taken");
    held.pop();
    let mut again = served.connect(&served.material).await;
    while again.is_err() {
        again = served.connect(&served.material).await;
    }
    again?.ask(Webhook::DefaultSet, any_request()).await?;
    Ok(())
}

/// A client that speaks nothing newer than TLS 1.1.
#[tokio::test]
async fn an_old_version_of_tls_is_turned_away() -> Result<()> {
    const HANDSHAKE: u8 = 22;
    const ALERT: u8 = 21;
    const PROTOCOL_VERSION: u8 = 70;
    let served = serve("").await?;
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    // No session, one cipher suite of that time, no compression; how signatures are made.
    hello.extend([0, 0, 2, 0, 47, 1, 0]);
    hello.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    let mut record = vec![HANDSHAKE, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
    record.extend(hello);
    let mut stream = TcpStream::connect(served.address).await?;
    stream.write_all(&record).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    assert_eq!(
        (answer[0], answer.last()),
        (ALERT, Some(&PROTOCOL_VERSION)),
        "{answer:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_renewed_certificate_serves_the_next_connection_and_old_ones_live() -> Result<()> {
    let served = serve("").await?;
    let mut before = served.connect(&served.material).await?;
    before.ask(Webhook::DefaultSet, any_request()).await?;
    let renewed = made();
    served.certificates.send_replace(Some(renewed.certificates()?));

    before.ask(Webhook::DefaultSet, any_request()).await?;
    let mut after = served.connect(&renewed).await?;
    after.ask(Webhook::DefaultSet, any_request()).await?;
    let refused = served.connect(&served.material).await;
    assert!(refused.is_err(), "the old certificate is still presented");
    Ok(())
}

#[tokio::test]
async fn when_told_to_stop_it_takes_no_more_and_ends() -> Result<()> {
    let mut served = serve("").await?;
    let mut connection = served.connect(&served.material).await?;
    connection.ask(Webhook::DefaultSet, any_request()).await?;
    served.stop.cancel();
    timeout(PATIENCE, &mut served.task).await??;
    assert!(served.connect(&served.material).await.is_err());
    Ok(())
}
