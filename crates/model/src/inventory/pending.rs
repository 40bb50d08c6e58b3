//! Entries about machines that request to join without a secret, about nodes with an expired
//! certificate, and about join secrets. Requests that need an operator's decision are kept here.

use super::*;

impl Inventory {
    /// Refuses a machine whose disk is a copy of a known node's: it has the same machine id, but
    /// another key and another boot id. With the same boot id it is the same machine.
    pub(super) fn not_a_copy(&self, spec: &NodeSpec) -> Result<(), Refusal> {
        let known = self.nodes.values().any(|n| n.spec.public_key == spec.public_key);
        let told = !known && !spec.machine_id.is_empty() && !spec.boot.is_empty();
        let same = |n: &&Arc<Node>| {
            let known = &n.spec;
            known.machine_id == spec.machine_id && known.public_key != spec.public_key
        };
        let copy = |n: &&Arc<Node>| !n.spec.boot.is_empty() && n.spec.boot != spec.boot;
        match self.nodes.values().filter(same).find(copy) {
            Some(other) if told => {
                let text = format!(
                    "{} has the machine id of {}, {}: one disk is a copy of the other",
                    spec.name,
                    other.name(),
                    spec.machine_id
                );
                let next = format!(
                    "on the clone: rm /etc/machine-id; systemd-machine-id-setup, and join again; if this is the machine of {0}, \
                     which lost its data directory, remove {0} first",
                    other.name()
                );
                Err(Refusal::new("cloned-machine", text).next(next))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a machine that could not join if it were accepted.
    fn check_identity(&self, spec: &NodeSpec) -> Result<(), Refusal> {
        self.identify(spec)?;
        self.may_join(spec)?;
        self.not_a_copy(spec)
    }

    /// Refuses a machine whose join request cannot be kept until an operator decides. The leader
    /// also calls this before it proposes the entry, so that a refused request does not enter the
    /// log.
    pub fn check_pend(&self, spec: &NodeSpec, now: Wall) -> Result<(), Refusal> {
        self.not_denied(spec)?;
        self.check_identity(spec)?;
        let open = |p: &&Arc<PendingJoin>| p.expires >= now;
        let waits = self.admission.pending.get(&spec.name).filter(open);
        match waits {
            Some(p) if p.spec.public_key == spec.public_key => {
                return Err(Refusal::new("nothing-new", format!("{} waits for permission to join already", spec.name)));
            }
            Some(p) if p.answer != JoinDecision::Denied => {
                let text = format!("another machine with another key waits to join as {}", spec.name);
                let next = format!("join under another name, or remoor accept --deny {}", spec.name);
                return Err(Refusal::new("identity-conflict", text).next(next));
            }
            _ => {}
        }
        let own = |p: &&Arc<PendingJoin>| p.spec.public_key == spec.public_key && p.spec.name != spec.name;
        if let Some(other) = self.admission.pending.values().filter(open).find(own) {
            let text = format!("this machine waits already under the name {}", other.spec.name);
            return Err(Refusal::new("identity-conflict", text).next("join under that name"));
        }
        let unanswered =
            self.admission.pending.values().filter(open).filter(|p| p.answer == JoinDecision::None).count();
        if unanswered >= PENDING_MAX {
            let text = format!("{unanswered} machines wait to join, which is the maximum");
            return Err(Refusal::new("too-many-pending", text).next("remoor nodes, then remoor accept or --deny"));
        }
        Ok(())
    }

    pub(super) fn pend(&mut self, at: &ApplyContext, spec: &NodeSpec, role: ClusterRole) -> Decision {
        let now = at.entry.at;
        self.check_pend(spec, now)?;
        self.admission.pending.retain(|_, p| p.expires >= now);
        while self.admission.pending.len() >= PENDING_MAX {
            let answered = self.admission.pending.iter().filter(|(_, p)| p.answer != JoinDecision::None);
            let Some(oldest) = answered.min_by_key(|(_, p)| p.since).map(|(name, _)| name.clone()) else { break };
            self.admission.pending.remove(&oldest);
        }
        let (spec, expires) = (spec.clone(), now.plus_ms(PENDING_MS));
        let name = spec.name.clone();
        let pending = PendingJoin { spec, role, since: now, expires, answer: JoinDecision::None };
        self.admission.pending.insert(name.clone(), Arc::new(pending));
        self.note(at, None, JournalEvent::Operator { text: format!("{name} asks to be let in, without a secret") });
        Ok(Applied::Done)
    }

    fn waiting_join(&mut self, at: &ApplyContext, name: &NodeName) -> Result<&mut PendingJoin, Refusal> {
        let now = at.entry.at;
        let unknown = || Refusal::new("not-pending", format!("no machine waits to join as {name}"));
        let waits = self.admission.pending.get_mut(name).filter(|p| p.expires >= now);
        waits.map(Arc::make_mut).ok_or_else(|| unknown().next("remoor nodes"))
    }

    /// Refuses a denied key, whatever the way of joining is, until the denial is revoked.
    pub(super) fn not_denied(&self, spec: &NodeSpec) -> Result<(), Refusal> {
        let Some(denied) = self.admission.denied.get(&spec.public_key) else { return Ok(()) };
        let (name, by) = (&denied.spec.name, &denied.by);
        let text = format!("{by} denied {name}, which has this key");
        Err(Refusal::new("denied", text).next(format!("remoor accept {name}, on a manager, revokes the denial")))
    }

    /// The denied key of a machine that requested to join with this name. If there are several, it
    /// is the one that was denied last.
    pub fn denied_by_name(&self, name: &str) -> Option<&DeniedKey> {
        let of_name = self.admission.denied.values().filter(|d| d.spec.name.as_str() == name);
        of_name.max_by_key(|d| d.at).map(Arc::as_ref)
    }

    /// Revokes a denial. The machine may then request to join again, or join with a secret.
    fn revoke_denial(&mut self, at: &ApplyContext, key: &str) -> Option<Applied> {
        let denied = self.admission.denied.remove(key)?;
        let text = format!("the no to {} is taken back", denied.spec.name);
        self.note(at, None, JournalEvent::Operator { text });
        Some(Applied::Done)
    }

    /// Accepts the key that the operator was shown. The acceptance is refused if the machine could
    /// not join anyway. If the key does not wait but is denied, the denial is revoked.
    pub(super) fn admit(&mut self, at: &ApplyContext, name: &NodeName, key: &str, role: ClusterRole) -> Decision {
        let waits = self.admission.pending.get(name).filter(|p| p.expires >= at.entry.at).cloned();
        match waits.filter(|p| p.spec.public_key == key) {
            Some(pending) => self.check_identity(&pending.spec)?,
            None => {
                if let Some(applied) = self.revoke_denial(at, key) {
                    return Ok(applied);
                }
            }
        }
        let pending = self.waiting_join(at, name)?;
        if pending.spec.public_key != key {
            let text = format!("another machine waits as {name} now");
            return Err(Refusal::new("identity-conflict", text).next("remoor nodes, and compare its fingerprint"));
        }
        if pending.answer == JoinDecision::Accepted(role) {
            return Err(Refusal::new("nothing-new", format!("{name} is accepted already and may join")));
        }
        pending.answer = JoinDecision::Accepted(role);
        self.admission.denied.remove(key);
        self.note(at, None, JournalEvent::Operator { text: format!("{name} is accepted as {}", role.as_str()) });
        Ok(Applied::Done)
    }

    pub(super) fn deny(&mut self, at: &ApplyContext, name: &NodeName) -> Decision {
        let full = self.admission.denied.len() >= DENIED_MAX;
        let pending = self.waiting_join(at, name)?;
        if pending.answer == JoinDecision::Denied {
            return Err(Refusal::new("nothing-new", format!("{name} is denied already")));
        }
        if full {
            let text = format!("{DENIED_MAX} machines are denied, which is the maximum");
            return Err(
                Refusal::new("too-many-denied", text).next("remoor nodes lists them; remoor accept revokes a denial")
            );
        }
        pending.answer = JoinDecision::Denied;
        let spec = pending.spec.clone();
        let (key, by) = (spec.public_key.clone(), at.entry.by.clone());
        self.admission.denied.insert(key, Arc::new(DeniedKey { spec, at: at.entry.at, by }));
        self.note(at, None, JournalEvent::Operator { text: format!("{name} is not let in") });
        Ok(Applied::Done)
    }

    /// Lets an accepted machine join. The machine may repeat the request, because the answer may
    /// have been lost.
    pub(super) fn accept_pending(&mut self, at: &ApplyContext, spec: &NodeSpec) -> Decision {
        let pending = self.admission.pending.get(&spec.name).cloned();
        let accepted = pending.filter(|p| p.expires >= at.entry.at && p.spec.public_key == spec.public_key);
        match accepted.map(|p| p.answer) {
            Some(JoinDecision::Accepted(role)) => self.accept_node(at, spec, role),
            _ => {
                let text = format!("{} with this key is not accepted", spec.name);
                Err(Refusal::new("not-accepted", text).next(format!("remoor accept {}", spec.name)))
            }
        }
    }

    pub(super) fn record_expired_certificate(&mut self, at: &ApplyContext, node: NodeId) -> Decision {
        let name = self.change(node)?.name().clone();
        if self
            .expired_certificates
            .get(&node)
            .is_some_and(|l| l.accepted_until.is_none() || l.is_accepted(at.entry.at))
        {
            return Err(Refusal::new("nothing-new", format!("{name} waits to be accepted already")));
        }
        self.expired_certificates.insert(node, ExpiredCertificate { since: at.entry.at, accepted_until: None });
        let text = "its certificate ran out, or its CA was replaced; it waits to be accepted again".to_owned();
        self.note(at, Some(node), JournalEvent::Operator { text });
        Ok(Applied::Done)
    }

    pub(super) fn readmit(&mut self, at: &ApplyContext, node: NodeId) -> Decision {
        let name = self.change(node)?.name().clone();
        match self.expired_certificates.get_mut(&node) {
            Some(lapsed) if !lapsed.is_accepted(at.entry.at) => {
                lapsed.accepted_until = Some(at.entry.at.plus_ms(PENDING_MS));
                let text = "accepted again: it may have a new certificate".to_owned();
                self.note(at, Some(node), JournalEvent::Operator { text });
                Ok(Applied::Done)
            }
            Some(_) => Err(Refusal::new("nothing-new", format!("{name} is accepted already"))),
            None => Err(Refusal::new("not-pending", format!("{name} does not wait to be accepted"))),
        }
    }

    /// Removes the node from the nodes with an expired certificate, because it uses its new
    /// certificate.
    pub(super) fn clear_expired_certificate(&mut self, node: NodeId) -> Decision {
        match self.expired_certificates.remove(&node) {
            Some(_) => Ok(Applied::Done),
            None => Err(Refusal::new("nothing-new", format!("node {node} was not waiting for a certificate"))),
        }
    }

    pub(super) fn rotate_token(
        &mut self,
        at: &ApplyContext,
        role: ClusterRole,
        secret: Sha256,
        keep_ms: u64,
    ) -> Decision {
        let (current, other) = match role {
            ClusterRole::Worker => (self.admission.worker_secret, self.admission.manager_secret),
            ClusterRole::Manager => (self.admission.manager_secret, self.admission.worker_secret),
        };
        if secret == current || secret == other {
            return Err(Refusal::new("nothing-new", "this secret is in use already"));
        }
        let old = Some(OldSecret { secret: current, until: at.entry.at.plus_ms(keep_ms) });
        let record = TokenRecord { since: at.entry.at, by: at.entry.by.clone(), old };
        match role {
            ClusterRole::Worker => (self.admission.worker_secret, self.admission.worker_token) = (secret, record),
            ClusterRole::Manager => (self.admission.manager_secret, self.admission.manager_token) = (secret, record),
        }
        let text = format!("the {} token was rotated", role.as_str());
        self.note(at, None, JournalEvent::Operator { text });
        Ok(Applied::Done)
    }

    /// The hash of the role's current join secret, and its record.
    pub fn token(&self, role: ClusterRole) -> (&Sha256, &TokenRecord) {
        match role {
            ClusterRole::Worker => (&self.admission.worker_secret, &self.admission.worker_token),
            ClusterRole::Manager => (&self.admission.manager_secret, &self.admission.manager_token),
        }
    }
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
