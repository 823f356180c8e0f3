//! The news: a stream that breaks is told of and mended, nothing is mistaken for something else after it, and there is
//! never more than one.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::browser::Browser;
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
    let (city, ()) = city
        .restart_page(async || {
            browser.until(CONNECTION, json!("lost")).await?;
            // What is asked of a server that is gone is not waited for without end.
            browser.eval(&choose("model-3-3")).await?;
            browser.until(TITLE, json!("model-3-3")).await?;
            let pods = "document.querySelector('#gangs').innerText.includes('The server does not answer')";
            browser.until(pods, json!(true)).await?;
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

/// A browser that gives up, and a reader who looks away and back before the next try: one stream in the end.
const GIVEN_UP: &str = "import('/stream.js').then(async ({ follow }) => {
    const sources = [];
    window.EventSource = class extends EventTarget {
        static CLOSED = 2;
        readyState = 1;
        constructor() { super(); sources.push(this); }
        close() { this.readyState = 2; }
    };
    const waiting = new Map();
    window.setTimeout = (act) => { const id = waiting.size + 1; waiting.set(id, act); return id; };
    window.clearTimeout = (id) => waiting.delete(id);
    const look = (hidden) => {
        Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
    };
    follow({ map() {}, change() {}, state() {} });
    sources[0].readyState = 2;
    sources[0].dispatchEvent(new Event('error'));
    const tries = waiting.size;
    look(true);
    look(false);
    for (const act of [...waiting.values()]) act();
    return { tries, open: sources.filter((source) => source.readyState !== 2).length };
})";

#[tokio::test(flavor = "multi_thread")]
async fn there_is_one_stream_whoever_opens_it_again() -> Result<()> {
    let city = City::start(4, 0).await?;
    let mut browser = Browser::open(&format!("{}/icon.svg", city.page)).await?;
    browser.until("document.readyState", json!("complete")).await?;
    let seen: Value = browser.eval(GIVEN_UP).await?;
    ensure!(seen == json!({"tries": 1, "open": 1}), "{seen}");
    Ok(())
}
