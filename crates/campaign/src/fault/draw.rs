//! Faults that follow from a seed, and from what there is to hit.

use super::{Answer, Fault, Moment, Row, Told};
use crate::process::Role;

impl Row {
    /// Draws the faults of one run. `points` is how many writes each process makes when nothing goes wrong.
    pub fn draw(self, dice: &mut Dice, points: &Points) -> Vec<Fault> {
        match self {
            Self::Kill => vec![kill(dice, points)],
            Self::KillPair => kill_again(dice, points),
            Self::Stale => stale(dice, points),
            Self::Watch => match dice.below(4) {
                0 => vec![Fault::ChanceOfEvent {
                    percent: 1 + dice.below(5) as u8,
                    told: told(dice),
                }],
                _ => (0..1 + dice.below(3)).map(|_| event(dice, points)).collect(),
            },
            Self::Storm => vec![Fault::Storm {
                per_second: 10 + dice.below(41) as u32,
                seconds: 2 + dice.below(10),
            }],
            Self::Errors => errors(dice, points),
            Self::Webhooks => vec![Fault::Webhooks {
                percent: 10 + dice.below(60) as u8,
            }],
            Self::Clock => vec![clock(dice)],
            Self::Leader => vec![Fault::Freeze {
                role: dice.role(),
                after: dice.below(8),
                seconds: 20 + dice.below(60),
            }],
            Self::Quota => vec![full(dice, points)],
            Self::Swarm => swarm(dice, points),
        }
    }
}

/// How many writes each process makes in a run without faults: what there is to hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Points {
    pub operator: u64,
    pub scheduler: u64,
}

impl Points {
    pub fn of(&self, role: Role) -> u64 {
        match role {
            Role::Operator => self.operator,
            Role::Scheduler => self.scheduler,
        }
    }

    /// Every place to die.
    pub fn kills(&self) -> Vec<Fault> {
        let places = Role::ALL
            .into_iter()
            .flat_map(|role| (1..=self.of(role)).map(move |write| (role, write)));
        let kills = places.flat_map(|(role, write)| Moment::ALL.map(|moment| Fault::Kill { role, write, moment }));
        kills.collect()
    }
}

/// Numbers that follow from a seed: SplitMix64.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An even draw from `0..n`; 0 if there is nothing to choose from.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).checked_rem(n).unwrap_or(0)
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn role(&mut self) -> Role {
        // The operator writes most, and does most after what it has seen.
        self.pick(&[Role::Operator, Role::Operator, Role::Scheduler])
    }
}

fn kill(dice: &mut Dice, points: &Points) -> Fault {
    let role = match (points.operator, points.scheduler) {
        (_, 0) => Role::Operator,
        _ => dice.role(),
    };
    Fault::Kill {
        role,
        write: 1 + dice.below(points.of(role)),
        moment: dice.pick(&Moment::ALL),
    }
}

/// Killed, and killed again by one of the first writes after the restart.
fn kill_again(dice: &mut Dice, points: &Points) -> Vec<Fault> {
    let first = kill(dice, points);
    let Fault::Kill { role, write, .. } = first else {
        return vec![first];
    };
    let again = Fault::Kill {
        role,
        write: write + 1 + dice.below(6),
        moment: dice.pick(&Moment::ALL),
    };
    vec![first, again]
}

/// Nothing is listed again without a reason: a restart, or a watch that cannot go on.
fn stale(dice: &mut Dice, points: &Points) -> Vec<Fault> {
    let (reason, role) = match dice.below(2) {
        0 => {
            let kill = kill(dice, points);
            let Fault::Kill { role, .. } = kill else {
                return vec![kill];
            };
            (kill, role)
        }
        _ => {
            let role = dice.role();
            let nth = 1 + dice.below(4 * points.of(role));
            let told = Told::Gone;
            (Fault::Event { role, nth, told }, role)
        }
    };
    let stale = Fault::Stale {
        role,
        nth: 1 + dice.below(4),
        times: 1 + dice.below(30),
        revisions: dice.pick(&[1, 3, 10, 30, 100, 1_000]),
    };
    vec![reason, stale]
}

fn told(dice: &mut Dice) -> Told {
    let seconds = 1 + dice.below(30);
    dice.pick(&[
        Told::Late { seconds },
        Told::Twice,
        Told::Never,
        Told::ThenClosed,
        Told::Gone,
        Told::ThenSilence,
    ])
}

fn event(dice: &mut Dice, points: &Points) -> Fault {
    let role = dice.role();
    // Each write is told to several watches.
    let nth = 1 + dice.below(4 * points.of(role).max(4));
    let told = told(dice);
    Fault::Event { role, nth, told }
}

fn answer(dice: &mut Dice) -> Answer {
    let written = dice.below(2) == 0;
    let seconds = 1 + dice.below(10);
    dice.pick(&[
        Answer::LostBefore,
        Answer::LostAfter,
        Answer::Conflict,
        Answer::TooMany,
        Answer::Internal,
        Answer::Timeout { written },
        Answer::Slow { seconds },
    ])
}

fn errors(dice: &mut Dice, points: &Points) -> Vec<Fault> {
    let mut faults = vec![Fault::Chance {
        percent: 1 + dice.below(25) as u8,
        answer: answer(dice),
    }];
    if dice.below(2) == 0 {
        let role = dice.role();
        faults.push(Fault::Request {
            role,
            nth: 1 + dice.below(points.of(role)),
            times: 1 + dice.below(10),
            answer: answer(dice),
        });
    }
    faults
}

fn clock(dice: &mut Dice) -> Fault {
    match dice.below(3) {
        0 => Fault::Drift {
            role: dice.role(),
            percent: dice.pick(&[-5, 5]),
        },
        _ => Fault::Clock {
            after: dice.below(10),
            jump: dice.pick(&[-3600, -60, 60, 3600]),
        },
    }
}

fn full(dice: &mut Dice, points: &Points) -> Fault {
    let role = Role::Operator;
    let nth = 1 + dice.below(points.of(role));
    let times = 1 + dice.below(40);
    match dice.below(2) {
        0 => Fault::Quota { role, nth, times },
        _ => Fault::NoSpace { role, nth, times },
    }
}

/// Some sorts of faults, each with its share.
fn swarm(dice: &mut Dice, points: &Points) -> Vec<Fault> {
    let sorts = [
        Row::Kill,
        Row::KillPair,
        Row::Stale,
        Row::Watch,
        Row::Storm,
        Row::Errors,
        Row::Webhooks,
        Row::Clock,
        Row::Leader,
        Row::Quota,
    ];
    let mut faults = Vec::new();
    while faults.is_empty() {
        for sort in sorts {
            if dice.below(4) == 0 {
                faults.extend(sort.draw(dice, points));
            }
        }
    }
    faults.truncate(8);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: Points = Points {
        operator: 40,
        scheduler: 10,
    };

    #[test]
    fn a_seed_decides_the_faults_and_every_row_has_some() {
        for row in Row::ALL {
            let draw = |seed| row.draw(&mut Dice::new(seed), &POINTS);
            assert!(
                (0..50).all(|seed| !draw(seed).is_empty() && draw(seed) == draw(seed)),
                "{row:?}"
            );
            assert!((0..50).any(|seed| draw(seed) != draw(seed + 1)), "{row:?}");
        }
    }

    #[test]
    fn there_are_three_places_to_die_at_each_write() {
        assert_eq!(POINTS.kills().len(), 150);
    }

    #[test]
    fn faults_are_read_as_they_are_written() {
        for seed in 0..200 {
            let faults = Row::Swarm.draw(&mut Dice::new(seed), &POINTS);
            let text = serde_json::to_string(&faults).unwrap();
            assert_eq!(serde_json::from_str::<Vec<Fault>>(&text).unwrap(), faults, "{text}");
        }
    }
}
