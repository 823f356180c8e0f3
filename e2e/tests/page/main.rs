//! The page in a browser: what it shows is what the API says, it follows, and people who do not see it can use it too.
//!
//! Pictures of it are kept in the target directory (`page/*.png`), for people to look at.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where it stopped")]

mod axe;
mod browser;
mod city;
#[path = "../common/demo.rs"]
mod demo;
mod picture;
mod stream;
mod ways;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use grove_api::PodCliqueScalingGroup;
use grove_e2e::binary_for_test;
use grove_e2e::kit::{Kit, Program};
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::process::Command;

use browser::Browser;
use city::City;
use demo::Demo;

/// Domains and hosts in the API's answer, counted in the page.
const COUNTS: &str = "fetch('/api/map').then((answer) => answer.json()).then((map) => {
    const count = (domains) => domains.reduce((sum, one) => sum + 1 + count(one.domains ?? []), 0);
    const used = (host) => host.cells.filter((_, index) => index % 2 === 1).reduce((sum, one) => sum + one, 0);
    return {
        domains: count(map.topologies[0].domains),
        hosts: map.hosts.length,
        used: map.hosts.reduce((sum, host) => sum + used(host), 0),
        pods: map.gangs.reduce((sum, gang) => sum + gang.pods, 0),
        placed: map.gangs.reduce((sum, gang) => sum + gang.placed, 0),
    };
})";

/// Changes that are watched at ten thousand hosts.
const NEWS: usize = 20;

/// A tree to which the hosts' use was brought later, beside one that was built of it.
const REFRESHED: &str = "Promise.all([import('/world.js'), fetch('/api/map').then((answer) => answer.json())])
    .then(([{ World, below }, map]) => {
        const world = new World();
        world.load({ ...map, hosts: map.hosts.map((host) => ({ ...host, cells: [], state: 'cordoned' })) });
        const { name } = map.topologies[0];
        const later = world.tree(name);
        const change = { hosts: map.hosts };
        world.apply(change);
        if (!world.refresh(later, change)) return 'it was not brought up to date';
        const facts = (root) => JSON.stringify([...below(root)].map(({ path, gpus, used, hostCount, freeHosts, gangs }) =>
            [path, gpus, used, hostCount, freeHosts, [...gangs].sort(([a], [b]) => a - b)]));
        return { sums: facts(later) === facts(world.tree(name)), hosts: later.hostCount };
    })";

fn picture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(format!("{name}.png"))
}

async fn loaded(page: &str) -> Result<Browser> {
    let mut browser = Browser::open(page).await?;
    browser
        .until("document.body?.dataset.loaded ?? 'not yet'", json!("true"))
        .await?;
    browser
        .until(
            "Number(document.querySelector('#map').dataset.boxes ?? 0) > 0",
            json!(true),
        )
        .await?;
    Ok(browser)
}

async fn text(browser: &mut Browser, selector: &str) -> Result<String> {
    let value = browser
        .eval(&format!("document.querySelector({selector:?})?.innerText ?? ''"))
        .await?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}

/// Moves the pointer over the map until the tooltip has these words; the place where it had.
async fn find_on_map(browser: &mut Browser, words: &str) -> Result<(f64, f64)> {
    let rect = browser
        .eval("(({x, y, width, height}) => [x, y, width, height])(document.querySelector('#map').getBoundingClientRect())")
        .await?;
    let side = |index: usize| rect[index].as_f64().unwrap_or_default();
    let (columns, rows) = (60, 40);
    for step in 0..columns * rows {
        let across = f64::from(step % columns) + 0.5;
        let down = f64::from(step / columns) + 0.5;
        let at = (
            side(0) + side(2) * across / f64::from(columns),
            side(1) + side(3) * down / f64::from(rows),
        );
        browser.mouse("mouseMoved", at).await?;
        if text(browser, ".tooltip").await?.contains(words) {
            return Ok(at);
        }
    }
    anyhow::bail!("no place of the map says {words:?}")
}

#[tokio::test]
async fn the_page_shows_explains_and_follows() -> Result<()> {
    let grove = tokio::task::spawn_blocking(|| binary_for_test("grove")).await??;
    let mut command = Command::new(grove);
    command.arg("demo");
    let demo = Demo::start(command).await?;
    kubectl_lists_what_runs_where(&demo).await?;
    let mut browser = loaded(&demo.page).await?;
    counts_are_those_of_the_api(&mut browser).await?;
    ways::the_story_so_far_is_told(&mut browser).await?;
    a_gang_shows_its_pods_and_nodes(&mut browser).await?;
    a_pending_gang_tells_why(&mut browser).await?;
    picture::load_and_room_have_their_colours(&mut browser).await?;
    the_outline_can_be_walked(&mut browser).await?;
    ways::a_word_finds_what_is_called_so(&mut browser).await?;
    ways::a_rack_leads_to_its_gangs(&mut browser).await?;
    ways::another_topology_draws_another_map(&demo, &mut browser).await?;
    the_page_follows_a_scale_out(&demo, &mut browser).await?;
    nobody_is_left_out(&mut browser).await?;
    ensure!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
    demo.interrupt().await
}

/// kubectl itself, with the kubeconfig that the demo prints: pods, gangs, and the nodes that they are on.
async fn kubectl_lists_what_runs_where(demo: &Demo) -> Result<()> {
    let kit = tokio::task::spawn_blocking(Kit::ready).await??;
    let list = async |args: &[&str]| -> Result<Vec<String>> {
        let mut kubectl = Command::new(kit.path(Program::Kubectl));
        kubectl.arg("--kubeconfig").arg(&demo.kubeconfig).arg("get").args(args);
        let output = kubectl.arg("--no-headers").output().await?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{args:?}: {complaint}");
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    };
    let nodes = list(&["nodes", "--output", "custom-columns=:.metadata.name"]).await?;
    ensure!(nodes.len() == 64, "{nodes:#?}");
    let pods = list(&["pods", "--output", "custom-columns=:.spec.nodeName"]).await?;
    let placed = pods.iter().filter(|node| nodes.contains(node)).count();
    ensure!(
        (pods.len(), placed) == (25, 20),
        "{placed} of {} pods are on a node",
        pods.len()
    );
    // One each, four of the group that grew, and one that waits.
    let gangs = list(&["podgangs"]).await?;
    ensure!(gangs.len() == 7, "{gangs:#?}");
    Ok(())
}

async fn counts_are_those_of_the_api(browser: &mut Browser) -> Result<()> {
    let counts = browser.eval(COUNTS).await?;
    // 2 zones, 4 blocks, 16 racks; 7 pods, 8 pods, 5 of a graph, and 5 that wait.
    let used = 6 * 8 + 8 * 8 + 2 * 4 + 2 * 8;
    let expected = json!({"domains": 22, "hosts": 64, "used": used, "pods": 25, "placed": 20});
    ensure!(counts == expected, "{counts}");
    let boxes = browser
        .eval("Number(document.querySelector('#map').dataset.boxes)")
        .await?;
    ensure!(boxes == 22, "{boxes} domains are drawn");
    let summary = text(browser, "#summary").await?;
    for words in ["64", "136 / 512", "1 waits"] {
        let told = summary.replace('\n', " ");
        ensure!(told.contains(words), "{words:?} is not in {told:?}");
    }
    browser.screenshot(&picture("64-light")).await?;
    browser.prefer("dark").await?;
    browser.screenshot(&picture("64-dark")).await?;
    browser.prefer("light").await
}

/// From the map to the gang: the pointer says whose a cell is, and a click tells all about it.
async fn a_gang_shows_its_pods_and_nodes(browser: &mut Browser) -> Result<()> {
    let at = find_on_map(browser, "gang llama-disagg-0").await?;
    browser.click(at).await?;
    browser
        .until("document.querySelectorAll('.pods tbody tr').length", json!(7))
        .await?;
    let shown = text(browser, "#gangs").await?;
    ensure!(
        shown.contains("llama-disagg-0-prefill") && shown.contains("one rack"),
        "{shown}"
    );
    let hosts = browser
        .eval("[...document.querySelectorAll('.pods tbody tr')].map((row) => row.cells[1].innerText).sort()")
        .await?;
    let told = browser
        .eval("fetch('/api/gangs/default/llama-disagg-0/pods').then((a) => a.json()).then((pods) => pods.map((pod) => pod.host).sort())")
        .await?;
    ensure!(
        hosts == told && !hosts.to_string().contains("no host"),
        "{hosts}, not {told}"
    );
    let address = browser.eval("location.search").await?;
    ensure!(address == "?sel=gang%3Adefault%2Fllama-disagg-0", "{address}");
    browser.screenshot(&picture("64-gang")).await?;
    browser.eval("history.back()").await?;
    browser
        .until("document.querySelector('#gangs h2').innerText", json!("Pending (1)"))
        .await
}

async fn a_pending_gang_tells_why(browser: &mut Browser) -> Result<()> {
    browser.press("p").await?;
    browser
        .until("document.querySelector('.callout') !== null", json!(true))
        .await?;
    let shown = text(browser, "#gangs").await?;
    for words in [
        "moe-giant-0",
        "TooLarge",
        "5 pods",
        "Waiting will not help",
        "It would run if",
    ] {
        ensure!(shown.contains(words), "{words:?} is not in {shown}");
    }
    picture::the_nearest_domains_are_ringed(browser, "moe-giant-0").await?;
    browser.screenshot(&picture("64-pending")).await?;
    axe::check(browser, "with a pending gang").await?;
    browser.press("Escape").await
}

/// Without a pointer: the tree of domains by keys, down to the hosts of a rack.
async fn the_outline_can_be_walked(browser: &mut Browser) -> Result<()> {
    browser.eval("document.querySelector('#tab-domains').click()").await?;
    browser
        .until("document.querySelectorAll('[role=treegrid] tbody tr').length", json!(6))
        .await?;
    browser
        .eval("document.querySelector('[role=treegrid] tbody tr').focus()")
        .await?;
    // Zone, block (opens), rack (opens), host.
    for key in ["ArrowDown", "ArrowRight", "ArrowDown", "ArrowRight", "ArrowDown"] {
        browser.press(key).await?;
        browser
            .eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            .await?;
    }
    let row = browser.eval("document.activeElement.innerText").await?;
    ensure!(
        row.as_str().is_some_and(|row| row.starts_with("host z1b1r1h1")),
        "{row}"
    );
    let level = browser
        .eval("document.activeElement.getAttribute('aria-level')")
        .await?;
    ensure!(level == "4", "{level}");
    axe::check(browser, "with the outline open").await?;
    browser.screenshot(&picture("64-outline")).await?;
    browser.eval("document.querySelector('#tab-gangs').click()").await?;
    Ok(())
}

async fn client(demo: &Demo) -> Result<Client> {
    let found = Kubeconfig::read_from(&demo.kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(found, &KubeConfigOptions::default()).await?;
    // The way to loopback never leads through the proxy that the environment may name.
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

async fn the_page_follows_a_scale_out(demo: &Demo, browser: &mut Browser) -> Result<()> {
    let gangs = "document.querySelectorAll('[data-gang^=qwen-elastic]').length";
    browser.until(gangs, json!(4)).await?;
    let groups: Api<PodCliqueScalingGroup> = Api::default_namespaced(client(demo).await?);
    let scale = json!({"spec": {"replicas": 5}});
    let begun = Instant::now();
    groups
        .patch_scale("qwen-elastic-0-server", &PatchParams::default(), &Patch::Merge(&scale))
        .await?;
    browser.until(gangs, json!(5)).await?;
    println!("seen on the page after {} ms", begun.elapsed().as_millis());
    let used = "document.querySelector('[data-fact=gpus] strong').innerText";
    browser.until(used, json!("152 / 512")).await
}

async fn nobody_is_left_out(browser: &mut Browser) -> Result<()> {
    axe::check(browser, "in light").await?;
    browser.prefer("dark").await?;
    axe::check(browser, "in dark").await?;
    browser.press("?").await?;
    browser
        .until("document.querySelector('#help').open", json!(true))
        .await?;
    axe::check(browser, "with the help").await?;
    browser.press("Escape").await?;
    browser.eval("document.querySelector('#help').close()").await?;
    browser.prefer("light").await?;
    browser.resize(360, 740).await?;
    let wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth";
    browser.until(wide, json!(true)).await?;
    // A canvas that gets another size loses its picture; it has a new one in the same frame.
    let is_drawn = "(({width, height}, pen) => pen.getImageData(0, 0, width, height).data.some((one) => one > 0))(
        document.querySelector('#map canvas'), document.querySelector('#map canvas').getContext('2d'))";
    ensure!(
        browser.eval(is_drawn).await? == true,
        "the map is empty on a narrow screen"
    );
    browser.screenshot(&picture("narrow")).await?;
    axe::check(browser, "on a narrow screen").await?;
    // The new gangs run by now or soon, and whoever listens is told.
    let said = "document.querySelector('[aria-live=polite]').textContent.startsWith('qwen-elastic-0')";
    browser.until(said, json!(true)).await
}

/// Ten thousand hosts: the map is there soon, and nothing that a reader does takes longer than he notices.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_hosts_do_not_stutter() -> Result<()> {
    let city = City::start(city::HOSTS, city::GANGS).await?;
    let begun = Instant::now();
    let mut browser = loaded(&city.page).await?;
    println!("loaded after {} ms, browser included", begun.elapsed().as_millis());
    let expected = json!({"domains": 5 + 40 + 625, "hosts": city::HOSTS, "used": 32 * city::GANGS,
        "pods": 4 * city::GANGS, "placed": 4 * city::GANGS});
    browser.until(COUNTS, expected).await?;
    browser
        .until("Number(document.querySelector('#map').dataset.boxes)", json!(670))
        .await?;
    browser.screenshot(&picture("10000-light")).await?;
    for key in ["2", "3", "1"] {
        browser.press(key).await?;
        fast_frame(&mut browser, &format!("colours of key {key}")).await?;
    }
    news_do_not_stutter(&city, &mut browser).await?;
    browser.prefer("dark").await?;
    browser.screenshot(&picture("10000-dark")).await?;
    // Into a block: its racks are drawn host by host, and GPU by GPU.
    let block = find_on_map(&mut browser, "block z1b1").await?;
    browser.click(block).await?;
    let enter = "[...document.querySelectorAll('button')].find((one) => one.innerText === 'Show it alone')";
    browser.until(&format!("{enter} !== undefined"), json!(true)).await?;
    browser.eval(&format!("{enter}.click()")).await?;
    browser
        .until(
            "document.querySelector('#crumbs').innerText.includes('z1b1')",
            json!(true),
        )
        .await?;
    fast_frame(&mut browser, "a block").await?;
    browser.screenshot(&picture("10000-block")).await?;
    axe::check(&mut browser, "with ten thousand hosts").await?;
    ensure!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
    Ok(())
}

/// Gangs come one after the other while somebody looks. A task of more than 50 ms counts as long; that is the goal on a
/// calm machine, and the bound is for one that compiles meanwhile.
async fn news_do_not_stutter(city: &City, browser: &mut Browser) -> Result<()> {
    let observe = "(() => { window.longTasks = []; new PerformanceObserver((list) =>
        window.longTasks.push(...list.getEntries().map((one) => one.duration))).observe({type: 'longtask'}); })()";
    browser.eval(observe).await?;
    let used = "document.querySelector('[data-fact=gpus] strong').innerText.split(' / ')[0].replace(',', '')";
    for step in 1..=NEWS {
        city.grow(city::GANGS + step)?;
        // One by one: news of the same quarter of a second would be joined.
        let seen = 32 * (city::GANGS + step);
        browser.until(used, json!(seen.to_string())).await?;
    }
    let tasks = browser.eval("window.longTasks").await?;
    let tasks: Vec<f64> = tasks
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
        .collect();
    let longest = tasks.iter().copied().fold(0.0, f64::max);
    println!(
        "{NEWS} changes: {} tasks over 50 ms, the longest {longest} ms",
        tasks.len()
    );
    ensure!(longest < 400.0, "a change takes {longest} ms: {tasks:?}");
    // What was brought up to date step by step is what would be built anew.
    let compared = browser.eval(REFRESHED).await?;
    ensure!(compared == json!({"sums": true, "hosts": city::HOSTS}), "{compared}");
    Ok(())
}

/// Draws once more; more than a quarter of a second would be felt even on a busy machine.
async fn fast_frame(browser: &mut Browser, what: &str) -> Result<()> {
    let draw = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
        done(Number(document.querySelector('#map').dataset.frameMs)))))";
    let taken = browser.eval(draw).await?.as_f64().context("a picture was drawn")?;
    println!("{what}: drawn in {taken} ms");
    ensure!(taken < 250.0, "{what}: drawing takes {taken} ms");
    Ok(())
}
