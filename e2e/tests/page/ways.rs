//! Ways through the page: from a word to what is called so, from a rack to its gangs, from one topology to another.

use anyhow::{Context, Result, ensure};
use grove_api::ClusterTopology;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::demo::Demo;
use crate::{axe, client, find_on_map, picture, text};

const HEADS: &str = "[...document.querySelectorAll('#gangs h2')].map((head) => head.innerText)";

/// Types into the field of the search as a person does.
async fn search(browser: &mut Browser, words: &str) -> Result<()> {
    browser.press("/").await?;
    browser.until("document.activeElement.id", json!("search")).await?;
    for letter in words.chars() {
        browser.press(&letter.to_string()).await?;
    }
    browser
        .until("document.querySelector('#search').value", json!(words))
        .await
}

async fn clear(browser: &mut Browser) -> Result<()> {
    browser.press("Escape").await?;
    browser.eval("document.activeElement.blur()").await?;
    browser
        .until("document.querySelector('#search').value", json!(""))
        .await
}

/// A part of a name finds gangs, domains and hosts; the first of them is one key away.
pub(crate) async fn a_word_finds_what_is_called_so(browser: &mut Browser) -> Result<()> {
    search(browser, "z2b1r1").await?;
    browser.until(HEADS, json!(["Domains (1)", "Hosts (4)"])).await?;
    axe::check(browser, "with what was found").await?;
    browser.screenshot(&picture("64-search")).await?;
    clear(browser).await?;
    search(browser, "nobody").await?;
    browser.until(HEADS, json!(["Nothing is called so"])).await?;
    clear(browser).await?;
    // By the reason too, and on to the gang.
    search(browser, "toolarge").await?;
    browser.until(HEADS, json!(["Gangs (1)"])).await?;
    browser.press("Enter").await?;
    browser
        .until("document.querySelector('.callout') !== null", json!(true))
        .await?;
    let address = browser.eval("location.search").await?;
    ensure!(address == "?sel=gang%3Adefault%2Fmoe-giant-0", "{address}");
    clear(browser).await
}

/// What happened before the page was opened is told too, and what waits says at once whether waiting helps.
pub(crate) async fn the_story_so_far_is_told(browser: &mut Browser) -> Result<()> {
    let card = text(browser, "#gangs .card").await?;
    ensure!(card.contains("Waiting will not help"), "{card}");
    browser.eval("document.querySelector('#tab-activity').click()").await?;
    let told = "document.querySelectorAll('#activity li').length";
    browser.until(told, json!(7)).await?;
    let told = text(browser, "#activity").await?;
    for words in [
        "moe-giant-0 waits: needs 5 pods",
        "llama-disagg-0 runs in block",
        "dgd-vllm-0 runs in",
    ] {
        ensure!(told.contains(words), "{words:?} is not in {told}");
    }
    browser.screenshot(&picture("64-activity")).await?;
    axe::check(browser, "with what happened").await?;
    browser.eval("document.querySelector('#tab-gangs').click()").await?;
    browser.until(HEADS, json!(["Pending (1)", "Placed (6)"])).await
}

/// The rack that a clique of a gang lies in.
async fn rack_of(browser: &mut Browser, clique: &str) -> Result<String> {
    let scopes = browser
        .eval(
            "fetch('/api/map').then((answer) => answer.json()).then((map) => map.gangs.flatMap((gang) => gang.scopes))",
        )
        .await?;
    let scope = scopes
        .as_array()
        .into_iter()
        .flatten()
        .find(|scope| scope["name"] == clique);
    let places = scope
        .and_then(|scope| scope["placement"].as_array())
        .into_iter()
        .flatten();
    let rack = places.into_iter().find(|place| place["level"] == "rack");
    let rack = rack.and_then(|place| place["domains"][0].as_str());
    Ok(rack
        .with_context(|| format!("{clique} lies in no rack: {scopes:#}"))?
        .to_owned())
}

/// From a rack on the map to its gangs, and on to their pods.
pub(crate) async fn a_rack_leads_to_its_gangs(browser: &mut Browser) -> Result<()> {
    let rack = rack_of(browser, "llama-disagg-0-prefill").await?;
    let at = find_on_map(browser, &format!("rack {rack}")).await?;
    browser.click(at).await?;
    browser.until(HEADS, json!([format!("rack {rack}")])).await?;
    let shown = text(browser, "#gangs").await?;
    for words in ["32 of 32 in use", "0 of 4", "Gangs (1)", "llama-disagg-0"] {
        ensure!(shown.contains(words), "{words:?} is not in {shown:?}");
    }
    axe::check(browser, "with a rack").await?;
    browser.screenshot(&picture("64-rack")).await?;
    browser
        .eval("document.querySelector('#gangs [data-gang=llama-disagg-0]').click()")
        .await?;
    browser
        .until("document.querySelectorAll('.pods tbody tr').length", json!(7))
        .await?;
    browser.press("Escape").await
}

/// A second topology appears by itself; the map is drawn by it when it is chosen, and the address says so.
pub(crate) async fn another_topology_draws_another_map(demo: &Demo, browser: &mut Browser) -> Result<()> {
    let options = "[...document.querySelectorAll('#topology option')].map((one) => one.value)";
    let boxes = "Number(document.querySelector('#map').dataset.boxes)";
    browser.until(options, json!(["grove-topology"])).await?;
    let levels = json!([{"domain": "zone", "key": "topology.kubernetes.io/zone"}, {"domain": "host", "key": "kubernetes.io/hostname"}]);
    let object: Value = json!({"metadata": {"name": "zones-only"}, "spec": {"levels": levels}});
    let topologies: Api<ClusterTopology> = Api::all(client(demo).await?);
    topologies
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    browser.until(options, json!(["grove-topology", "zones-only"])).await?;
    let choose = |name: &str| {
        format!(
            "((field) => {{ field.value = {name:?}; field.dispatchEvent(new Event('change', {{bubbles: true}})); }})(document.querySelector('#topology'))"
        )
    };
    browser.eval(&choose("zones-only")).await?;
    browser.until(boxes, json!(2)).await?;
    let address = browser.eval("location.search").await?;
    ensure!(address == "?t=zones-only", "{address}");
    // The rack that the pointer was on is not there any more.
    browser
        .until("document.querySelector('.tooltip').hidden", json!(true))
        .await?;
    browser.screenshot(&picture("64-zones-only")).await?;
    browser.eval("history.back()").await?;
    browser.until(boxes, json!(22)).await?;
    // Who looks by a topology that is taken away is shown another one.
    browser.eval(&choose("zones-only")).await?;
    browser.until(boxes, json!(2)).await?;
    topologies.delete("zones-only", &DeleteParams::default()).await?;
    browser.until(options, json!(["grove-topology"])).await?;
    browser.until(boxes, json!(22)).await?;
    browser
        .eval("history.replaceState(null, '', location.pathname)")
        .await?;
    Ok(())
}
