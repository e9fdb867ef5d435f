// SPDX-License-Identifier: Apache-2.0
//! Analyses the parser's states: their order, the cycles among them, and the likelihood of their transitions.

use std::collections::{BTreeMap, BTreeSet};

use sluice_program::parser::{ParserOp, Target};
use sluice_program::{Program, StateId};

/// Returns the possible successors of a state.
fn followers(program: &Program, id: StateId) -> Vec<StateId> {
    let state = program.state(id);
    let targets = state.transitions.iter().map(|case| case.next);
    let states = targets.chain(state.default).map(|target| match target {
        Target::State(id) => Some(id),
        Target::Accept => None,
    });
    states.flatten().collect()
}

/// Searches the states depth-first from each start, along the edges that `followers` returns. Skips a start that an
/// earlier search has reached. Returns the states that each search found, in postorder.
fn walks(
    count: usize,
    starts: impl Iterator<Item = StateId>,
    followers: impl Fn(StateId) -> Vec<StateId>,
) -> Vec<Vec<StateId>> {
    let mut seen = vec![false; count];
    let mut walks = Vec::new();
    for start in starts {
        if std::mem::replace(&mut seen[start.index()], true) {
            continue;
        }
        let mut left = Vec::new();
        let mut path = vec![(start, followers(start))];
        while let Some((state, rest)) = path.last_mut() {
            match rest.pop() {
                Some(next) if !std::mem::replace(&mut seen[next.index()], true) => {
                    path.push((next, followers(next)));
                }
                Some(_) => {}
                None => {
                    left.push(*state);
                    path.pop();
                }
            }
        }
        walks.push(left);
    }
    walks
}

/// Returns the strongly connected components of the reachable states in topological order: a component comes after its
/// predecessors. Uses Kosaraju's algorithm.
pub(crate) fn groups(program: &Program) -> Vec<Vec<StateId>> {
    let Target::State(start) = program.parser.start else {
        return Vec::new();
    };
    let count = program.states.len();
    let forward = walks(count, std::iter::once(start), |id| followers(program, id));
    let mut before = vec![Vec::new(); count];
    for id in forward.iter().flatten() {
        for next in followers(program, *id) {
            before[next.index()].push(*id);
        }
    }
    let last_first = forward.into_iter().flatten().rev();
    walks(count, last_first, |id| before[id.index()].clone())
}

/// Returns two flags for each state. The first flag tells whether the state lies on a cycle. The second flag tells
/// whether a packet that enters the state may have entered more than `most` states.
pub(crate) fn bounds(
    program: &Program,
    groups: &[Vec<StateId>],
    most: usize,
) -> (Vec<bool>, Vec<bool>) {
    let count = program.states.len();
    let (mut cyclic, mut bounded) = (vec![false; count], vec![false; count]);
    // For each state, the number of states on the longest path to it, including the state itself.
    let mut entered = vec![1_usize; count];
    for group in groups {
        let cycle = is_cycle(program, group);
        for id in group {
            let index = id.index();
            cyclic[index] = cycle;
            bounded[index] |= cycle || entered[index] > most;
        }
        for id in group {
            for next in followers(program, *id) {
                entered[next.index()] = entered[next.index()].max(entered[id.index()] + 1);
                bounded[next.index()] |= bounded[id.index()];
            }
        }
    }
    (cyclic, bounded)
}

/// Estimated weight of an exceptional transition. A usual transition has at least the weight 1.
const EXCEPTION: f64 = 1.0 / 32.0;

/// Likelihoods of the transitions between states, estimated from the structure of the program.
#[derive(Debug)]
pub(crate) struct Likelihood(Vec<BTreeMap<StateId, f64>>);

impl Likelihood {
    pub(crate) fn new(program: &Program, groups: &[Vec<StateId>]) -> Self {
        let beyond = beyond(program, groups);
        let depths = depths(program, groups);
        let goes_on = goes_on(program, &beyond);
        let states = (0..program.states.len() as u32).map(|id| {
            let targets: BTreeSet<StateId> = followers(program, StateId(id)).into_iter().collect();
            let (on, ends): (Vec<StateId>, Vec<StateId>) =
                targets.iter().partition(|target| goes_on[target.index()]);
            // A target is a detour if most other targets of this state can be reached from it. Examples are a tag, a
            // tunnel and options. A detour is assumed to be an exception.
            let (detours, ways): (Vec<StateId>, Vec<StateId>) = on.iter().partition(|target| {
                let again = on
                    .iter()
                    .filter(|other| other != target && beyond[target.index()].contains(other));
                2 * again.count() > on.len() - 1
            });
            let mut weights: BTreeMap<StateId, f64> = BTreeMap::new();
            weights.extend(detours.into_iter().map(|detour| (detour, EXCEPTION)));
            // The end of parsing is an exception in two cases: if parsing can also continue with several other states,
            // or if it can continue with one other state from which this end cannot be reached.
            for end in ends {
                let usual = match &ways[..] {
                    [] => true,
                    [way] => beyond[way.index()].contains(&end),
                    _ => false,
                };
                weights.insert(end, if usual { 1.0 } else { EXCEPTION });
            }
            for way in &ways {
                // The branch with the longest chain of states is assumed to be the main purpose of the program.
                let weight = match ways.len() {
                    1 => 1.0,
                    _ => 1.0 + f64::from(depths[way.index()]),
                };
                weights.insert(*way, weight);
            }
            weights
        });
        Self(states.collect())
    }

    /// Returns the weight of a transition, relative to the other transitions of the state.
    pub(crate) fn of(&self, from: StateId, to: Target) -> f64 {
        match to {
            Target::Accept => 1.0,
            Target::State(to) => self.0[from.index()].get(&to).copied().unwrap_or(1.0),
        }
    }
}

/// Returns for each state the number of states on the longest path from it, including the state itself. The states of a
/// cycle count as one.
fn depths(program: &Program, groups: &[Vec<StateId>]) -> Vec<u32> {
    let mut depths = vec![0; program.states.len()];
    for group in groups.iter().rev() {
        let behind = group.iter().flat_map(|id| followers(program, *id));
        let most = behind.map(|id| depths[id.index()]).max().unwrap_or(0);
        for id in group {
            depths[id.index()] = most + 1;
        }
    }
    depths
}

/// Returns for each state the states that can be reached from it.
fn beyond(program: &Program, groups: &[Vec<StateId>]) -> Vec<BTreeSet<StateId>> {
    let mut beyond = vec![BTreeSet::new(); program.states.len()];
    for group in groups.iter().rev() {
        let next = group.iter().flat_map(|id| followers(program, *id));
        let mut all: BTreeSet<StateId> = next.collect();
        let further: Vec<_> = all.iter().map(|id| beyond[id.index()].clone()).collect();
        all.extend(further.into_iter().flatten());
        for id in group {
            beyond[id.index()] = all.clone();
        }
    }
    beyond
}

/// Returns for each state whether the parser may still extract a header: in the state itself, or in a state that can be
/// reached from it.
fn goes_on(program: &Program, beyond: &[BTreeSet<StateId>]) -> Vec<bool> {
    let extract = |op: &ParserOp| matches!(op, ParserOp::Extract(_) | ParserOp::ExtractVarbit(..));
    let itself = |id: StateId| program.state(id).ops.iter().any(extract);
    let states = (0..).map(StateId).zip(beyond);
    states
        .map(|(id, beyond)| itself(id) || beyond.iter().any(|id| itself(*id)))
        .collect()
}

/// Returns whether the states of a component form a cycle.
fn is_cycle(program: &Program, group: &[StateId]) -> bool {
    group.len() > 1 || group.iter().any(|id| followers(program, *id).contains(id))
}
