//! Chromium, driven by its own protocol (CDP) over a pipe: JSON messages, each ended by a zero byte.
//!
//! A pipe needs no port and no driver program, and a browser whose pipe closes ends by itself, however this process
//! ends. One call after the other; what the page complains about meanwhile is kept.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use grove_e2e::eventually;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The browser reads commands from descriptor 3 and answers on 4: ours are its standard input and output.
const PIPES: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

/// The tests may run as root in a container, where the browser's own sandbox cannot be set up; it sees only our page.
const FLAGS: [&str; 6] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

const ANSWER_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Browser {
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    last_id: u64,
    complaints: Vec<String>,
    /// In this order: the browser ends before its files go.
    _child: Child,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser and opens a page in it.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let profile = tempfile::tempdir()?;
        let mut child = Command::new("sh")
            .args(["-c", PIPES, "sh", "chromium"])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut browser = Self {
            commands: child.stdin.take().context("the browser has an input")?,
            answers: BufReader::new(child.stdout.take().context("the browser has an output")?),
            session: None,
            last_id: 0,
            complaints: Vec::new(),
            _child: child,
            _profile: profile,
        };
        let targets = browser
            .call("Target.getTargets", json!({}))
            .await
            .context("is chromium installed?")?;
        let targets = targets["targetInfos"].as_array().into_iter().flatten();
        let page = targets.into_iter().find(|target| target["type"] == "page");
        let page = page.context("the browser opens with a page")?["targetId"].clone();
        let attach = json!({"targetId": page, "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach).await?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            browser.call(domain, json!({})).await?;
        }
        browser.resize(1440, 900).await?;
        browser.call("Page.navigate", json!({"url": url})).await?;
        Ok(browser)
    }

    pub(crate) async fn resize(&mut self, width: u32, height: u32) -> Result<()> {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics).await?;
        Ok(())
    }

    pub(crate) async fn prefer(&mut self, scheme: &str) -> Result<()> {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features).await?;
        Ok(())
    }

    /// The value of an expression in the page; promises are waited for.
    pub(crate) async fn eval(&mut self, expression: &str) -> Result<Value> {
        let evaluate = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut answer = self.call("Runtime.evaluate", evaluate).await?;
        let thrown = &answer["exceptionDetails"];
        ensure!(thrown.is_null(), "{expression}: {thrown}");
        Ok(answer["result"]["value"].take())
    }

    /// Waits until an expression has this value.
    pub(crate) async fn until(&mut self, expression: &str, expected: Value) -> Result<()> {
        let seen = eventually(expression, ANSWER_MAX, async || {
            let value = self.eval(expression).await?;
            ensure!(value == expected, "it is {value}, not {expected}");
            Ok(())
        });
        Ok(seen.await?)
    }

    pub(crate) async fn mouse(&mut self, kind: &str, (x, y): (f64, f64)) -> Result<()> {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let event = json!({"type": kind, "x": x, "y": y, "button": button, "clickCount": 1});
        self.call("Input.dispatchMouseEvent", event).await?;
        Ok(())
    }

    pub(crate) async fn click(&mut self, at: (f64, f64)) -> Result<()> {
        self.mouse("mousePressed", at).await?;
        self.mouse("mouseReleased", at).await
    }

    /// Presses a key by its name (`Enter`, `ArrowDown`, `p`).
    pub(crate) async fn press(&mut self, key: &str) -> Result<()> {
        let text = if key.chars().count() == 1 { key } else { "" };
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        for kind in [down, "keyUp"] {
            let event = json!({"type": kind, "key": key, "text": text});
            self.call("Input.dispatchKeyEvent", event).await?;
        }
        Ok(())
    }

    pub(crate) async fn screenshot(&mut self, path: &Path) -> Result<()> {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"})).await?;
        let data = shot["data"].as_str().context("a picture is text here")?;
        std::fs::write(path, STANDARD.decode(data)?)?;
        Ok(())
    }

    /// Everything that the page reported as wrong so far.
    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    async fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.last_id += 1;
        let mut command = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&command)?;
        bytes.push(0);
        self.commands.write_all(&bytes).await?;
        let answer = tokio::time::timeout(ANSWER_MAX, self.answer());
        answer.await.with_context(|| format!("{method}: no answer"))?
    }

    async fn answer(&mut self) -> Result<Value> {
        loop {
            let mut bytes = Vec::new();
            if self.answers.read_until(0, &mut bytes).await? == 0 {
                bail!("the browser has ended");
            }
            let mut message: Value = serde_json::from_slice(bytes.strip_suffix(&[0]).unwrap_or(&bytes))?;
            if message["id"] != self.last_id {
                self.complaints.extend(complaint(&message));
                continue;
            }
            ensure!(message["error"].is_null(), "{}", message["error"]);
            return Ok(message["result"].take());
        }
    }
}

/// What an event says is wrong with the page.
fn complaint(event: &Value) -> Option<String> {
    let params = &event["params"];
    let is_bad = match event["method"].as_str()? {
        "Runtime.exceptionThrown" => true,
        "Runtime.consoleAPICalled" => matches!(params["type"].as_str(), Some("error" | "warning" | "assert")),
        "Log.entryAdded" => matches!(params["entry"]["level"].as_str(), Some("error" | "warning")),
        _ => false,
    };
    is_bad.then(|| params.to_string())
}
