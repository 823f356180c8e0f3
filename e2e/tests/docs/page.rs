//! A page of the docs: its blocks, and what shall become of each.
//!
//! A comment right above a block says what the block itself does not:
//!
//! | comment | above | means |
//! |---|---|---|
//! | `<!-- not run: WHY -->` | any | it cannot run in a test, and why |
//! | `<!-- exit: N -->` | `sh` | its last command ends with this code, not with 0 |
//! | `<!-- keeps running -->` | `sh` | it is the demo, which the blocks after it use |
//! | `<!-- file: NAME -->` | `yaml` | it is the file of that name that the page's commands read |
//! | `<!-- output -->` | `text` | the block before it prints this; ages and domains may differ |
//!
//! `<!-- cluster: real -->` anywhere says that the page's commands run on a real control plane.

use anyhow::{Context as _, Result, bail, ensure};

/// What a test does with a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Runs its commands; the last one ends with this code.
    Run(i32),
    /// Starts it, and goes on when it has told its story.
    KeepRunning,
    /// Writes it to a file of this name.
    File(String),
    /// Lets the cluster, or the operator, judge it.
    Judge,
    /// The block before it prints this.
    Output,
    /// For people only.
    Show,
    /// Cannot be run, and why.
    NotRun(String),
}

#[derive(Debug)]
pub(crate) struct Block {
    /// Where it begins.
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) fate: Fate,
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) is_real: bool,
    pub(crate) blocks: Vec<Block>,
}

impl Page {
    /// Reads a page; fails at the first block of which it is not said what shall become of it.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut blocks = Vec::new();
        let mut note = None;
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            let Some(language) = line.trim_start().strip_prefix("```") else {
                if !line.trim().is_empty() {
                    note = comment(line);
                }
                continue;
            };
            let (line, body) = (index + 1, body(&mut lines, line.len() - line.trim_start().len()));
            let body = body.with_context(|| format!("line {line}: the block has no end"))?;
            let fate = fate(language.trim(), note.take(), &body).with_context(|| format!("line {line}"))?;
            blocks.push(Block { line, text: body, fate });
        }
        Ok(Self {
            is_real: text.lines().any(|line| comment(line) == Some("cluster: real")),
            blocks,
        })
    }
}

/// What a line that is a comment says.
fn comment(line: &str) -> Option<&str> {
    let inside = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?;
    Some(inside.trim())
}

/// The lines up to the end of a block, without its indent.
fn body<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>, indent: usize) -> Option<String> {
    let mut body = String::new();
    for (_, line) in lines {
        if line.trim() == "```" {
            return Some(body);
        }
        body.push_str(line.get(indent..).unwrap_or_default());
        body.push('\n');
    }
    None
}

fn fate(language: &str, note: Option<&str>, body: &str) -> Result<Fate> {
    let (word, rest) = note.map_or(("", ""), |note| note.split_once(':').unwrap_or((note, "")));
    let rest = rest.trim();
    Ok(match (language, word) {
        (_, "not run") => {
            ensure!(!rest.is_empty(), "say why it is not run: <!-- not run: WHY -->");
            Fate::NotRun(rest.to_owned())
        }
        ("sh", "exit") => Fate::Run(rest.parse().context("an exit code is a number")?),
        ("sh", "keeps running") => Fate::KeepRunning,
        ("yaml", "file") if !rest.is_empty() && !rest.contains('/') => Fate::File(rest.to_owned()),
        ("text", "output") => Fate::Output,
        // Another comment, which is not about the block.
        ("sh", _) => Fate::Run(0),
        ("yaml", _) if body.contains("apiVersion:") => Fate::Judge,
        ("yaml", _) => bail!("nobody can judge a part of a manifest: say which file it is, or why it is not tried"),
        ("text", _) => Fate::Show,
        ("", _) => {
            bail!("a block says what it holds: sh for commands, yaml for manifests, text for what is only shown")
        }
        (other, _) => bail!("nobody knows how to try a block of {other}; say why it is not tried"),
    })
}

/// The commands of a block; one may have several lines.
pub(crate) fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut begun = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        begun.push_str(line);
        begun.push('\n');
        if !line.ends_with('\\') {
            commands.push(std::mem::take(&mut begun));
        }
    }
    commands.extend((!begun.is_empty()).then_some(begun));
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(text: &str) -> Result<Vec<Fate>> {
        Ok(Page::parse(text)?.blocks.into_iter().map(|block| block.fate).collect())
    }

    #[test]
    fn what_becomes_of_a_block_is_said_above_it() {
        let page = "<!-- cluster: real -->\n```sh\na\n```\n\n<!-- exit: 1 -->\n```sh\nb\n```\n<!-- output -->\n```text\nc\n```\n\
                    <!-- not run: too long -->\n\n```sh\nd\n```\n<!-- file: x.yaml -->\n```yaml\na: 1\n```\n";
        let expected = [
            Fate::Run(0),
            Fate::Run(1),
            Fate::Output,
            Fate::NotRun("too long".into()),
            Fate::File("x.yaml".into()),
        ];
        assert_eq!(fates(page).unwrap(), expected);
        assert!(Page::parse(page).unwrap().is_real);
    }

    #[test]
    fn a_block_of_which_nothing_is_known_is_found_with_its_line() {
        for bad in [
            "one\n```\ngrove status\n```\n",
            "one\n```go\nx\n```\n",
            "one\n```yaml\na: 1\n```\n",
            "one\n```sh\nnever ends\n",
        ] {
            let error = format!("{:#}", fates(bad).unwrap_err());
            assert!(error.starts_with("line 2: "), "{error}");
        }
        assert!(fates("<!-- not run: -->\n```sh\na\n```\n").is_err());
        // A comment about something else, further up, says nothing of the block.
        assert_eq!(
            fates("<!-- not run: x -->\ntext\n```sh\na\n```\n").unwrap(),
            [Fate::Run(0)]
        );
    }

    #[test]
    fn a_command_may_have_several_lines() {
        assert_eq!(commands("a \\\n  b\nc # d\n"), ["a \\\n  b\n", "c # d\n"]);
    }
}
