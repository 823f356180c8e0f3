//! The configuration file, judged as an administrator meets it: files in, messages or resolved values out.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use grove_api::config::{ConfigError, FILE_BYTES_MAX, Loaded, OperatorConfiguration, Overrides, TopologySource, parse};
use grove_api::topology::DomainWord;
use proptest::prelude::*;

/// The fixture files of one folder, as (name, content), sorted by name.
fn fixtures(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/config")
        .join(folder);
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_stem().unwrap().to_str().unwrap().to_owned(),
                fs::read(&path).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

fn parse_file(file: &[u8]) -> Result<Loaded, Vec<ConfigError>> {
    parse(file, &Overrides::default())
}

fn lines(errors: &[ConfigError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn with_flag(name: &str) -> Overrides {
    Overrides {
        topology_domain_name: Some(name.into()),
    }
}

// shows: V3-31, V3-32, V3-33, V3-34, V3-35, V3-94, G244-34, G244-35, G244-36
/// Invariant 6.
#[test]
fn every_bad_file_is_refused_with_these_words() {
    let mut report = String::new();
    for (name, content) in fixtures("bad") {
        let errors = parse_file(&content).expect_err(&name);
        writeln!(report, "# {name}").unwrap();
        for line in lines(&errors) {
            assert!(!line.contains('\n'), "{name}: a problem is one line: {line:?}");
            writeln!(report, "{line}").unwrap();
        }
    }
    insta::assert_snapshot!("bad", report);
}

#[test]
fn an_empty_configuration_resolves_to_these_defaults() {
    let loaded = parse_file(&fs::read(fixture("good/defaults")).unwrap()).unwrap();
    insta::assert_snapshot!("defaults", serde_saphyr::to_string(&loaded.configuration).unwrap());
}

// shows: G244-32, G244-5
#[test]
fn every_good_file_resolves_to_these_values() {
    let defaults = parse_file(&fs::read(fixture("good/defaults")).unwrap()).unwrap();
    let defaults = serde_json::to_value(defaults.configuration).unwrap();
    let mut report = String::new();
    for (name, content) in fixtures("good") {
        let Loaded {
            configuration,
            warnings,
        } = parse_file(&content).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        writeln!(report, "# {name}").unwrap();
        for warning in warnings {
            writeln!(report, "# warning: {warning}").unwrap();
        }
        // The parts that are not as in the snapshot of the defaults.
        let mut values = serde_json::to_value(configuration).unwrap();
        values
            .as_object_mut()
            .unwrap()
            .retain(|key, value| defaults.get(key) != Some(value));
        writeln!(report, "{}", serde_saphyr::to_string(&values).unwrap()).unwrap();
    }
    insta::assert_snapshot!("good", report);
}

#[test]
fn both_spellings_of_the_topology_mean_the_same() {
    let old = parse_file(&fs::read(fixture("good/old-spelling-rack-and-host")).unwrap()).unwrap();
    let text = fs::read_to_string(fixture("good/old-spelling-rack-and-host")).unwrap();
    let new = parse_file(text.replace("topology:\n", "topologyAwareScheduling:\n").as_bytes()).unwrap();
    assert_eq!(old.configuration, new.configuration);
    assert_eq!(new.warnings, Vec::<String>::new());
    assert_eq!(old.warnings.len(), 1);
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/config")
        .join(name)
        .with_extension("yaml")
}

// shows: V2-2, V1-15
#[test]
fn the_flag_selects_a_topology_domain_over_the_file() {
    let file = b"topologyAwareScheduling: {enabled: false, source: ClusterTopology}";
    let loaded = parse(file, &with_flag("default")).unwrap();
    let topology = loaded.configuration.topology_aware_scheduling;
    assert!(topology.enabled);
    let TopologySource::TopologyDomain {
        topology_domain_name, ..
    } = topology.source
    else {
        panic!("the flag sets the source, not {:?}", topology.source)
    };
    assert_eq!(topology_domain_name, "default");
}

#[test]
fn the_flag_makes_the_policies_of_a_topology_domain_meaningful() {
    let file = b"topologyAwareScheduling: {onTopologyMissing: RejectAll, onTopologyMissingAtStart: Disable}";
    assert!(parse(file, &with_flag("default")).is_ok());
    assert_eq!(parse_file(file).unwrap_err().len(), 2);
}

#[test]
fn the_flag_is_judged_like_the_file() {
    let levels = fs::read(fixture("good/old-spelling-rack-and-host")).unwrap();
    insta::assert_snapshot!(
        lines(&parse(&levels, &with_flag("default")).unwrap_err()).join("\n"),
        @"topology.levels: cannot be set with --topology-domain-name, whose TopologyDomain holds the levels; remove one of the two"
    );
    insta::assert_snapshot!(
        lines(&parse(b"kind: OperatorConfiguration", &with_flag("No Name")).unwrap_err()).join("\n"),
        @r#"--topology-domain-name: must be the name of a TopologyDomain, not "No Name""#
    );
}

// shows: G244-33
#[test]
fn the_domain_words_are_ordered_by_meaning() {
    let words: Vec<_> = DomainWord::ALL.iter().map(|domain| domain.as_str()).collect();
    assert_eq!(words, ["region", "zone", "datacenter", "block", "rack", "host", "numa"]);
    assert!(DomainWord::ALL.is_sorted());
}

#[test]
fn a_file_of_thousands_of_problems_is_answered_with_some() {
    let file: String = (0..5_000).map(|n| format!("unknown{n}: 1\n")).collect();
    let errors = parse_file(file.as_bytes()).unwrap_err();
    assert_eq!(errors.len(), 65);
    assert_eq!(errors[64].to_string(), "and 4936 more problems; fix those above first");
}

#[test]
fn bytes_that_are_no_text_are_located() {
    let error = parse_file(b"kind: OperatorConfiguration\nlogLevel: \xff\xfe\n").unwrap_err();
    assert_eq!(
        lines(&error),
        ["line 2, column 11: the file is not UTF-8 text; save it as UTF-8"]
    );
}

/// What an attacker or an accident could put where the configuration should be. Each is refused, and soon: the bound
/// is a hundred times what they take, so that only another order of growth can break it.
#[test]
fn hostile_files_are_refused_soon() {
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("10 MiB", vec![b'a'; 10 * 1024 * 1024]),
        ("largest file of one scalar", vec![b'a'; FILE_BYTES_MAX]),
        (
            "largest file of one quoted key",
            [b"\"".as_slice(), &vec![b'k'; FILE_BYTES_MAX - 5], b"\": 1"].concat(),
        ),
        ("deep flow list", b"[".repeat(100_000)),
        ("deep flow mapping", b"{a: ".repeat(100_000)),
        (
            "deep block",
            (0..1_000)
                .map(|n| format!("{}a:\n", " ".repeat(n)))
                .collect::<String>()
                .into_bytes(),
        ),
        ("deep block sequence", b"- ".repeat(100_000)),
        (
            "many keys",
            (0..80_000)
                .map(|n| format!("k{n}: 1\n"))
                .collect::<String>()
                .into_bytes(),
        ),
        (
            "many levels",
            [
                b"topology: {enabled: true, levels: [".as_slice(),
                &b"{},".repeat(100_000),
                b"]}",
            ]
            .concat(),
        ),
        (
            "many anchors",
            (0..50_000)
                .map(|n| format!("k{n}: &a{n} 1\n"))
                .collect::<String>()
                .into_bytes(),
        ),
        ("self alias", b"a: &a [*a]".to_vec()),
        ("comments", b"# x\n".repeat(200_000)),
        ("nul bytes", vec![0; 100_000]),
        ("document markers", b"---\n".repeat(200_000)),
        (
            "merge keys",
            (0..20_000)
                .map(|_| "<<: {a: 1}\n".to_owned())
                .collect::<String>()
                .into_bytes(),
        ),
        ("open quotes", b"a: \"".repeat(100_000)),
        ("colons", b": ".repeat(200_000)),
        ("question marks", b"? ".repeat(200_000)),
    ];
    for (name, file) in files {
        let start = Instant::now();
        assert!(parse_file(&file).is_err(), "{name}");
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{name} took {:?}",
            start.elapsed()
        );
    }
}

/// A fixture with one piece of it replaced, removed or repeated: closer to real mistakes than random bytes.
fn damaged_fixture() -> impl Strategy<Value = Vec<u8>> {
    let files: Vec<Vec<u8>> = fixtures("good")
        .into_iter()
        .chain(fixtures("bad"))
        .map(|(_, content)| content)
        .collect();
    let piece = prop_oneof![
        Just(Vec::new()),
        proptest::collection::vec(any::<u8>(), 1..8),
        "[\\[\\]{}:,&*!|>'\"%@`#?\t \n-]{1,6}".prop_map(String::into_bytes),
        "(null|-1|1e999|\\.inf|0x10|~|true|\\{\\}|\\[\\]|<<: \\*a)".prop_map(String::into_bytes),
    ];
    (
        proptest::sample::select(files),
        any::<(prop::sample::Index, prop::sample::Index)>(),
        piece,
    )
        .prop_map(|(mut file, (from, to), piece)| {
            let (from, to) = (from.index(file.len() + 1), to.index(file.len() + 1));
            file.splice(from.min(to)..from.max(to), piece);
            file
        })
}

fn yaml_and_back(configuration: &OperatorConfiguration) -> OperatorConfiguration {
    let yaml = serde_saphyr::to_string(configuration).unwrap();
    let loaded = parse_file(yaml.as_bytes()).unwrap_or_else(|errors| panic!("{:?}\n{yaml}", lines(&errors)));
    assert_eq!(
        loaded.warnings,
        Vec::<String>::new(),
        "a written configuration uses no old spelling"
    );
    loaded.configuration
}

#[test]
fn what_is_written_reads_back_the_same() {
    for (name, content) in fixtures("good") {
        let configuration = parse_file(&content).unwrap().configuration;
        assert_eq!(yaml_and_back(&configuration), configuration, "{name}");
    }
}

/// Values for the settings that take many; the words are covered by the fixtures.
fn valid_file() -> impl Strategy<Value = String> {
    let domains = proptest::sample::subsequence(DomainWord::ALL.to_vec(), 1..=7).prop_shuffle();
    let client = prop_oneof![Just((0.0, 0)), (0.001..1e9_f64, 1..u32::MAX)];
    let lease = (3..100_000_u64, 2..3_000_u64, 1..2_000_u64);
    let names = proptest::collection::vec("[a-z:\"'#{ -]*[a-z]", 0..4);
    (domains, client, lease, names, 1..u32::MAX, 1..2_000_u16).prop_map(
        |(domains, (qps, burst), (lease, renew_ms, retry_ms), names, syncs, port)| {
            let levels: Vec<_> = domains.iter().map(|domain| level(*domain)).collect();
            serde_json::json!({
                "runtimeClientConnection": {"qps": qps, "burst": burst},
                "leaderElection": {
                    "leaseDuration": format!("{lease}s"),
                    "renewDeadline": format!("{}ms", renew_ms.max(retry_ms + 1)),
                    "retryPeriod": format!("{retry_ms}ms"),
                },
                "authorizer": {"exemptServiceAccountUserNames": names},
                "controllers": {"podGang": {"concurrentSyncs": syncs}},
                "server": {"metrics": {"port": port}},
                "topologyAwareScheduling": {"enabled": true, "levels": levels, "defaultPackDomain": domains[0].as_str()},
            })
            .to_string()
        },
    )
}

fn level(domain: DomainWord) -> serde_json::Value {
    let key = match domain {
        DomainWord::Host => "kubernetes.io/hostname".to_owned(),
        other => format!("example.com/{}", other.as_str()),
    };
    serde_json::json!({"domain": domain.as_str(), "key": key})
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(file in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse_file(&file);
    }

    #[test]
    fn no_damage_makes_it_panic_or_break_a_line(file in damaged_fixture()) {
        match parse_file(&file) {
            Ok(loaded) => prop_assert_eq!(yaml_and_back(&loaded.configuration), loaded.configuration),
            Err(errors) => {
                prop_assert!(!errors.is_empty());
                for line in lines(&errors) {
                    prop_assert!(!line.contains('\n'), "{:?}", line);
                }
            }
        }
    }

    #[test]
    fn a_valid_file_is_accepted_and_reads_back_the_same(file in valid_file()) {
        let loaded = parse_file(file.as_bytes());
        prop_assert!(loaded.is_ok(), "{:?}\n{}", loaded, file);
        let configuration = loaded.unwrap().configuration;
        prop_assert_eq!(yaml_and_back(&configuration), configuration);
    }
}
