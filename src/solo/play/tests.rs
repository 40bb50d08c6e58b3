//! Messages about a play request, before any host is changed.

use super::*;
use tempfile::TempDir;

/// The warnings about a playbook of two plays, with an inventory of two groups.
fn warnings(limit: &[&str], tags: &[&str]) -> Vec<String> {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("inv", "[web]\nw1\nw2\n[db]\nd1\n[all:vars]\nansible_connection=local\n");
    let task = "{debug: {msg: a}, tags: [one, 'two,three']}";
    write(
        "site.yml",
        &format!("- hosts: web\n  tasks: [{task}]\n- hosts: [d1, w1, nobody]\n  tasks: [{{debug: {{msg: b}}}}]\n"),
    );
    let owned = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let request = PlayRequest {
        playbook: dir.path().join("site.yml"),
        inventory: vec![dir.path().join("inv").display().to_string()],
        limit: owned(limit),
        tags: owned(tags),
        forks: 1,
        ..PlayRequest::default()
    };
    let prepared = prepare(request).unwrap_or_else(|faults| panic!("{faults:?}"));
    prepared.warnings.iter().map(|fault| fault.message.clone()).collect()
}

#[test]
fn what_a_limit_leaves_out_is_there_all_the_same() {
    let nobody = "`hosts`: no host or group is called `nobody`";
    assert_eq!(warnings(&[], &[]), [nobody]);
    assert_eq!(warnings(&["w2"], &[]), [nobody]);
    assert_eq!(warnings(&["web"], &[]), [nobody]);
}

#[test]
fn a_tag_that_no_task_has_is_told() {
    let of_tags = |tags: &[&str]| warnings(&[], tags).into_iter().filter(|w| w.contains("tag")).collect::<Vec<_>>();
    assert_eq!(of_tags(&["one", "three", "all", "untagged"]), Vec::<String>::new());
    assert_eq!(of_tags(&["tow", "two"]), ["no task has the tag `tow`"]);
}

#[test]
fn what_all_hosts_have_alike_is_made_once() {
    let dir = TempDir::new().unwrap();
    let text = "- hosts: all\n  tasks: [{debug: {msg: \"{{ hostvars.w2.ansible_connection }} {{ url }}\"}}]\n";
    std::fs::write(dir.path().join("site.yml"), text).unwrap();
    let inventory = "[web]\nw1 url='{{ groups.web | first }}'\nw2 url=x\n[all:vars]\nansible_connection=local\n";
    std::fs::write(dir.path().join("inv"), inventory).unwrap();
    let inventory = vec![dir.path().join("inv").display().to_string()];
    let request = PlayRequest { playbook: dir.path().join("site.yml"), inventory, forks: 1, ..PlayRequest::default() };
    let prepared = prepare(request).unwrap_or_else(|faults| panic!("{faults:?}"));
    let shared: Vec<_> = prepared.hosts.iter().map(|host| &host.plan.shared).collect();
    assert!(std::ptr::eq(shared[0]["hostvars"].json(), shared[1]["hostvars"].json()));
    // Only the variables of the first host read `groups`, so only its plan contains `groups`.
    let names = |at: usize| shared[at].keys().cloned().collect::<Vec<_>>();
    assert_eq!((names(0), names(1)), (vec!["groups".to_owned(), "hostvars".to_owned()], vec!["hostvars".to_owned()]));
    assert!(prepared.hosts.iter().all(|host| !host.plan.vars.contains_key("hostvars")));
}

/// The login users of the hosts, or the messages of the faults.
fn login_users(plays: &str, inventory: &str, user: Option<&str>) -> Result<Vec<String>, Vec<String>> {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("site.yml"), plays).unwrap();
    std::fs::write(dir.path().join("inv"), inventory).unwrap();
    let inventory = vec![dir.path().join("inv").display().to_string()];
    let login = Login { user: user.map(str::to_owned), ..Login::default() };
    let playbook = dir.path().join("site.yml");
    let prepared = prepare(PlayRequest { playbook, inventory, login, forks: 1, ..PlayRequest::default() });
    let prepared = prepared.map_err(|faults| faults.into_iter().map(|fault| fault.message).collect::<Vec<_>>())?;
    let user_of = |host: &super::prepare::Host| match &host.road {
        super::connection::HostConnection::Ssh(target) => target.user.clone(),
        super::connection::HostConnection::Local { .. } => "local".to_owned(),
    };
    Ok(prepared.hosts.iter().map(user_of).collect())
}

#[test]
fn remote_user_chooses_the_login_if_the_inventory_does_not() {
    let play = |hosts: &str, user: &str| format!("- {{hosts: {hosts}, {user}, tasks: [{{debug: {{msg: a}}}}]}}\n");
    let (deploy, other) = (play("all", "remote_user: deploy"), play("w2", "user: other"));
    let owned = |list: &[&str]| Ok(list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    assert_eq!(login_users(&deploy, "w1\nw2 ansible_user=own\n", Some("me")), owned(&["deploy", "own"]));
    assert_eq!(login_users(&[&*deploy, &deploy].concat(), "w1\nw2\n", None), owned(&["deploy", "deploy"]));
    let of_task = "- {hosts: w1, tasks: [{debug: {msg: a}, remote_user: me}]}\n";
    assert_eq!(login_users(of_task, "w1\n", Some("me")), owned(&["me"]));
    let of_other = "- {hosts: w1, tasks: [{debug: {msg: a}, remote_user: other}]}\n";
    assert_eq!(login_users(of_other, "w1\n", Some("me")), owned(&["me"]));
    let faults = login_users(&[&*deploy, &other].concat(), "w1\nw2\n", None).unwrap_err();
    assert!(faults.iter().all(|message| message.contains("`remote_user` must be the same in all plays")), "{faults:?}");
    assert!(!faults.is_empty());
    // The first play logs in as the usual user, which the second play does not name.
    let mixed = [play("w1", "gather_facts: no"), play("w1", "remote_user: deploy")].concat();
    assert!(login_users(&mixed, "w1\n", None).is_err());
    assert_eq!(login_users(&mixed, "w1\n", Some("deploy")), owned(&["deploy"]));
}
