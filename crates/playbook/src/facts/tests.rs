//! Facts read from the tree `tests/ansible/node`, compared with the output of Ansible's `setup` on
//! the machine from which it was copied.

use super::address::InterfaceAddress;
use super::*;

fn load_recording() -> (FactsRoot, Value) {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/ansible");
    let text = std::fs::read_to_string(dir.join("setup.json")).unwrap();
    (FactsRoot(dir.join("node")), serde_json::from_str(&text).unwrap())
}

fn addresses(told: &Value) -> Vec<InterfaceAddress> {
    let mut out = Vec::new();
    for (index, list) in told.as_object().unwrap() {
        for a in list.as_array().unwrap() {
            out.push(InterfaceAddress {
                interface: index.parse().unwrap(),
                address: a["local"].as_str().unwrap().parse().unwrap(),
                broadcast: a["broadcast"].as_str().map(|b| b.parse().unwrap()),
                prefix: a["prefixlen"].as_u64().unwrap() as u8,
                scope: match a["scope"].as_str().unwrap() {
                    "global" => 0,
                    "link" => 253,
                    _ => 254,
                },
                secondary: a["secondary"] == true,
            });
        }
    }
    out
}

/// Sorts all lists, because their order has no meaning.
fn sort_lists(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(sort_lists).collect();
            items.sort_by_key(Value::to_string);
            json!(items)
        }
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), sort_lists(v))).collect::<Map<_, _>>().into(),
        other => other.clone(),
    }
}

#[test]
fn facts_match_ansible_setup() {
    let (root, told) = load_recording();
    let mut own = Map::new();
    machine::gather_machine(&root, &CancelToken::new(), &mut own);
    system::gather_system(&root, &mut own);
    hardware::gather_hardware(&root, &CancelToken::new(), &mut own);
    network::gather_network(&root, &addresses(&told["addresses"]), &mut own);
    let mut faults = Vec::new();
    let facts = told["facts"].as_object().unwrap();
    for (name, want) in facts {
        let got = own.get(name).unwrap_or(&Value::Null);
        if sort_lists(got) != sort_lists(want) {
            faults.push(format!("{name}\n  want {want}\n  got  {got}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(facts.len() > 30, "{}", facts.len());
}

#[test]
fn facts_of_this_machine_are_known() {
    let facts = gather(&CancelToken::new());
    let unknown: Vec<&String> =
        facts.keys().filter(|name| !is_known(name) && !facts[*name]["device"].is_string()).collect();
    assert!(unknown.is_empty(), "lint would call these undefined: {unknown:?}");
    for name in [
        "hostname",
        "fqdn",
        "distribution",
        "os_family",
        "kernel",
        "processor_vcpus",
        "memtotal_mb",
        "pkg_mgr",
        "date_time",
    ] {
        let value = &facts[&format!("ansible_{name}")];
        assert!(!value.is_null() && value != "", "{name}: {value}");
        assert_eq!(facts["ansible_facts"][name], *value);
    }
    assert_eq!(facts["ansible_lo"]["ipv4"]["address"], "127.0.0.1", "{}", facts["ansible_lo"]);
    assert!(ABSENT.iter().all(|(name, _)| !facts.contains_key(*name)), "gathered, but listed as absent");
    assert_eq!(
        (absence_reason("ansible_lvm").is_some(), is_known("ansible_eth0"), is_known("ansible_hosntame")),
        (true, true, false)
    );
}

#[test]
fn distributions_are_detected() {
    let of = |release: &str, more: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("etc")).unwrap();
        for (name, text) in more.iter().chain([&("os-release", release)]) {
            std::fs::write(dir.path().join("etc").join(name), text).unwrap();
        }
        let mut out = Map::new();
        system::gather_system(&FactsRoot(dir.path().to_owned()), &mut out);
        let word = |name: &str| out[name].as_str().unwrap_or_default().to_owned();
        ["distribution", "os_family", "distribution_version", "distribution_major_version", "distribution_release"]
            .map(word)
    };
    for (release, more, want) in [
        (
            "ID=ubuntu\nNAME=\"Ubuntu\"\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\nID_LIKE=debian\n",
            vec![("debian_version", "trixie/sid")],
            ["Ubuntu", "Debian", "24.04", "24", "noble"],
        ),
        (
            "ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n",
            vec![("debian_version", "12.11\n")],
            ["Debian", "Debian", "12.11", "12", "bookworm"],
        ),
        (
            "ID=\"rocky\"\nVERSION_ID=\"9.4\"\nID_LIKE=\"rhel centos fedora\"\n",
            vec![("redhat-release", "Rocky Linux release 9.4 (Blue Onyx)")],
            ["Rocky", "RedHat", "9.4", "9", "Blue Onyx"],
        ),
        (
            "ID=\"centos\"\nVERSION_ID=\"7\"\n",
            vec![("centos-release", "CentOS Linux release 7.9.2009 (Core)")],
            ["CentOS", "RedHat", "7.9", "7", "Core"],
        ),
        (
            "ID=\"opensuse-leap\"\nVERSION_ID=\"15.6\"\nID_LIKE=\"suse opensuse\"\n",
            vec![],
            ["openSUSE Leap", "Suse", "15.6", "15", "6"],
        ),
        ("ID=mine\nNAME=Mine\nVERSION_ID=3\nID_LIKE=debian\n", vec![], ["Mine", "Debian", "3", "3", "NA"]),
    ] {
        assert_eq!(of(release, &more), want, "{release}");
    }
}
