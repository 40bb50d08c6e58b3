//! Entries about invitations: their creation and their single use.

use super::*;

impl Inventory {
    pub(super) fn invite(
        &mut self,
        at: &ApplyContext,
        secret: Sha256,
        name: &NodeName,
        role: ClusterRole,
        expires: Wall,
    ) -> Decision {
        let open = self.admission.invites.values().filter(|i| i.expires >= at.entry.at).count();
        if open >= INVITES_MAX {
            let text = format!("{open} invitations are open, which is the maximum");
            return Err(Refusal::new("too-many-invites", text).next("wait until some have expired"));
        }
        if self.admission.invites.contains_key(&secret) {
            return Err(Refusal::new("invite-known", "an invitation with this secret exists already"));
        }
        self.may_join(&NodeSpec { name: name.clone(), ..NodeSpec::default() })?;
        self.admission.invites.retain(|_, invite| invite.expires >= at.entry.at);
        let invite = Invite { name: name.clone(), role, expires, used_by: None };
        self.admission.invites.insert(secret, Arc::new(invite));
        let role = if role == ClusterRole::Manager { "manager" } else { "worker" };
        self.note(at, None, JournalEvent::Operator { text: format!("{name} may join as {role}, once") });
        Ok(Applied::Done)
    }

    pub(super) fn accept_invited(&mut self, at: &ApplyContext, spec: &NodeSpec, secret: Sha256) -> Decision {
        let invite = self.admission.invites.get(&secret).cloned();
        let invite = invite.filter(|i| i.admits(&spec.name, &spec.public_key, at.entry.at)).ok_or_else(|| {
            Refusal::new("no-invite", format!("no open invitation for {} matches this machine", spec.name))
                .next("remoor node add again")
        })?;
        let applied = self.accept_node(at, spec, invite.role)?;
        let used = Invite { used_by: Some(spec.public_key.clone()), ..invite.as_ref().clone() };
        self.admission.invites.insert(secret, Arc::new(used));
        Ok(applied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(inventory: &mut Inventory, at: u64, command: Command) -> Applied {
        let index = inventory.applied + 1;
        inventory.apply(index, &InventoryEntry { at: Wall(at), by: "test".to_owned(), command })
    }

    fn invite(secret: u8, role: ClusterRole) -> Command {
        Command::Invite { secret: Sha256([secret; 32]), name: "w1".into(), role, expires: Wall(100) }
    }

    fn join_by_invitation(secret: u8, name: &str, key: &str) -> Command {
        let spec = NodeSpec { name: name.into(), public_key: key.to_owned(), ..NodeSpec::default() };
        Command::AcceptInvited { spec, secret: Sha256([secret; 32]) }
    }

    fn refusal_code(applied: &Applied) -> Option<&str> {
        applied.refusal().map(|r| r.code.as_str())
    }

    #[test]
    fn an_invitation_admits_one_machine() {
        let mut inventory = Inventory::default();
        assert_eq!(apply(&mut inventory, 1, invite(1, ClusterRole::Manager)), Applied::Done);
        assert_eq!(
            refusal_code(&apply(&mut inventory, 2, join_by_invitation(2, "w1", "a"))),
            Some("no-invite"),
            "another secret"
        );
        assert_eq!(
            refusal_code(&apply(&mut inventory, 2, join_by_invitation(1, "w2", "a"))),
            Some("no-invite"),
            "another name"
        );
        let Applied::Node(id) = apply(&mut inventory, 100, join_by_invitation(1, "w1", "a")) else {
            panic!("not accepted")
        };
        assert_eq!(inventory.nodes[&id].role, ClusterRole::Manager);
        assert_eq!(apply(&mut inventory, 100, join_by_invitation(1, "w1", "a")), Applied::Node(id), "asked again");
        assert_eq!(
            refusal_code(&apply(&mut inventory, 100, join_by_invitation(1, "w1", "b"))),
            Some("no-invite"),
            "another key"
        );
        assert_eq!(
            refusal_code(&apply(&mut inventory, 101, join_by_invitation(1, "w1", "a"))),
            Some("no-invite"),
            "too late"
        );
    }

    #[test]
    fn a_refused_machine_does_not_use_up_its_invitation() {
        let mut inventory = Inventory::default();
        apply(&mut inventory, 1, invite(1, ClusterRole::Worker));
        apply(&mut inventory, 2, join_by_invitation(1, "w1", "a"));
        apply(&mut inventory, 3, invite(2, ClusterRole::Worker));
        let before = inventory.admission.invites.clone();
        assert_eq!(
            refusal_code(&apply(&mut inventory, 4, join_by_invitation(2, "w1", "b"))),
            Some("identity-conflict")
        );
        assert_eq!(inventory.admission.invites, before);
    }

    #[test]
    fn invitations_are_bounded_and_expire() {
        let mut inventory = Inventory::default();
        for n in 0..INVITES_MAX {
            let mut secret = [0; 32];
            secret[..8].copy_from_slice(&n.to_be_bytes());
            let (name, role) = ("w1".into(), ClusterRole::Worker);
            let command = Command::Invite { secret: Sha256(secret), name, role, expires: Wall(100) };
            assert_eq!(apply(&mut inventory, 1, command), Applied::Done);
        }
        assert_eq!(refusal_code(&apply(&mut inventory, 100, invite(9, ClusterRole::Worker))), Some("too-many-invites"));
        assert_eq!(apply(&mut inventory, 101, invite(9, ClusterRole::Worker)), Applied::Done);
        assert_eq!(inventory.admission.invites.len(), 1);
    }
}
