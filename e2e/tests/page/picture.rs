//! What is painted, beside what the API says: rings, and the colours of load and of free room.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::{find_on_map, picture};

/// The nearest domains of a pending gang, all of them and no others, have a ring; without a selection none has.
pub(crate) async fn the_nearest_domains_are_ringed(browser: &mut Browser, gang: &str) -> Result<()> {
    let told = format!(
        "fetch('/api/map').then((answer) => answer.json()).then(({{ gangs }}) =>
            gangs.find((gang) => gang.name === '{gang}').pending.nearest.map((near) => near.domain).sort())"
    );
    let told = browser.eval(&told).await?;
    ensure!(
        told.as_array().is_some_and(|domains| !domains.is_empty()),
        "{gang} is near to nothing: {told}"
    );
    let ringed = "document.querySelector('#map').dataset.ringed.split(' ').map((path) => path.split('/').pop()).sort()";
    browser.until(ringed, told).await
}

/// The colours of the map's pixels around a place.
async fn colours_at(browser: &mut Browser, (x, y): (f64, f64)) -> Result<Vec<String>> {
    let sample = format!(
        "((canvas) => {{
            const {{ x, y }} = canvas.getBoundingClientRect();
            // A copy: a canvas that is read more than once would become another sort of canvas.
            const copy = document.createElement('canvas');
            const pen = copy.getContext('2d', {{ willReadFrequently: true }});
            pen.drawImage(canvas, {x} - x - 30, {y} - y - 3, 60, 6, 0, 0, 60, 6);
            const {{ data }} = pen.getImageData(0, 0, 60, 6);
            const found = new Set();
            for (let i = 0; i < data.length; i += 4) {{
                found.add('#' + [0, 1, 2].map((part) => data[i + part].toString(16).padStart(2, '0')).join(''));
            }}
            return [...found];
        }})(document.querySelector('#map canvas'))"
    );
    let colours = browser.eval(&sample).await?;
    Ok(serde_json::from_value(colours)?)
}

/// A host that is wholly in use, and one in a rack that is wholly free.
const EXTREMES: &str = "fetch('/api/map').then((answer) => answer.json()).then((map) => {
    const hosts = new Map(map.hosts.map((host) => [host.name, host]));
    const used = (name) => hosts.get(name).cells.filter((_, index) => index % 2 === 1).reduce((sum, one) => sum + one, 0);
    const racks = map.topologies[0].domains.flatMap((zone) => zone.domains.flatMap((block) => block.domains));
    const idle = racks.find((rack) => rack.hosts.every((host) => used(host) === 0));
    return { full: map.hosts.find((host) => used(host.name) === host.gpus).name, idle: idle.hosts[0] };
})";

/// Much load is dark and idle hosts have no colour; a wholly free rack has the strongest blue.
pub(crate) async fn load_and_room_have_their_colours(browser: &mut Browser) -> Result<()> {
    let extremes: Value = browser.eval(EXTREMES).await?;
    let name = |key: &str| {
        extremes[key]
            .as_str()
            .context("such a host")
            .map(|name| format!("host {name}"))
    };
    let (full, idle) = (name("full")?, name("idle")?);
    let full = find_on_map(browser, &full).await?;
    let idle = find_on_map(browser, &idle).await?;
    let ramps = "import('/colour.js').then(({ RAMPS }) => [RAMPS.load[RAMPS.load.length - 1], RAMPS.free[RAMPS.free.length - 1],
        getComputedStyle(document.documentElement).getPropertyValue('--map-free').trim()])";
    let ramps: Vec<String> = serde_json::from_value(browser.eval(ramps).await?)?;
    let [most_load, most_room, unused] = ramps.as_slice() else {
        anyhow::bail!("{ramps:?} are not three colours");
    };
    for (key, name, expected) in [
        ("2", "64-load", [(full, most_load), (idle, unused)]),
        ("3", "64-free", [(idle, most_room), (idle, most_room)]),
    ] {
        browser.press(key).await?;
        let pressed = format!("document.querySelectorAll('[data-colour]')[{key} - 1].getAttribute('aria-pressed')");
        browser.until(&pressed, json!("true")).await?;
        browser
            .eval(
                "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))",
            )
            .await?;
        browser.screenshot(&picture(name)).await?;
        for (at, colour) in expected {
            let found = colours_at(browser, at).await?;
            ensure!(found.contains(colour), "{name}: {colour} is not among {found:?}");
        }
    }
    browser.press("1").await
}
