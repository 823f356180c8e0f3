//! Traces: every rule plays by the same rules, and each fills the cluster in its own way.

use grove_placement::Policy;
use grove_placement::bench::{Rule, Trace, TraceGang, TraceHost, replay};

const RULES: [Rule; 5] = [
    Rule::FirstFit,
    Rule::BestFit,
    Rule::TightestDomain,
    Rule::Engine(Policy::FewestHosts),
    Rule::Engine(Policy::SpareHosts),
];

/// Racks of two hosts with eight GPUs each, two racks a block.
fn hosts(count: u32) -> Vec<TraceHost> {
    let host = |number| TraceHost {
        name: format!("n{number}"),
        block: number / 4,
        rack: number / 2,
        has: [8, 8_000, 8_000],
    };
    (0..count).map(host).collect()
}

fn gang(pods: u32, gpus: u64, starts: u64, ends: u64) -> TraceGang {
    TraceGang {
        pods,
        asks: [gpus, 1_000, 1_000],
        starts,
        ends,
    }
}

#[test]
fn who_comes_while_it_is_full_is_turned_away_and_who_comes_later_is_not() {
    let trace = Trace {
        hosts: hosts(4),
        gangs: vec![gang(4, 8, 0, 10), gang(1, 1, 5, 20), gang(4, 8, 10, 30)],
    };
    for rule in RULES {
        let replayed = replay(&trace, rule, |_| ());
        assert_eq!(replayed.gangs, 2, "{rule:?}");
        assert_eq!(replayed.gpu_time, 32 * 10 + 32 * 20, "{rule:?}");
        assert_eq!(
            (replayed.together, replayed.racks, replayed.hosts),
            (2, 4, 8),
            "{rule:?}"
        );
        assert_eq!(replayed.stranded, 0, "{rule:?}");
    }
}

/// Other resources count too: three pods take all memory of a host.
#[test]
fn a_gang_that_no_block_holds_is_turned_away() {
    let mut large = gang(13, 1, 0, 10);
    large.asks[2] = 2_500;
    let trace = Trace {
        hosts: hosts(8),
        gangs: vec![large],
    };
    for rule in RULES {
        assert_eq!(replay(&trace, rule, |_| ()).gangs, 0, "{rule:?}");
    }
}

#[test]
fn what_is_left_on_hosts_that_are_broken_into_is_stranded() {
    let trace = Trace {
        hosts: hosts(2),
        gangs: vec![gang(1, 3, 0, 10), gang(1, 8, 4, 9), gang(1, 1, 20, 21)],
    };
    for rule in RULES {
        assert_eq!(replay(&trace, rule, |_| ()).stranded, 5 * 10, "{rule:?}");
    }
}

/// The first rack has room for half of the gang; who takes hosts in their order breaks into two racks.
#[test]
fn the_engine_keeps_a_gang_in_one_rack_where_first_fit_does_not() {
    let trace = Trace {
        hosts: hosts(4),
        gangs: vec![gang(1, 8, 0, 10), gang(2, 8, 1, 10)],
    };
    assert_eq!(replay(&trace, Rule::FirstFit, |_| ()).racks, 2);
    for rule in [Rule::TightestDomain, Rule::Engine(Policy::FewestHosts)] {
        assert_eq!(replay(&trace, rule, |_| ()).racks, 1, "{rule:?}");
    }
}
