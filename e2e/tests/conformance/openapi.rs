//! `/openapi/v3`: every schema that the embedded cluster publishes is what the real one says, word for word.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::case::Step;
use crate::common::RUNTIME;
use crate::target::Target;
use crate::targets;

async fn document(target: &Target, path: &str) -> Result<Value> {
    let answer = target.send(&Step::get(path)).await?;
    ensure!(answer.code == 200, "{}: {path} answers {}", target.name, answer.code);
    Ok(answer.body)
}

#[test]
fn schemas_are_described_in_the_same_words() -> Result<()> {
    RUNTIME.block_on(async {
        let [real, embedded] = targets().await?;
        let index = document(embedded, "/openapi/v3").await?;
        let (mut compared, mut different) = (0, Vec::new());
        for path in index["paths"].as_object().context("no paths")?.keys() {
            let path = format!("/openapi/v3/{path}");
            let (real, embedded) = (document(real, &path).await?, document(embedded, &path).await?);
            let theirs = &real["components"]["schemas"];
            let ours = embedded["components"]["schemas"].as_object().context("no schemas")?;
            compared += ours.len();
            let odd = ours.iter().filter(|(name, schema)| theirs[name.as_str()] != **schema);
            different.extend(odd.map(|(name, _)| format!("{path} {name}")));
        }
        println!("{compared} schemas");
        ensure!(different.is_empty(), "these differ:\n{}", different.join("\n"));
        Ok(())
    })
}
