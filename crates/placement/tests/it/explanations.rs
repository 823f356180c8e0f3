//! What people read when a gang does not fit: one situation after the other, as text.

use std::fmt::Write;

use grove_placement::{
    Cluster, Effect, Gang, Group, Level, NodeSpec, Pack, PodGroup, Proof, Replica, Resource, Rules, Shape, Stance,
    Taint, TopologyId, TopologySpec, Traits, explain,
};

/// Two blocks of two racks of four hosts with 8 GPUs; a test changes what it is about.
struct Site {
    cluster: Cluster,
    topology: TopologyId,
    gpu: Resource,
}

impl Site {
    fn new() -> Self {
        let mut cluster = Cluster::new();
        let gpu = cluster.resource("gpu");
        let level = |word: &str| Level {
            word: word.to_owned(),
            key: format!("example.com/{word}"),
        };
        let levels = ["block", "rack", "host"].map(level).to_vec();
        let topology = cluster.set_topology(TopologySpec {
            name: "site".to_owned(),
            levels,
            host: Some(2),
        });
        let mut site = Site { cluster, topology, gpu };
        for host in 0..16 {
            site.set_host(host, |_| {});
        }
        site
    }

    fn set_host(&mut self, host: usize, change: impl Fn(&mut Traits)) {
        let label = |word: &str, value: String| (format!("example.com/{word}"), value);
        let labels = [
            label("block", format!("b{}", host / 8 + 1)),
            label("rack", format!("r{}", host / 4 + 1)),
        ];
        let mut traits = Traits {
            name: format!("n{:02}", host + 1),
            labels: labels.into(),
            ..Traits::default()
        };
        change(&mut traits);
        self.cluster.set_node(NodeSpec {
            traits,
            allocatable: [(self.gpu, 8)].into_iter().collect(),
        });
    }

    fn occupy(&mut self, hosts: impl IntoIterator<Item = usize>, gpus: u64) {
        for host in hosts {
            let node = self
                .cluster
                .node(&format!("n{:02}", host + 1))
                .expect("a host of the site");
            self.cluster.take(node, &[(self.gpu, gpus)].into_iter().collect());
        }
    }

    fn pod_group(&mut self, name: &str, pods: u32, gpus: u64, rules: Rules) -> PodGroup {
        let shape = self.cluster.shape(&Shape {
            requests: [(self.gpu, gpus)].into_iter().collect(),
            rules,
            ..Shape::default()
        });
        PodGroup {
            name: name.to_owned(),
            group: None,
            pack: Pack::default(),
            shape,
            minimum: pods,
            desired: pods,
            bound: Vec::new(),
        }
    }

    fn gang(&mut self, required: Option<&str>, pods: u32, gpus: u64) -> Gang {
        let workers = self.pod_group("workers", pods, gpus, Rules::default());
        self.gang_of(required, vec![workers])
    }

    fn gang_of(&self, required: Option<&str>, pod_groups: Vec<PodGroup>) -> Gang {
        Gang {
            name: "train-0".to_owned(),
            topology: self.topology,
            replica: None,
            pack: Pack {
                required: required.map(str::to_owned),
                preferred: None,
            },
            groups: Vec::new(),
            pod_groups,
        }
    }
}

fn show(proof: &Proof) -> String {
    let mut text = format!("{:?}, waiting {:?}\n", proof.reason, proof.reason.waiting());
    let _ = writeln!(text, "  {}", proof.sentence);
    let _ = writeln!(
        text,
        "  scope {}, level {}, {} domains",
        proof.scope,
        proof.level.as_deref().unwrap_or("none"),
        proof.considered
    );
    for nearest in proof.nearest.iter().take(2) {
        let _ = writeln!(
            text,
            "  near: {} has {}, lacks {}",
            nearest.domain,
            nearest.has(),
            nearest.lacks()
        );
    }
    for change in &proof.would_fit_if {
        let _ = writeln!(text, "  would fit if {change}");
    }
    text
}

fn rack(pods: PodGroup) -> PodGroup {
    PodGroup {
        pack: Pack {
            required: Some("rack".to_owned()),
            preferred: None,
        },
        ..pods
    }
}

/// Capacity: too few, too scattered, too large.
fn capacity_situations() -> Vec<(&'static str, Site, Gang)> {
    let mut situations = Vec::new();
    let mut site = Site::new();
    site.occupy(0..13, 8);
    let gang = site.gang(None, 4, 8);
    situations.push(("too few GPUs are free", site, gang));

    let mut site = Site::new();
    site.occupy([0, 4, 8, 9, 12], 8);
    let gang = site.gang(Some("rack"), 4, 8);
    situations.push(("enough is free, but no rack has four free hosts", site, gang));

    let mut site = Site::new();
    site.occupy(0..16, 1);
    let gang = site.gang(Some("block"), 1, 8);
    situations.push(("every host is a little used", site, gang));

    let mut site = Site::new();
    let gang = site.gang(Some("rack"), 5, 8);
    situations.push(("a rack is too small even when empty", site, gang));

    let mut site = Site::new();
    let gang = site.gang(None, 17, 8);
    situations.push(("the cluster is too small even when empty", site, gang));

    let mut site = Site::new();
    let gang = site.gang(None, 1, 16);
    situations.push(("a pod is larger than every host", site, gang));

    let mut site = Site::new();
    site.occupy([0, 1, 4, 5, 8, 9, 12, 13], 8);
    let pod_groups = vec![
        site.pod_group("prefill", 2, 8, Rules::default()),
        site.pod_group("decode", 3, 8, Rules::default()),
    ];
    let gang = site.gang_of(Some("block"), pod_groups.into_iter().map(rack).collect());
    situations.push(("one pod-group of two does not fit a rack", site, gang));

    let mut site = Site::new();
    site.occupy([0, 1, 4, 5, 8, 9, 12, 13], 8);
    let pod_groups = vec![
        site.pod_group("prefill", 2, 8, Rules::default()),
        site.pod_group("decode", 1, 8, Rules::default()),
    ];
    let gang = site.gang_of(Some("rack"), pod_groups);
    situations.push(("each pod-group fits a rack, both together do not", site, gang));
    situations
}

/// Nodes that are closed, unlabelled, or not what the pods ask for.
fn node_situations() -> Vec<(&'static str, Site, Gang)> {
    let mut situations = Vec::new();
    let mut site = Site::new();
    site.occupy([4, 8, 12], 8);
    site.set_host(1, |node| node.unschedulable = true);
    let gang = site.gang(Some("rack"), 4, 8);
    situations.push(("one host of the only free rack is cordoned", site, gang));

    let mut site = Site::new();
    let taint = Taint {
        key: "dedicated".to_owned(),
        value: "batch".to_owned(),
        effect: Effect::NoSchedule,
    };
    for host in 0..16 {
        let taint = taint.clone();
        site.set_host(host, move |node| node.taints = vec![taint.clone()]);
    }
    let gang = site.gang(Some("rack"), 4, 8);
    situations.push(("a taint is not tolerated", site, gang));

    let mut site = Site::new();
    let selector = [("gpu".to_owned(), "h200".to_owned())].into();
    let workers = site.pod_group(
        "workers",
        2,
        8,
        Rules {
            selector,
            ..Rules::default()
        },
    );
    let gang = site.gang_of(None, vec![workers]);
    situations.push(("the node selector matches nothing", site, gang));

    let mut site = Site::new();
    let allowed_nodes = Some(vec!["n99".to_owned()]);
    let workers = site.pod_group(
        "workers",
        1,
        1,
        Rules {
            allowed_nodes,
            ..Rules::default()
        },
    );
    let gang = site.gang_of(None, vec![workers]);
    situations.push(("a volume is out of reach", site, gang));

    let mut site = Site::new();
    site.occupy([4, 8, 12], 8);
    site.set_host(0, |node| node.labels.clear());
    let gang = site.gang(Some("rack"), 4, 8);
    situations.push(("a free host lacks its labels", site, gang));
    situations
}

/// Pins and words.
fn scope_situations() -> Vec<(&'static str, Site, Gang)> {
    let mut situations = Vec::new();
    let mut site = Site::new();
    site.occupy(0..4, 8);
    let mut gang = site.gang(Some("rack"), 2, 8);
    gang.pod_groups[0].bound = vec![site.cluster.node("n01").expect("a host of the site")];
    situations.push(("a lost pod cannot return to its gang's full rack", site, gang));

    let mut site = Site::new();
    site.occupy(0..8, 8);
    let mut gang = site.gang(None, 2, 8);
    gang.replica = Some(Replica {
        required: "block".to_owned(),
        bound: vec![site.cluster.node("n01").expect("a host of the site")],
    });
    situations.push(("a scaled gang must join its replica in a full block", site, gang));

    let mut site = Site::new();
    let mark = site.cluster.mark("spread", "example.com/rack");
    let stance = Stance {
        avoids: true,
        bears: true,
    };
    let mut gang = site.gang(Some("rack"), 2, 8);
    gang.pod_groups[0].shape = site.cluster.shape(&Shape {
        requests: [(site.gpu, 8)].into_iter().collect(),
        marks: vec![(mark, stance)],
        ..Shape::default()
    });
    situations.push(("pods must be in different racks and in one", site, gang));

    let mut site = Site::new();
    let gang = site.gang(Some("zone"), 2, 8);
    situations.push(("the level is unknown", site, gang));

    let mut site = Site::new();
    site.occupy([0, 4, 8, 12], 8);
    let mut pod_groups = vec![
        site.pod_group("leader", 1, 8, Rules::default()),
        site.pod_group("worker", 3, 8, Rules::default()),
    ];
    pod_groups.iter_mut().for_each(|pod_group| pod_group.group = Some(0));
    let mut gang = site.gang_of(None, pod_groups);
    gang.groups = vec![Group {
        name: "decode".to_owned(),
        pack: Pack {
            required: Some("rack".to_owned()),
            preferred: None,
        },
    }];
    situations.push(("a group of pod-groups does not fit a rack together", site, gang));
    situations
}

/// Constraints inside constraints, held by pods that run in other racks of the block.
fn nested_situations() -> Vec<(&'static str, Site, Gang)> {
    let mut situations = Vec::new();
    // All of it in one block: prefill runs in r1, the rest in r2.
    let serving = |site: &mut Site, prefill: &[usize], decode: &[usize]| {
        let nodes = |site: &Site, hosts: &[usize]| {
            let node = |host: &usize| site.cluster.node(&format!("n{:02}", host + 1));
            hosts.iter().filter_map(node).collect::<Vec<_>>()
        };
        site.occupy(prefill.iter().chain(decode).copied(), 8);
        let mut first = rack(site.pod_group("prefill", 4, 8, Rules::default()));
        first.bound = nodes(site, prefill);
        let mut second = rack(site.pod_group("decode", 2, 8, Rules::default()));
        second.bound = nodes(site, decode);
        site.gang_of(Some("block"), vec![first, second])
    };
    let mut site = Site::new();
    let gang = serving(&mut site, &[0, 1, 2], &[4, 5]);
    site.set_host(3, |node| node.unschedulable = true);
    situations.push((
        "the host of a lost pod is cordoned, its siblings run in two racks",
        site,
        gang,
    ));

    let mut site = Site::new();
    let gang = serving(&mut site, &[0, 1, 2], &[4, 5]);
    site.occupy([3], 8);
    situations.push(("another took the host of a lost pod", site, gang));

    let mut site = Site::new();
    let gang = serving(&mut site, &[], &[4, 5]);
    site.occupy([0], 8);
    situations.push((
        "all pods of one pod-group are lost, the other holds the block",
        site,
        gang,
    ));

    let mut site = Site::new();
    site.occupy(0..8, 8);
    let mut pod_groups = vec![
        site.pod_group("leader", 1, 8, Rules::default()),
        site.pod_group("worker", 1, 8, Rules::default()),
    ];
    pod_groups.iter_mut().for_each(|pod_group| pod_group.group = Some(0));
    let mut gang = site.gang_of(None, pod_groups);
    gang.groups = vec![Group {
        name: "server-1".to_owned(),
        pack: Pack {
            required: Some("rack".to_owned()),
            preferred: None,
        },
    }];
    let bound = [0, 1, 4, 5].map(|host| site.cluster.node(&format!("n{:02}", host + 1)));
    gang.replica = Some(Replica {
        required: "block".to_owned(),
        bound: bound.into_iter().flatten().collect(),
    });
    situations.push((
        "a scaled gang in one rack must join its replica in a full block",
        site,
        gang,
    ));
    situations
}

#[test]
fn every_refusal_says_what_is_needed_what_comes_closest_and_what_would_help() {
    let mut text = String::new();
    let situations = capacity_situations()
        .into_iter()
        .chain(node_situations())
        .chain(scope_situations())
        .chain(nested_situations());
    for (title, site, gang) in situations {
        let proof = explain(&site.cluster, &gang).unwrap_or_else(|| panic!("{title}: it fits"));
        let _ = writeln!(text, "# {title}\n{}", show(&proof));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_gang_that_fits_needs_no_explanation() {
    let mut site = Site::new();
    let gang = site.gang(Some("rack"), 4, 8);
    assert_eq!(explain(&site.cluster, &gang), None);
}
