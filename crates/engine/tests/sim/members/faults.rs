//! Faults of the simulation, and the orders of operators during faults.

use super::driver::HEARD_MS;
use super::manager_service::{Payload, SimManagerService};
use super::planted::Planted;
use super::world::{Due, NAMES, Order, Then, World};
use remoor_engine::RoleStep;
use remoor_model::*;
use std::collections::BTreeSet;

impl World {
    /// Causes faults and orders at random. It is called once a second.
    pub fn weather(&mut self) {
        if self.rng.chance(self.options.fault_permille) {
            self.fault();
        }
        if self.rng.chance(self.options.operator_permille) {
            self.operator();
        }
        if self.rng.chance(self.options.traffic_permille) {
            self.traffic();
        }
    }

    fn any_leader(&mut self) -> Option<usize> {
        let all: Vec<usize> = (0..self.hosts.len()).filter(|at| self.leads(*at)).collect();
        (!all.is_empty()).then(|| all[self.rng.up_to(all.len())])
    }

    fn fault(&mut self) {
        let at = self.rng.up_to(self.hosts.len());
        let ms = self.rng.in_range(1_000, 20_000);
        match self.rng.up_to(13) {
            0 | 1 => {
                self.fire("host down");
                self.crash(at);
                self.schedule(ms, Due::Boot { host: at, wiped: false });
            }
            2 => {
                self.fire("host cut off");
                self.cut(at, at + 10, ms);
            }
            3 => {
                self.fire("hosts split in two groups");
                for at in 0..self.hosts.len() {
                    let side = self.rng.up_to(2);
                    self.cut(at, side, ms);
                }
            }
            4 | 5 => {
                if let Some(leader) = self.any_leader() {
                    self.fire("leader down");
                    self.crash(leader);
                    self.schedule(ms, Due::Boot { host: leader, wiped: false });
                }
            }
            6 | 7 => {
                if let Some(leader) = self.any_leader() {
                    self.fire("leader cut off");
                    self.cut(leader, leader + 10, ms);
                }
            }
            8 | 9 => {
                self.crash(at);
                let ms = self.rng.in_range(6_000, 12_000);
                self.schedule(ms, Due::Boot { host: at, wiped: true });
            }
            10 => {
                self.fire("another address");
                self.hosts[at].place += 1;
            }
            11 => {
                self.fire("follower takes few entries");
                self.hosts[at].slow = true;
                self.schedule(ms, Due::Heal { host: at });
            }
            _ => {
                self.fire("all managers down");
                for at in (0..self.hosts.len()).filter(|at| self.hosts[*at].part.is_some()).collect::<Vec<_>>() {
                    self.crash(at);
                    let ms = self.rng.in_range(1_000, 8_000);
                    self.schedule(ms, Due::Boot { host: at, wiped: false });
                }
            }
        }
    }

    fn cut(&mut self, at: usize, side: usize, ms: u64) {
        self.hosts[at].side = side;
        self.schedule(ms, Due::Heal { host: at });
    }

    /// Crashes the host. Its memory is lost, but its log is not.
    pub fn crash(&mut self, at: usize) {
        let now = self.now;
        if self.hosts[at].up {
            (self.hosts[at].up, self.hosts[at].down_since) = (false, now);
        }
        self.hosts[at].life += 1;
        if let Some(part) = self.hosts[at].part.as_mut() {
            (part.lead, part.heard) = (None, now);
        }
    }

    pub fn boot(&mut self, at: usize, wiped: bool) {
        if self.hosts[at].up {
            return;
        }
        self.hosts[at].up = true;
        // The host's log is lost only if the leader already knew that the node did not answer. So
        // no later step of the role manager relies on this log.
        let known = self.now - self.hosts[at].down_since > HEARD_MS + 1_000;
        if wiped && known && self.calm_since.is_none() && self.can_lose(at) {
            self.fire("log lost");
            if self.has_planted(Planted::WipedKeepsId) {
                if let Some(id) = self.hosts[at].part.as_ref().map(|p| p.id) {
                    self.hosts[at].part = Some(self.new_part(id));
                }
                return;
            }
            let host = &mut self.hosts[at];
            (host.part, host.joined, host.newest) = (None, None, RaftId(0));
            host.life += 1;
        }
    }

    /// Whether the host may lose its log. Raft does not survive the loss of a majority of logs. So
    /// each member list that is in force, or may come into force, must keep the logs of a majority
    /// of its voters.
    fn can_lose(&self, at: usize) -> bool {
        let parts = || (0..self.hosts.len()).filter(|h| *h != at).filter_map(|h| self.hosts[h].part.as_ref());
        let whole = |id: RaftId| parts().any(|p| p.id == id);
        let ordered = self.queue.values().filter_map(|due| match due {
            Due::Perform(Order { step: RoleStep::SetVoters { voters, .. }, .. }) => Some(voters),
            _ => None,
        });
        let most = |voters: &BTreeSet<RaftId>| voters.iter().filter(|id| whole(**id)).count() * 2 > voters.len();
        self.list.quorum(whole)
            && parts().chain(self.hosts[at].part.as_ref()).flat_map(SimManagerService::configs).all(|c| c.quorum(whole))
            && ordered.into_iter().all(most)
    }

    /// Writes many entries at once. Their number may exceed the number that a learner may lack.
    fn traffic(&mut self) {
        let many = self.rng.in_range(20, 300);
        if let Some(leader) = self.any_leader() {
            self.fire("burst of entries");
            for _ in 0..many {
                self.append(leader, Payload::Blank, Then::Nothing);
            }
        }
    }

    fn role(&self, at: usize, role: ClusterRole) -> Command {
        Command::Role { node: self.hosts[at].node, role }
    }

    fn order_after(&mut self, ms: u64, command: Command) {
        self.schedule(ms, Due::Tell(command));
    }

    fn operator(&mut self) {
        use ClusterRole::{Manager, Worker};
        let state = self.state();
        let role = |at: &usize| state.nodes[&self.hosts[*at].node].role;
        let (managers, workers): (Vec<usize>, Vec<usize>) =
            self.nodes_of(&state).into_iter().partition(|at| role(at) == Manager);
        let gap = self.rng.in_range(0, 15_000);
        let (down, leader) = (managers.iter().copied().find(|at| !self.hosts[*at].up), self.any_leader());
        let some = |world: &mut World, of: &[usize]| (!of.is_empty()).then(|| of[world.rng.up_to(of.len())]);
        match self.rng.up_to(12) {
            10 => {
                let Some(at) = some(self, &workers) else { return };
                self.fire("operator: a worker is removed");
                self.order_removal(at);
            }
            11 => {
                let Some(at) = some(self, &managers) else { return };
                self.fire("operator: a manager is removed");
                self.order_removal(at);
            }
            0 | 1 => {
                let Some(at) = some(self, &workers) else { return };
                self.fire("operator: promote");
                self.order(self.role(at, Manager));
            }
            2 => {
                let Some(at) = some(self, &managers) else { return };
                self.fire("operator: demote");
                self.order(self.role(at, Worker));
            }
            3 => {
                let Some(at) = some(self, &managers) else { return };
                self.fire("operator: demote and promote");
                self.order(self.role(at, Worker));
                self.order_after(gap % 4_000, self.role(at, Manager));
            }
            4 => {
                let Some(at) = some(self, &workers) else { return };
                self.fire("operator: promote and demote");
                self.order(self.role(at, Manager));
                self.order_after(gap, self.role(at, Worker));
            }
            5 => {
                self.fire("operator: several demoted as one order");
                let many = self.rng.in_range(1, managers.len() as u64 + 1) as usize;
                let all = managers.iter().take(many).map(|at| self.role(*at, Worker)).collect();
                self.order(Command::Batch(all));
            }
            6 => {
                self.fire("operator: burst of demotions");
                managers.iter().for_each(|at| self.order(self.role(*at, Worker)));
            }
            7 => {
                let Some(leader) = leader else { return };
                self.fire("operator: the leader is demoted");
                self.order(self.role(leader, Worker));
            }
            8 => {
                let Some(at) = down else { return };
                self.fire("operator: a dead manager is demoted");
                self.order(self.role(at, Worker));
            }
            _ => {
                let Some(at) = some(self, &workers).filter(|at| self.hosts[*at].part.is_none()) else { return };
                self.fire("operator: a worker joins as a manager");
                self.order(Command::Accept { spec: self.spec(at), role: Manager });
            }
        }
    }

    /// Sends an order to the node that believes it leads. If that node is a deposed leader, the
    /// order is lost.
    pub fn order(&mut self, command: Command) {
        if let Some(leader) = self.any_leader() {
            self.trace(|_| format!("{} receives {command:?}", NAMES[leader]));
            self.propose(leader, command, Then::Nothing);
        }
    }

    /// Makes the leader record the current addresses of nodes.
    pub fn record_moves(&mut self, at: usize, state: &Inventory) {
        for host in (0..self.hosts.len()).filter(|h| self.reaches(at, *h)).collect::<Vec<_>>() {
            let (node, api, gossip) = (self.hosts[host].node, self.api(host), self.gossip(host));
            if self.hosts[host].joined.is_some() && state.node(node).is_some_and(|n| n.spec.api != api) {
                self.propose(at, Command::Readdress { node, api, gossip, over: None }, Then::Nothing);
            }
        }
    }

    /// Ends all faults. Messages that were already sent still arrive.
    pub fn clear(&mut self) {
        self.calm_since = Some(self.now);
        for at in 0..self.hosts.len() {
            (self.hosts[at].side, self.hosts[at].slow) = (0, false);
            self.boot(at, false);
        }
    }
}
