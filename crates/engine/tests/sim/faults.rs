//! Faults of the simulation. The seed chooses one at a time, and each fault ends.

use super::host::{Cut, Greetings, Host, SimService, Sshd, services};
use super::planted::Planted;
use super::world::{Due, World};

impl World {
    pub fn fault(&mut self) {
        let at = self.rng.up_to(self.hosts.len());
        // If the planted bug concerns reachability, managers lose their routes more often.
        let roads = matches!(self.options.planted, Some(Planted::OpensWithoutRoute | Planted::HandsOverAtOnce));
        match if roads && self.rng.chance(400) { 22 } else { self.rng.up_to(26) } {
            0 | 1 => {
                let ms = self.rng.in_range(3_000, 30_000);
                self.cut(at, Cut::Full, ms);
                if self.rng.chance(500) {
                    self.edit(at);
                }
            }
            2 => {
                let ms = self.rng.in_range(3_000, 40_000);
                let kinds = [Greetings::Unanswered, Greetings::Answered, Greetings::Lost];
                self.hosts[at].greetings = kinds[self.rng.up_to(3)];
                self.cut(at, Cut::Gossip, ms);
            }
            3 => {
                let ms = self.rng.in_range(3_000, 20_000);
                let from = self.rng.up_to(3);
                self.cut(at, Cut::From(from), ms);
            }
            4 | 5 => {
                let ms = self.rng.in_range(2_000, 15_000);
                self.power_off(at, ms);
            }
            6 => {
                let ms = self.rng.in_range(500, 20_000);
                self.kill_agent(at, ms);
            }
            7 => {
                let ms = self.rng.in_range(6_000, 20_000);
                self.leave(at, ms);
            }
            8 => self.edit(at),
            9 => self.damage(at, "file deleted", |part| part.version = None),
            10 => self.damage(at, "unit stopped", |part| part.running = false),
            11 => self.damage(at, "unit disabled", |part| part.enabled = false),
            12 => {
                self.fire("sshd down");
                self.ssh_off(at, Sshd::Down);
            }
            13 => {
                self.fire("sshd hangs");
                self.ssh_off(at, Sshd::Hangs);
            }
            14 => {
                self.fire("host key changed");
                self.hosts[at].key += 1;
            }
            15 => self.disturb_checks(at, "checks hang", |host| host.check_faults.hang = true),
            16 => self.disturb_checks(at, "file unreadable", |host| host.set_unreadable(true)),
            17 => {
                self.hosts[at].executor.failing = self.rng.in_range(1, 4) as u32;
                self.hosts[at].executor.leftovers = self.rng.chance(300);
            }
            18 => {
                if let Some(leader) = self.leader.as_ref().map(|l| l.host) {
                    let ms = self.rng.in_range(2_000, 15_000);
                    self.kill_agent(leader, ms);
                }
            }
            19 => self.depose(),
            20 => self.blobs_missing = !self.blobs_missing && self.rng.chance(300),
            21 => {
                self.renumber(at);
                if self.rng.chance(500) {
                    self.edit(at);
                }
            }
            22 => {
                let ms = self.rng.in_range(5_000, 40_000);
                let lost = self.some_managers();
                self.lose_reachability(at, &lost, ms);
                if self.rng.chance(500) {
                    self.edit(at);
                }
            }
            23 => {
                self.fire("a warning comes or goes");
                self.hosts[at].check_faults.warns ^= true;
            }
            24 => {
                self.fire("a check that asks for nothing fails or passes");
                self.hosts[at].check_faults.murmurs ^= true;
            }
            _ => self.disaster(),
        }
    }

    /// Changes one of the host's services.
    fn damage(&mut self, at: usize, name: &'static str, change: impl FnOnce(&mut SimService)) {
        self.fire(name);
        let service = self.service(at);
        change(self.hosts[at].part(service));
    }

    /// Changes the host so that its checks give no result for some time.
    fn disturb_checks(&mut self, at: usize, name: &'static str, change: impl FnOnce(&mut Host)) {
        self.fire(name);
        change(&mut self.hosts[at]);
        let ms = self.rng.in_range(3_000, 25_000);
        self.schedule(ms, Due::ChecksOn { host: at });
    }

    /// Disconnects the host, which returns with another address. Often another host had this
    /// address before.
    fn renumber(&mut self, at: usize) {
        let free: Vec<u64> = (1..=14).filter(|p| self.hosts.iter().all(|h| h.place != *p)).collect();
        let place = free[self.rng.up_to(free.len())];
        let ms = self.rng.in_range(500, 20_000);
        self.cut(at, Cut::Full, ms);
        self.moves(at, place);
    }

    /// Gives the host the address with the number `place`. Gossip starts again at the new address,
    /// so the agent loses its peers at least for a moment.
    pub fn moves(&mut self, at: usize, place: u64) {
        self.fire("another address");
        let host = &mut self.hosts[at];
        host.place = place;
        if host.up && host.agent.up && !host.agent.isolated {
            host.agent.isolated = true;
            host.agent.isolation += 1;
        }
    }

    /// Causes a fault of many hosts at once.
    fn disaster(&mut self) {
        if self.rng.chance(500) {
            self.fire("all managers down");
            for at in 0..3 {
                let ms = self.rng.in_range(3_000, 20_000);
                self.kill_agent(at, ms);
            }
        } else {
            self.fire("group loses power");
            let group = self.hosts[self.rng.up_to(self.hosts.len())].group;
            for at in (0..self.hosts.len()).filter(|h| self.hosts[*h].group == group).collect::<Vec<_>>() {
                let ms = self.rng.in_range(2_000, 6_000);
                self.power_off(at, ms);
                if self.rng.chance(700) {
                    self.edit(at);
                }
            }
        }
    }

    fn service(&mut self, at: usize) -> &'static str {
        let all = services(self.hosts[at].group);
        all[self.rng.up_to(all.len())]
    }

    pub fn edit(&mut self, at: usize) {
        self.fire("file edited");
        let service = self.service(at);
        let edit = self.rng.in_range(1, 1_000_000);
        self.hosts[at].part(service).edits = edit;
    }

    pub fn cut(&mut self, at: usize, how: Cut, ms: u64) {
        self.fire(match how {
            Cut::Full => "network cut",
            Cut::Gossip => "gossip lost one way",
            Cut::From(_) => "one manager has no route",
            Cut::None => "network healed",
        });
        self.hosts[at].cut = how;
        if how != Cut::Gossip {
            self.lose_all_connections(at, false);
        }
        self.schedule(ms, Due::Heal { host: at });
    }

    /// Chooses the managers of a fault: the leader alone, the leader and one other manager, or all
    /// managers.
    fn some_managers(&mut self) -> Vec<usize> {
        let first = self.leader.as_ref().map_or(0, |l| l.host);
        let many = [1, 1, 2, 3][self.rng.up_to(4)];
        (0..many).map(|n| (first + n) % 3).collect()
    }

    /// Makes these managers lose the host's SSH port, although the host stays in gossip.
    pub fn lose_reachability(&mut self, at: usize, managers: &[usize], ms: u64) {
        self.fire("managers lose their routes");
        self.hosts[at].unreachable_from.extend(managers.iter().filter(|m| **m != at));
        self.schedule(ms, Due::Roads { host: at });
    }

    pub fn heal(&mut self, at: usize) {
        self.hosts[at].cut = Cut::None;
    }

    pub fn power_off(&mut self, at: usize, ms: u64) {
        if self.hosts[at].up {
            self.fire("power lost");
            self.lose_all_connections(at, true);
            (self.hosts[at].up, self.hosts[at].agent.up) = (false, false);
            self.schedule(ms, Due::PowerOn { host: at });
        }
    }

    pub fn power_on(&mut self, at: usize) {
        if !self.hosts[at].up {
            self.hosts[at].boot();
        }
    }

    pub fn kill_agent(&mut self, at: usize, ms: u64) {
        let host = &mut self.hosts[at];
        if host.up && host.agent.up {
            (host.agent.up, host.agent.left) = (false, false);
            self.fire("agent killed");
            self.schedule(ms, Due::AgentOn { host: at });
        }
    }

    /// Ends the agent after it has announced that it leaves.
    pub fn leave(&mut self, at: usize, ms: u64) {
        if self.hosts[at].up && self.hosts[at].agent.up {
            self.fire("graceful leave");
            if self.hosts[at].is_in_gossip() {
                let goodbye = self.hosts[at].report(true);
                self.receive_report(at, goodbye);
            }
            (self.hosts[at].agent.up, self.hosts[at].agent.left) = (false, true);
            self.schedule(ms, Due::AgentOn { host: at });
        }
    }

    pub fn agent_on(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        if host.up && !host.agent.up {
            host.agent.up = true;
            host.agent.instance += 1;
        }
    }

    fn ssh_off(&mut self, at: usize, how: Sshd) {
        self.hosts[at].sshd = how;
        let ms = self.rng.in_range(3_000, 25_000);
        self.schedule(ms, Due::SshOn { host: at });
    }

    pub fn ssh_on(&mut self, at: usize) {
        self.hosts[at].sshd = Sshd::Up;
    }

    /// Ends every fault and prevents new ones. A failed check that only warns or that requires no
    /// action may remain failed.
    pub fn clear(&mut self) {
        self.calm = true;
        self.blobs_missing = false;
        for at in 0..self.hosts.len() {
            self.heal(at);
            self.hosts[at].unreachable_from.clear();
            self.power_on(at);
            self.agent_on(at);
            self.ssh_on(at);
            self.hosts[at].check_faults.hang = false;
            self.hosts[at].set_unreadable(false);
            (self.hosts[at].executor.failing, self.hosts[at].executor.leftovers) = (0, false);
        }
    }
}
