//! Every command in the docs runs, every manifest is accepted, and what is shown as output is printed.
//!
//! The blocks are taken from the pages as they are; `page` says how a page marks one that is not run, and why not. The
//! demo that the README starts is the cluster of all pages but those that need a real one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where it stopped")]

#[path = "../common/demo.rs"]
mod demo;
mod page;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use grove_e2e::{ControlPlane, Shared};
use regex::Regex;

use demo::Demo;
use page::{Block, Fate, Page};
use stage::{Stage, root};

static PLANE: Shared = Shared::new(|| ControlPlane::builder().nodes(50).scheduler(true));

/// The pages, the README first, by their paths below the root.
fn pages() -> Result<Vec<(PathBuf, Page)>> {
    let mut paths = vec![PathBuf::from("README.md"), PathBuf::from("CONTRIBUTING.md")];
    let mut found = Vec::new();
    collect(Path::new("docs"), &mut found)?;
    found.sort();
    paths.extend(found);
    let read = |path: PathBuf| -> Result<(PathBuf, Page)> {
        let text = fs::read_to_string(root().join(&path))?;
        let page = Page::parse(&text).with_context(|| path.display().to_string())?;
        Ok((path, page))
    };
    paths.into_iter().map(read).collect()
}

/// All pages in a folder, and in those in it.
fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in root().join(folder).read_dir()? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            into.push(path);
        }
    }
    Ok(())
}

/// Reads pages one after the other and does what they say; what went wrong.
async fn follow(stage: &Stage, pages: &[&(PathBuf, Page)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, page) in pages {
        let mut printed = String::new();
        for block in &page.blocks {
            let begun = Instant::now();
            let outcome = try_out(stage, page.is_real, block, &mut printed).await;
            let at = format!("{}:{}", path.display(), block.line);
            match (outcome, &block.fate) {
                (Err(error), _) => wrong.push(format!("{at}: {error:#}")),
                (Ok(()), Fate::NotRun(why)) => println!("{at} is not run: {why}"),
                (Ok(()), _) => println!("{at} {:.1} s", begun.elapsed().as_secs_f64()),
            }
        }
    }
    wrong
}

/// Does what one block says. `printed` is what the block before it printed.
async fn try_out(stage: &Stage, is_real: bool, block: &Block, printed: &mut String) -> Result<()> {
    match &block.fate {
        Fate::Run(code) => *printed = stage.run(is_real, &block.text, *code).await?,
        Fate::File(name) => stage.write(name, &block.text)?,
        Fate::Judge => stage.judge(is_real, &block.text).await?,
        Fate::Output => {
            let (shown, lines) = (masked(&block.text), masked(printed));
            let found = lines.windows(shown.len()).any(|lines| lines == shown);
            ensure!(found, "it shows\n{}\nand it prints\n{printed}", block.text);
        }
        // The demo runs since the start.
        Fate::KeepRunning | Fate::Show | Fate::NotRun(_) => {}
    }
    Ok(())
}

/// Lines without ages, and without what depends on who came first: in which domains gangs are.
fn masked(text: &str) -> Vec<String> {
    let varies = Regex::new(r"\b(\d+[smhd])+\b|\bz\d+b\d+\w*(\s+z\d+b\d+\w*)*").expect("an expression");
    let mask = |line: &str| {
        let line = varies.replace_all(line, "*");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    text.lines().map(mask).collect()
}

/// Starts the demo as a page says.
async fn start_demo(stage: &mut Stage, pages: &[(PathBuf, Page)]) -> Result<Demo> {
    let mut blocks = pages.iter().flat_map(|(_, page)| &page.blocks);
    let block = blocks.find(|block| block.fate == Fate::KeepRunning);
    let block = block.context("no page starts the demo")?;
    let demo = Demo::start(stage.shell(&format!("exec {}", block.text))).await?;
    ensure!(
        demo.page.starts_with("http://127.0.0.1:"),
        "the map is at {}",
        demo.page
    );
    stage.demo = demo.kubeconfig.clone();
    Ok(demo)
}

/// Whether a page needs the real control plane.
fn needs_plane(page: &Page) -> bool {
    page.is_real || page.blocks.iter().any(|block| block.text.contains("cargo xtask kit"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_block_of_the_docs_does_what_it_says() -> Result<()> {
    let pages = pages()?;
    let mut stage = Stage::build(PLANE.get().await?).await?;
    let demo = start_demo(&mut stage, &pages).await?;
    // What is read at the same time shares no cluster but for manifests that are only judged.
    let (mut real, embedded): (Vec<_>, Vec<_>) = pages.iter().partition(|(_, page)| needs_plane(page));
    // Those that install the kinds by themselves come after the one that lets Helm do it, and takes them away again.
    real.sort_by_key(|(_, page)| !page.is_real);
    let (mut wrong, more) = tokio::join!(follow(&stage, &real), follow(&stage, &embedded));
    wrong.extend(more);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let blocks = pages.iter().flat_map(|(_, page)| &page.blocks);
    let ran = blocks
        .filter(|block| matches!(block.fate, Fate::Run(_) | Fate::Judge))
        .count();
    ensure!(ran > 25, "only {ran} blocks were found");
    demo.interrupt().await
}
