//! Small random instances, the same for the same seed.

use grove_plancheck::{Apart, Host, Instance, PodGroup, Scope};

/// A seeded source of numbers (splitmix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

/// Up to 12 hosts in up to three levels, up to 3 pod-groups with up to 8 pods in all, any nest of scopes.
pub(crate) fn instance(seed: u64) -> Instance {
    let mut dice = Dice(seed);
    let resources = 1 + dice.roll(2) as usize;
    let levels = dice.roll(3) as usize;
    let capacity = 1 + dice.roll(8);
    let count = 2 + dice.roll(11) as usize;
    let mut hosts: Vec<Host> = (0..count)
        .map(|_| host(&mut dice, levels, resources, capacity))
        .collect();
    if dice.chance(15) {
        hosts.iter_mut().for_each(|host| add_cells(host, &mut dice));
    }
    let totals = vec![capacity * count as u64; resources];
    let mut instance = Instance {
        levels,
        hosts,
        totals,
        scopes: Vec::new(),
        groups: Vec::new(),
        aparts: Vec::new(),
    };
    add_gang(&mut instance, &mut dice, capacity);
    if dice.chance(20) {
        let apart = apart(&instance, &mut dice);
        instance.aparts.push(apart);
    }
    instance
}

/// Whether all pods are alike, nothing keeps them apart and no host has cells: counting places these at the optimum.
pub(crate) fn is_alike(instance: &Instance) -> bool {
    let first = &instance.groups[0];
    let same = |group: &PodGroup| {
        (&group.request, &group.eligible, &group.dislikes) == (&first.request, &first.eligible, &first.dislikes)
    };
    let has_cells = instance.hosts.iter().any(|host| !host.cells.is_empty());
    instance.groups.iter().all(same) && instance.aparts.is_empty() && !has_cells
}

/// Some groups avoid some groups, among them perhaps themselves; a pod that runs may take part.
fn apart(instance: &Instance, dice: &mut Dice) -> Apart {
    let depth = 1 + dice.roll(instance.levels as u64 + 1) as usize;
    let groups = instance
        .groups
        .iter()
        .map(|_| (dice.chance(50), dice.chance(50)))
        .collect();
    let running = dice.chance(40).then(|| {
        let host = dice.roll(instance.hosts.len() as u64) as usize;
        (host, dice.chance(50), dice.chance(60))
    });
    Apart {
        depth,
        groups,
        running: running.into_iter().collect(),
    }
}

fn host(dice: &mut Dice, levels: usize, resources: usize, capacity: u64) -> Host {
    let is_full = dice.chance(10);
    let amount = |dice: &mut Dice| if is_full { 0 } else { dice.roll(capacity + 1) as i64 };
    let free = (0..resources).map(|_| amount(dice)).collect();
    let path = (levels == 0 || !dice.chance(4)).then(|| (0..levels).map(|_| dice.roll(3) as u32).collect());
    Host {
        free,
        path,
        cells: Vec::new(),
    }
}

/// Most hosts have two or three cells; what others run there may sit in any of them, so the cells of a host may have
/// less free than the host, and also more.
fn add_cells(host: &mut Host, dice: &mut Dice) {
    if dice.chance(25) {
        return;
    }
    let counts: Vec<bool> = host.free.iter().map(|_| dice.chance(75)).collect();
    let cell = |dice: &mut Dice| {
        let by_resource = host.free.iter().zip(&counts);
        let free =
            by_resource.map(|(free, counts)| counts.then(|| dice.roll((*free as u64 * 3).div_ceil(4) + 2) as i64));
        free.collect()
    };
    host.cells = (0..2 + dice.roll(2)).map(|_| cell(dice)).collect();
}

/// Depths that a scope can ask for.
fn depths(instance: &Instance) -> u64 {
    let has_cells = instance.hosts.iter().any(|host| !host.cells.is_empty());
    instance.levels as u64 + 1 + u64::from(has_cells)
}

fn add_gang(instance: &mut Instance, dice: &mut Dice, capacity: u64) {
    if dice.chance(8) && instance.levels > 0 {
        let required = 1 + dice.roll(instance.levels as u64) as usize;
        let others = vec![dice.roll(instance.hosts.len() as u64) as usize];
        instance.scopes.push(Scope {
            parent: None,
            tier: 0,
            required,
            preferred: 0,
            others,
        });
    }
    let outer = instance.scopes.len().checked_sub(1);
    let own = push_scope(instance, dice, outer, 0, 40);
    let groups = 1 + dice.roll(3) as usize;
    let has_group = groups > 1 && dice.chance(40);
    let group = has_group.then(|| push_scope(instance, dice, Some(own), 1, 50));
    let size_max = 1 + capacity / 3;
    let is_alike = dice.chance(30);
    let mut pods_left = 8;
    for index in 0..groups {
        let parent = group.filter(|_| index > 0).unwrap_or(own);
        let scope = push_scope(instance, dice, Some(parent), 2, 35);
        let minimum = 1 + dice.roll((pods_left - (groups - 1 - index) as u64).min(5)) as u32;
        pods_left -= u64::from(minimum);
        let fresh: Vec<u64> = instance.totals.iter().map(|_| 1 + dice.roll(size_max)).collect();
        let first = instance.groups.first();
        let request = first
            .filter(|_| is_alike)
            .map_or(fresh, |first: &PodGroup| first.request.clone());
        let picky = dice.chance(15);
        let eligible = instance.hosts.iter().map(|_| !picky || dice.chance(70)).collect();
        let prefers = dice.chance(15);
        let dislikes = instance
            .hosts
            .iter()
            .map(|_| if prefers { dice.roll(3) } else { 0 })
            .collect();
        instance.groups.push(PodGroup {
            scope,
            request,
            eligible,
            dislikes,
            minimum,
            desired: minimum,
            bound: Vec::new(),
        });
    }
    if dice.chance(12) {
        let group = dice.roll(groups as u64) as usize;
        let bound = dice.roll(instance.hosts.len() as u64) as usize;
        if instance.hosts[bound].path.is_some() || instance.levels == 0 {
            instance.groups[group].bound = vec![bound];
        }
    }
}

fn push_scope(instance: &mut Instance, dice: &mut Dice, parent: Option<usize>, tier: usize, percent: u64) -> usize {
    let depths = depths(instance);
    let mut level = |percent| {
        if dice.chance(percent) {
            1 + dice.roll(depths) as usize
        } else {
            0
        }
    };
    let (required, preferred) = (level(percent * 2 / 3), level(percent));
    instance.scopes.push(Scope {
        parent,
        tier,
        required,
        preferred,
        others: Vec::new(),
    });
    instance.scopes.len() - 1
}
