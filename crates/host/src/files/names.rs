//! Users and groups of this machine by number and name, from `/etc/passwd` and `/etc/group`.
//! Queries no directory service.

use std::collections::BTreeMap;
use std::fs;

/// One line of `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    pub home: String,
    pub shell: String,
}

/// The content of `/etc/passwd` and `/etc/group`.
#[derive(Debug, Clone, Default)]
pub struct Names {
    users: BTreeMap<String, Account>,
    groups: BTreeMap<String, (u32, Vec<String>)>,
    user_names: BTreeMap<u32, String>,
    group_names: BTreeMap<u32, String>,
}

impl Names {
    /// Reads the files. A file that cannot be read counts as empty, so that its ids appear as
    /// `#1234`.
    pub fn load() -> Self {
        let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Self::parse(&read("/etc/passwd"), &read("/etc/group"))
    }

    /// Parses the text of the two files. Skips invalid lines. If two entries have the same id, the
    /// id gets the name of the first entry.
    pub fn parse(passwd: &str, group: &str) -> Self {
        let mut names = Self::default();
        for line in passwd.lines() {
            let parts: Vec<&str> = line.split(':').collect();
            if let [name, _, uid, gid, _, home, shell] = parts[..]
                && let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse())
            {
                names.user_names.entry(uid).or_insert_with(|| name.to_owned());
                let account = Account { uid, gid, home: home.to_owned(), shell: shell.to_owned() };
                names.users.entry(name.to_owned()).or_insert(account);
            }
        }
        for line in group.lines() {
            let parts: Vec<&str> = line.split(':').collect();
            if let [name, _, gid, members] = parts[..]
                && let Ok(gid) = gid.parse()
            {
                names.group_names.entry(gid).or_insert_with(|| name.to_owned());
                let members = members.split(',').filter(|m| !m.is_empty()).map(str::to_owned).collect();
                names.groups.entry(name.to_owned()).or_insert((gid, members));
            }
        }
        names
    }

    /// The name of the user `uid`, or `#1234` if the id has no name.
    pub fn owner(&self, uid: u32) -> String {
        self.user_names.get(&uid).cloned().unwrap_or_else(|| format!("#{uid}"))
    }

    /// The name of the group `gid`, or `#1234` if the id has no name.
    pub fn group(&self, gid: u32) -> String {
        self.group_names.get(&gid).cloned().unwrap_or_else(|| format!("#{gid}"))
    }

    /// The account of a user name.
    pub fn account(&self, user: &str) -> Option<&Account> {
        self.users.get(user)
    }

    /// The id of a group name.
    pub fn gid(&self, group: &str) -> Option<u32> {
        self.groups.get(group).map(|(gid, _)| *gid)
    }

    /// Whether the group is the private group of the user: it has the user's name, it is the
    /// primary group of this user only, and no other user is a member.
    pub fn is_private_group(&self, gid: u32, uid: u32) -> bool {
        let (Some(group), Some(user)) = (self.group_names.get(&gid), self.user_names.get(&uid)) else { return false };
        let is_primary_of_another = self.users.values().any(|other| other.gid == gid && other.uid != uid);
        let members = self.groups.get(group).map(|(_, members)| members.as_slice()).unwrap_or_default();
        group == user && !is_primary_of_another && members.iter().all(|member| member == user)
    }

    /// Names of the user's groups, sorted, including the primary group.
    pub fn groups_of(&self, user: &str) -> Vec<String> {
        let member = |members: &Vec<String>| members.iter().any(|m| m == user);
        let mut out: Vec<String> =
            self.groups.iter().filter(|(_, (_, members))| member(members)).map(|(name, _)| name.clone()).collect();
        if let Some(account) = self.users.get(user) {
            out.push(self.group(account.gid));
        }
        out.sort();
        out.dedup();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shown_as_names_and_unknown_ones_as_numbers() {
        let names = Names::parse(
            "root:x:0:0:root:/root:/bin/sh\nbroken line\nadm2:x:0:5::/:/x\n",
            "root:x:0:\nwheel:x:5:root,adm2\n",
        );
        assert_eq!(
            (names.owner(0), names.owner(1234), names.group(5)),
            ("root".into(), "#1234".into(), "wheel".into())
        );
        assert_eq!(names.groups_of("root"), ["root", "wheel"]);
        assert_eq!(names.gid("wheel"), Some(5));
        assert_eq!(names.account("nobody"), None);
    }

    #[test]
    fn a_private_group_has_one_user() {
        let passwd = "ann:x:7:7::/:/x\nbob:x:8:8::/:/x\ncid:x:9:8::/:/x\ndan:x:10:100::/:/x\n";
        let names = Names::parse(passwd, "ann:x:7:ann\nbob:x:8:\nusers:x:100:\ndan:x:11:ann\n");
        assert!(names.is_private_group(7, 7));
        for (gid, uid) in [(8, 8), (100, 10), (11, 10), (7, 8), (1, 7)] {
            assert!(!names.is_private_group(gid, uid), "{gid} {uid}");
        }
    }
}
