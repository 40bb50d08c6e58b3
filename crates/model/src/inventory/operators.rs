//! Entries about operator credentials: recording new ones, and revoking those of an operator.

use super::*;
use crate::operators::is_former_operator_name;

impl Inventory {
    pub(super) fn make_operator(
        &mut self,
        at: &ApplyContext,
        key: &str,
        operator: OperatorKey,
        enforce: bool,
    ) -> Decision {
        let name = operator.name.clone();
        let usable = if enforce { is_operator_name(&name) } else { is_former_operator_name(&name) };
        if !usable {
            let text = format!("{name:?} is not a valid operator name: {OPERATOR_NAME_RULE}");
            return Err(Refusal::new("bad-name", text));
        }
        if enforce && self.operators.contains_key(key) {
            let text = format!("these credentials of {name} are recorded already");
            return Err(Refusal::new("nothing-new", text).next("remoor key status lists them"));
        }
        let now = at.entry.at;
        // Revoked credentials are remembered as long as their CA is trusted, because a wrong clock
        // must not make them valid again.
        let roots: Vec<Sha256> = self.roots().into_iter().map(ca_id).collect();
        let counts = |operator: &OperatorKey| operator.revoked.is_some() && roots.contains(&operator.ca);
        let over = |operator: &OperatorKey| now.ms_since(operator.until) > OPERATOR_KEPT_MS && !counts(operator);
        if self.operators.values().filter(|operator| !over(operator)).count() >= OPERATORS_MAX {
            let text = format!("{OPERATORS_MAX} operator credentials are remembered, which is the maximum");
            return Err(Refusal::new("too-many-operators", text).next("wait until some have ended: remoor key status"));
        }
        self.operators.retain(|_, operator| !over(operator));
        self.operators.insert(key.to_owned(), Arc::new(operator));
        self.only_listed_operators |= enforce;
        self.note(at, None, JournalEvent::Operator { text: format!("credentials were made for operator {name}") });
        Ok(Applied::Done)
    }

    pub(super) fn revoke_operator(&mut self, at: &ApplyContext, name: &str) -> Decision {
        let of_name = |operator: &&mut Arc<OperatorKey>| operator.name == name && operator.revoked.is_none();
        let mut count = 0;
        for operator in self.operators.values_mut().filter(of_name) {
            Arc::make_mut(operator).revoked = Some((at.entry.at, at.entry.by.clone()));
            count += 1;
        }
        if count == 0 {
            let text = format!("{name} has no valid credentials on the list of operators");
            let next = match self.only_listed_operators {
                true => "remoor key status lists them",
                false => "remoor key operator NAME --file FILE, which also begins the list of operators",
            };
            return Err(Refusal::new("nothing-new", text).next(next));
        }
        self.note(
            at,
            None,
            JournalEvent::Operator { text: format!("the credentials of operator {name} were revoked") },
        );
        Ok(Applied::Done)
    }

    /// The time of the revocation, and the operator who ordered it. None if the credentials are not
    /// revoked. `key` is in hex.
    pub fn revocation(&self, key: &str) -> Option<&(Wall, String)> {
        self.operators.get(key).and_then(|operator| operator.revoked.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(inventory: &mut Inventory, at: u64, command: Command) -> Option<String> {
        let entry = InventoryEntry { at: Wall(at), by: "max".to_owned(), command };
        inventory.apply(inventory.applied + 1, &entry).refusal().map(|r| r.code.clone())
    }

    fn make(name: &str, key: &str, until: u64) -> Command {
        let (name, key, ca) = (name.to_owned(), key.to_owned(), Sha256::digest(b"ca"));
        Command::MakeOperator { name, key, ca, until: Wall(until), enforce: true }
    }

    fn make_as_before(name: &str, key: &str) -> Command {
        let (name, key, ca) = (name.to_owned(), key.to_owned(), Sha256::digest(b"ca"));
        Command::MakeOperator { name, key, ca, until: Wall(100), enforce: false }
    }

    #[test]
    fn revoking_an_operator_revokes_all_its_credentials_and_no_others() {
        let mut i = Inventory::default();
        for (name, key) in [("zoe", "aa"), ("zoe", "bb"), ("max", "cc")] {
            assert_eq!(apply(&mut i, 1, make(name, key, 100)), None);
        }
        let revoke = || Command::RevokeOperator { name: "zoe".to_owned() };
        assert_eq!(apply(&mut i, 2, revoke()), None);
        let revoked = |i: &Inventory| ["aa", "bb", "cc", "dd"].map(|key| i.revocation(key).is_some());
        assert_eq!(revoked(&i), [true, true, false, false]);
        assert_eq!(apply(&mut i, 3, revoke()).as_deref(), Some("nothing-new"));
        assert_eq!(apply(&mut i, 3, make("zoe", "dd", 100)), None, "new ones count");
        assert_eq!(revoked(&i), [true, true, false, false]);
    }

    #[test]
    fn credentials_are_remembered_until_after_their_expiry_and_their_number_is_limited() {
        let mut i = Inventory::default();
        for n in 0..OPERATORS_MAX {
            assert_eq!(apply(&mut i, 1, make("zoe", &n.to_string(), 100)), None);
        }
        let later = 100 + OPERATOR_KEPT_MS;
        assert_eq!(apply(&mut i, later, make("zoe", "x", 200)).as_deref(), Some("too-many-operators"));
        assert_eq!(i.operators.len(), OPERATORS_MAX);
        assert_eq!(apply(&mut i, later + 1, make("zoe", "x", 200)), None);
        assert_eq!(i.operators.len(), 1);
    }

    #[test]
    fn revoked_credentials_are_remembered_while_their_ca_is_trusted() {
        let mut i = Inventory { ca_pem: Arc::new("A".to_owned()), ..Inventory::default() };
        let made = |key: &str, ca: Sha256| Command::MakeOperator {
            name: "zoe".to_owned(),
            key: key.to_owned(),
            ca,
            until: Wall(100),
            enforce: true,
        };
        assert_eq!(apply(&mut i, 1, made("aa", ca_id("A"))), None);
        assert_eq!(apply(&mut i, 1, made("bb", ca_id("B"))), None);
        assert_eq!(apply(&mut i, 2, Command::RevokeOperator { name: "zoe".to_owned() }), None);
        // The clock of this leader is a week ahead of the clocks of the other managers.
        assert_eq!(apply(&mut i, 101 + OPERATOR_KEPT_MS, made("cc", ca_id("A"))), None);
        assert_eq!(["aa", "bb", "cc"].map(|key| i.operators.contains_key(key)), [true, false, true]);
        assert!(i.revocation("aa").is_some());
    }

    #[test]
    fn invalid_operator_names_are_refused() {
        let mut i = Inventory::default();
        for name in ["", "root@m1", "a b", "ü", "../x", "..", "-x", &"x".repeat(65)] {
            assert_eq!(apply(&mut i, 1, make(name, "aa", 100)).as_deref(), Some("bad-name"), "{name}");
        }
        assert!(i.operators.is_empty() && !i.only_listed_operators);
    }

    #[test]
    fn the_list_begins_with_the_first_entry_of_a_program_that_knows_it() {
        let mut i = Inventory::default();
        assert_eq!(apply(&mut i, 1, make_as_before("zoe", "aa")), None);
        assert_eq!(apply(&mut i, 1, make_as_before(INIT_OPERATOR, "bb")).as_deref(), Some("bad-name"));
        assert!(!i.only_listed_operators);
        assert_eq!(apply(&mut i, 1, make(INIT_OPERATOR, "bb", 100)), None);
        assert!(i.only_listed_operators);
        // Credentials that were revoked can't be recorded again.
        assert_eq!(apply(&mut i, 2, Command::RevokeOperator { name: INIT_OPERATOR.to_owned() }), None);
        assert_eq!(apply(&mut i, 3, make(INIT_OPERATOR, "bb", 100)).as_deref(), Some("nothing-new"));
        assert!(i.revocation("bb").is_some() && i.revocation("aa").is_none());
    }
}
