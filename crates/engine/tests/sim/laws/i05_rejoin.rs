//! Invariant I5 (docs/design/invariants.md): the rejoin loop never dials a current member of
//! gossip. The plan of the loop is a pure function. This law calls the function for one worker with
//! the current members.

use super::super::planted::Planted;
use super::*;
use remoor_cluster::gossip::{GossipTiming, plan};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

#[derive(Default)]
pub struct Rejoin {
    state: Option<plan::DialState>,
    last: BTreeMap<NodeName, SocketAddr>,
}

const ME: usize = 3;

fn address(host: usize) -> SocketAddr {
    (Ipv4Addr::new(127, 0, 0, host as u8 + 1), 7946).into()
}

impl Law for Rejoin {
    fn name(&self) -> &'static str {
        "I5"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        let Fact::Second = fact else { return Ok(()) };
        let name = |host: usize| NodeName::from(world.hosts[host].name);
        let all = || 0..world.hosts.len();
        let state = self.state.get_or_insert_with(|| {
            let mut state = plan::DialState::new(name(ME), address(ME), GossipTiming::default());
            state.set_known(world.now, all().map(|h| (name(h), vec![address(h)])).collect());
            state
        });
        let members: BTreeMap<_, _> = all()
            .filter(|h| *h == ME || world.hosts[*h].gossip_view.report.is_some())
            .map(|h| (name(h), address(h)))
            .collect();
        if members != self.last {
            self.last = members.clone();
            if world.options.planted != Some(Planted::ForgetsMembers) {
                state.set_members(world.now, members);
            }
        }
        let dials = plan::plan(world.now, state);
        for (dialled, at) in dials {
            if self.last.contains_key(&dialled) || self.last.values().any(|a| *a == at) {
                return Err(format!("{dialled} is dialled at {at} and is a member"));
            }
            state.begin(world.now, &dialled);
            state.end(&dialled);
        }
        Ok(())
    }
}
