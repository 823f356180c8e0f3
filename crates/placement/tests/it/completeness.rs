//! Gangs that sequential best fit refuses although they fit: none may be refused here.
//!
//! Two blocks of three racks of four hosts; three pod-groups; the gang in a block, each pod-group in a rack.

use grove_placement::{Budget, Solver};
use grove_plancheck::{Host, Instance, PodGroup, Scope};

use crate::generate::Dice;
use crate::world::{Answer, build, solve};

/// What the pods of a family ask for.
#[derive(Clone, Copy, Debug)]
struct Family {
    two_resources: bool,
    powers_of_two: bool,
}

fn member(dice: &mut Dice, family: Family) -> Instance {
    let resources = if family.two_resources { 2 } else { 1 };
    let host = |dice: &mut Dice, index: u32| Host {
        free: (0..resources).map(|_| dice.roll(9) as i64).collect(),
        path: Some(vec![index / 12, index / 4]),
        cells: vec![],
    };
    let hosts: Vec<Host> = (0..24).map(|index| host(dice, index)).collect();
    let mut scopes = vec![Scope {
        parent: None,
        tier: 0,
        required: 1,
        preferred: 0,
        others: vec![],
    }];
    let mut groups = Vec::new();
    for index in 0..3 {
        scopes.push(Scope {
            parent: Some(0),
            tier: 2,
            required: 2,
            preferred: 0,
            others: vec![],
        });
        let size = |dice: &mut Dice| {
            if family.powers_of_two {
                1 << dice.roll(3)
            } else {
                1 + dice.roll(5)
            }
        };
        let request = (0..resources).map(|_| size(dice)).collect();
        let pods = 1 + dice.roll(5) as u32;
        groups.push(PodGroup {
            scope: index + 1,
            request,
            eligible: vec![true; 24],
            dislikes: vec![0; 24],
            minimum: pods,
            desired: pods,
            bound: vec![],
        });
    }
    Instance {
        levels: 2,
        hosts,
        totals: vec![8 * 24; resources],
        scopes,
        groups,
        aparts: vec![],
    }
}

/// Whether some block has racks for the groups: every choice of racks, every packing of a rack.
fn is_feasible(instance: &Instance) -> bool {
    (0..2).any(|block| {
        (0..27_usize).any(|choice| {
            let racks = [choice % 3, choice / 3 % 3, choice / 9];
            (0..3).all(|rack| {
                let groups: Vec<usize> = (0..3).filter(|group| racks[*group] == rack).collect();
                let first = block * 12 + rack * 4;
                let mut free: Vec<Vec<i64>> = instance.hosts[first..first + 4]
                    .iter()
                    .map(|host| host.free.clone())
                    .collect();
                let pods: Vec<usize> = groups
                    .iter()
                    .flat_map(|group| vec![*group; instance.groups[*group].minimum as usize])
                    .collect();
                packs(instance, &mut free, &pods, 0)
            })
        })
    })
}

/// Whether the pods fit on the hosts, one after the other; alike pods go to hosts in order.
fn packs(instance: &Instance, free: &mut [Vec<i64>], pods: &[usize], from: usize) -> bool {
    let Some((group, rest)) = pods.split_first() else {
        return true;
    };
    let request = &instance.groups[*group].request;
    (from..free.len()).any(|host| {
        let fits = free[host]
            .iter()
            .zip(request)
            .all(|(free, asked)| *free >= *asked as i64);
        if !fits {
            return false;
        }
        let change = |free: &mut Vec<i64>, sign: i64| {
            free.iter_mut()
                .zip(request)
                .for_each(|(free, asked)| *free += sign * *asked as i64);
        };
        change(&mut free[host], -1);
        let next = if rest.first() == Some(group) { host } else { 0 };
        let packed = packs(instance, free, rest, next);
        change(&mut free[host], 1);
        packed
    })
}

fn nothing_feasible_is_refused(family: Family) {
    let mut dice = Dice(7);
    let mut solver = Solver::new();
    let mut feasible = 0;
    while feasible < 2_000 {
        let instance = member(&mut dice, family);
        let answer = solve(&mut build(&instance), &instance, &mut solver, Budget::default());
        let expected = is_feasible(&instance);
        match answer {
            Answer::Placed { .. } => assert!(expected, "{family:?}: {instance:?}"),
            Answer::Infeasible => assert!(!expected, "{family:?}: {instance:?}"),
            Answer::Undecided => panic!("{family:?}: the default budget decides {instance:?}"),
        }
        feasible += u32::from(expected);
    }
}

#[test]
fn two_resources_and_mixed_sizes() {
    nothing_feasible_is_refused(Family {
        two_resources: true,
        powers_of_two: false,
    });
}

#[test]
fn two_resources_and_powers_of_two() {
    nothing_feasible_is_refused(Family {
        two_resources: true,
        powers_of_two: true,
    });
}

#[test]
fn one_resource_and_mixed_sizes() {
    nothing_feasible_is_refused(Family {
        two_resources: false,
        powers_of_two: false,
    });
}

#[test]
fn one_resource_and_powers_of_two() {
    nothing_feasible_is_refused(Family {
        two_resources: false,
        powers_of_two: true,
    });
}
