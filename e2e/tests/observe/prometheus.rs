//! Debian's Prometheus, on free ports and a folder of its own.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use grove_e2e::eventually;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::http;
use crate::stage::{LIMIT, free_ports, spawn};

/// Another program may take the port before it does.
const TRIES: usize = 3;
const START_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Prometheus {
    port: u16,
    _process: Child,
    _folder: TempDir,
}

impl Prometheus {
    /// Scrapes these targets, by job, every second, and evaluates the rules as often.
    pub(crate) async fn start(targets: &[(&str, u16)], rules: &Path) -> Result<Self> {
        let mut last = None;
        for _ in 0..TRIES {
            match Self::try_start(targets, rules).await {
                Ok(started) => return Ok(started),
                Err(error) => last = Some(error),
            }
        }
        last.map_or_else(|| unreachable!("it was tried"), Err)
    }

    async fn try_start(targets: &[(&str, u16)], rules: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let jobs = targets.iter().map(
            |(job, port)| json!({"job_name": job, "static_configs": [{"targets": [format!("127.0.0.1:{port}")]}]}),
        );
        // YAML that is JSON.
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": jobs.collect::<Vec<_>>(),
        });
        std::fs::write(folder.path().join("prometheus.yml"), config.to_string())?;
        let [port] = free_ports()?;
        let mut command = Command::new("prometheus");
        command
            .current_dir(folder.path())
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let log = folder.path().join("log");
        let mut process = spawn(command, &log).context("is Debian's package prometheus installed?")?;
        let ready = eventually("Prometheus to be ready", START_MAX, async || {
            http::get(port, "/-/ready").await
        });
        tokio::select! {
            ready = ready => drop(ready?),
            ended = process.wait() => bail!("Prometheus ended with {}: {}", ended?, std::fs::read_to_string(&log)?),
        }
        Ok(Self {
            port,
            _process: process,
            _folder: folder,
        })
    }

    /// What it answers under a path of its API.
    pub(crate) async fn ask(&self, path: &str) -> Result<Value> {
        let text = http::get(self.port, &format!("/api/v1/{path}")).await?;
        let mut answer: Value = serde_json::from_str(&text)?;
        ensure!(answer["status"] == "success", "{path}: {text}");
        Ok(answer["data"].take())
    }

    /// The values of an expression now, by series.
    pub(crate) async fn query(&self, expression: &str) -> Result<Vec<(Value, f64)>> {
        let path = format!("query?query={}", http::encoded(expression));
        let data = self.ask(&path).await.with_context(|| expression.to_owned())?;
        let series = data["result"].as_array().context("a query has a result")?;
        let value = |series: &Value| {
            let text = series["value"][1].as_str().context("a value is a text")?;
            Ok((series["metric"].clone(), text.parse()?))
        };
        series.iter().map(value).collect()
    }

    /// Waits until an expression has a series whose value is a number.
    pub(crate) async fn until_told(&self, expression: &str) -> Result<()> {
        eventually(expression, LIMIT, async || -> Result<()> {
            let found = self.query(expression).await?;
            ensure!(found.iter().any(|(_, value)| value.is_finite()), "it is {found:?}");
            Ok(())
        })
        .await?;
        Ok(())
    }
}
