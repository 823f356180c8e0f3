//! The news: a stream that breaks is told of and mended, and nothing is mistaken for something else after it.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::city::City;
use crate::{loaded, picture, text};

/// The colours that the list shows beside the gangs.
const COLOURS: &str = "Object.fromEntries([...document.querySelectorAll('#gangs [data-gang]')].map((row) =>
    [row.dataset.gang, row.querySelector('.swatch').style.getPropertyValue('--colour')]))";
const CONNECTION: &str = "document.querySelector('#connection').dataset.state";
const TITLE: &str = "document.querySelector('#gangs h2')?.innerText.split('\\n')[0]";

fn choose(gang: &str) -> String {
    format!("document.querySelector('#gangs [data-gang=\"{gang}\"]').click()")
}

/// A server that starts again numbers gangs otherwise. Who looks at one goes on looking at it, in its colour.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_stream_is_told_and_mended() -> Result<()> {
    let city = City::start(64, 6).await?;
    let mut browser = loaded(&city.page).await?;
    browser
        .until(&format!("Object.keys({COLOURS}).length"), json!(6))
        .await?;
    let before = browser.eval(COLOURS).await?;
    browser.eval(&choose("model-3-3")).await?;
    browser.until(TITLE, json!("model-3-3")).await?;
    let (city, ()) = city
        .restart_page(async || {
            browser.until(CONNECTION, json!("lost")).await?;
            browser.screenshot(&picture("64-lost")).await
        })
        .await?;
    browser.until(CONNECTION, json!("live")).await?;
    // Its pods, by themselves, and still those of the gang that was chosen.
    browser
        .until("document.querySelectorAll('.pods tbody tr').length", json!(4))
        .await?;
    let shown = text(&mut browser, "#gangs").await?;
    ensure!(
        shown.contains("model-3-3-0") && shown.contains("model-3-3-3"),
        "{shown}"
    );
    browser.press("Escape").await?;
    browser
        .until(&format!("Object.keys({COLOURS}).length"), json!(7))
        .await?;
    let after = browser.eval(COLOURS).await?;
    for (gang, colour) in before.as_object().into_iter().flatten() {
        ensure!(after[gang] == *colour, "{gang} was {colour} and is {}", after[gang]);
    }
    // The browser says itself that it could not reach the server; nothing else may be wrong.
    let others = browser
        .complaints()
        .iter()
        .filter(|complaint| !complaint.contains("net::ERR"));
    let others: Vec<&String> = others.collect();
    ensure!(others.is_empty(), "{others:#?}");
    drop(city);
    Ok(())
}
