//! What must hold whatever is asked (invariants 10 and 11): more room never hurts, names do not matter, a surplus costs
//! nothing.

use grove_placement::{Budget, Solver};
use grove_plancheck::{Instance, Put};

use crate::generate::{Dice, instance};
use crate::world::{Answer, build, solve};

fn answer(instance: &Instance) -> Answer {
    solve(&mut build(instance), instance, &mut Solver::new(), Budget::UNLIMITED)
}

fn is_placed(instance: &Instance) -> bool {
    matches!(answer(instance), Answer::Placed { .. })
}

#[test]
fn more_room_or_fewer_constraints_never_turn_placed_into_infeasible() {
    let mut placed = 0;
    for seed in 1_000_000..1_002_000 {
        let instance = instance(seed);
        if !is_placed(&instance) {
            continue;
        }
        placed += 1;
        let mut dice = Dice(seed);
        let mut more = instance.clone();
        let mut added = more.hosts[dice.roll(more.hosts.len() as u64) as usize].clone();
        added
            .free
            .iter_mut()
            .zip(&more.totals)
            .for_each(|(free, total)| *free = (*total / more.hosts.len() as u64) as i64);
        more.totals
            .iter_mut()
            .for_each(|total| *total += *total / more.hosts.len() as u64);
        more.hosts.push(added);
        for group in &mut more.groups {
            group.eligible.push(true);
            group.dislikes.push(0);
        }
        assert!(is_placed(&more), "seed {seed}: a host more");
        let mut freer = instance.clone();
        let scope = dice.roll(freer.scopes.len() as u64) as usize;
        if freer.scopes[scope].others.is_empty() {
            freer.scopes[scope].required = 0;
            assert!(is_placed(&freer), "seed {seed}: a constraint less");
        }
        let mut open = instance;
        open.groups.iter_mut().for_each(|group| group.eligible.fill(true));
        assert!(is_placed(&open), "seed {seed}: nodes opened");
    }
    assert!(placed > 300, "only {placed} placed");
}

#[test]
fn domains_may_be_renamed_and_runs_repeat() {
    for seed in 2_000_000..2_001_000 {
        let instance = instance(seed);
        let mut renamed = instance.clone();
        for host in &mut renamed.hosts {
            host.path
                .iter_mut()
                .flatten()
                .for_each(|value| *value = 1_000 - *value * 7);
        }
        assert_eq!(answer(&instance), answer(&renamed), "seed {seed}");
        assert_eq!(answer(&instance), answer(&instance), "seed {seed}");
    }
}

#[test]
fn a_surplus_is_placed_and_costs_no_preference() {
    let mut extended = 0;
    for seed in 3_000_000..3_004_000 {
        let mut instance = instance(seed);
        let minimum = answer(&instance);
        instance.groups.iter_mut().for_each(|group| group.desired += 3);
        match (minimum, answer(&instance)) {
            (
                Answer::Placed { key, puts, .. },
                Answer::Placed {
                    key: with_surplus,
                    puts: all,
                    ..
                },
            ) => {
                assert_eq!(
                    key[..3],
                    with_surplus[..3],
                    "seed {seed}: no preference is given up for a surplus"
                );
                let pods = |puts: &[Put]| puts.iter().map(|put| put.pods).sum::<u32>();
                extended += usize::from(pods(&all) > pods(&puts));
            }
            (minimum, all) => assert_eq!(minimum, all, "seed {seed}"),
        }
    }
    assert!(extended > 300, "only {extended} got more than the minimum");
}
