//! Tests three realistic check files, rendered for nodes of different groups.

use super::*;
use expect_test::expect;
use serde_json::{Value, json};

const ETCD: &str = r#"remoor:
  service: etcd                       # name used by status, re-setup and journal
  roles: [service-master, service-worker]
  template: tera
  vars: {client_port: 2379, client_port2: 4001, peer_port: 2380, name: contiv}
{% set proxy = node.group == "service-worker" %}
{% set unit = "etcd-proxy-contiv" if proxy else "etcd-contiv" %}
{% set other = "etcd-contiv" if proxy else "etcd-proxy-contiv" %}
service:
  {{ unit }}:  {enabled: true, running: true, meta: {remoor: {severity: critical, on-fail: resetup, for: 10s}}}
  {{ other }}: {enabled: false, running: false, title: "no unit of the other mode is left over"}
file:
  /etc/{{ unit }}.env:
    exists: true
    mode: "0644"
    owner: root
    sha256: "{{ expected["/etc/" ~ unit ~ ".env"].sha256 }}"
    contents:
{% if proxy %}
      - "ETCD_PROXY=on"
      - "!ETCD_DATA_DIR"
{% else %}
      - "ETCD_NAME={{ node.hostname }}"
      - '/^ETCD_LISTEN_PEER_URLS=http://{{ node.addr | replace(from=".", to="\\.") }}:{{ vars.peer_port }}$/'
      - "!ETCD_PROXY"
{% endif %}
  /etc/{{ other }}.env: {exists: false}
port:
  tcp6:{{ vars.client_port }}: {listening: true}
{% if not proxy %}
  tcp:{{ vars.peer_port }}: {listening: true, ip: ["{{ node.addr }}"]}
{% endif %}
http:
  http://127.0.0.1:{{ vars.client_port }}/v2/members:
    status: 200
    timeout: 2000
    body:
      gjson:
        members.#: {{ peers | length }}
    meta: {remoor: {severity: warning, on-fail: alert}}
"#;

const CONTIV: &str = r#"remoor: {service: contiv_network, roles: [service-master, service-worker], template: tera}
{% set master = node.group == "service-master" %}
service:
  netplugin: {enabled: true, running: true}
  netmaster: {enabled: {{ master }}, running: {{ master }}}
process:
  netplugin: {running: true}
  netmaster: {running: {{ master }}}
file:
  /etc/default/netplugin:
    exists: true
    contents: ["-vtep-ip {{ node.addr }}", "-ctrl-ip {{ node.addr }}", "-vlan-if {{ vars.netplugin_if }}", "-cluster-store {{ vars.cluster_store }}"]
  /etc/default/netmaster: {exists: {{ master }}}
  /etc/hosts: {exists: true, contents: ["{{ "" if master else "!" }}127.0.0.1 netmaster"]}
port:
  netplugin-agent1: {port: "tcp:9002", listening: true}
  netplugin-agent2: {port: "tcp:9003", listening: true}
  netmaster-api:    {port: "tcp6:9999", listening: {{ master }}}
  ofnet-master:     {port: "tcp6:9001", listening: {{ master }}}
"#;

const NGINX: &str = r#"remoor: {service: nginx, roles: [web], template: tera}
package:
  nginx: {installed: true, versions: [{match-regexp: "^1\\.2[2-9]\\."}]}
service:
  nginx: {enabled: true, running: true}
command:
  config-parses: {exec: "nginx -t", exit-status: 0, timeout: 3000}
port:
  tcp:80: {listening: true, ip: [0.0.0.0]}
http:
  http://127.0.0.1/healthz: {status: 200, timeout: 1000, headers: ["Server: nginx"], body: ["{{ node.name }}"]}
file:
  /etc/nginx/nginx.conf: {exists: true, mode: "0644", owner: root, contents: ["worker_processes"]}
  /etc/nginx/tls/site.key: {exists: true, mode: "0600", owner: root, meta: {remoor: {secret: true}}}
"#;

fn context(group: &str) -> serde_json::Map<String, Value> {
    let hash = "ab".repeat(32);
    let value = json!({
        "node": {"name": "n1", "hostname": "n1.example", "addr": "192.0.2.7", "group": group, "role": "worker"},
        "vars": {"netplugin_if": "eth2", "cluster_store": "etcd://192.0.2.7:2379"},
        "peers": [{"name": "n1"}, {"name": "n2"}, {"name": "n3"}],
        "expected": {"/etc/etcd-contiv.env": {"sha256": hash}, "/etc/etcd-proxy-contiv.env": {"sha256": hash}},
    });
    value.as_object().unwrap().clone()
}

/// The assertions of the check file for a node of `group`, as text.
fn assertions(text: &str, group: &str) -> String {
    let (head, goss) = header("x.yml", text).unwrap();
    assert_eq!(applies("x.yml", &head, group, "worker", &context(group)), Ok(Applies::Yes));
    let rendered = render("x.yml", &head, &goss, &context(group)).unwrap_or_else(|faults| panic!("{}", lines(&faults)));
    let checks =
        parse("x.yml", &head.service, &rendered).unwrap_or_else(|faults| panic!("{}{rendered}", lines(&faults)));
    let mut out = String::new();
    for check in &checks {
        let parts: Vec<String> =
            check.assertions.iter().map(|assertion| format!("{}={}", assertion.property, assertion.matcher)).collect();
        out += &format!("{}: {}\n", check.label(), parts.join(" "));
    }
    out
}

#[test]
fn etcd() {
    expect![[r#"
        service:etcd-contiv: enabled=true running=true
        service:etcd-proxy-contiv: enabled=false running=false
        file:/etc/etcd-contiv.env: exists=true mode=0644 owner=root contents=[ETCD_NAME=n1.example, /^ETCD_LISTEN_PEER_URLS=http://192\.0\.2\.7:2380$/, !ETCD_PROXY] sha256=abababababababababababababababababababababababababababababababab
        file:/etc/etcd-proxy-contiv.env: exists=false
        port:tcp6:2379: listening=true
        port:tcp:2380: listening=true ip=contain-elements [192.0.2.7]
        http:http://127.0.0.1:2379/v2/members: status=200 body=gjson {members.#: 3}
    "#]].assert_eq(&assertions(ETCD, "service-master"));
    expect![[r#"
        service:etcd-proxy-contiv: enabled=true running=true
        service:etcd-contiv: enabled=false running=false
        file:/etc/etcd-proxy-contiv.env: exists=true mode=0644 owner=root contents=[ETCD_PROXY=on, !ETCD_DATA_DIR] sha256=abababababababababababababababababababababababababababababababab
        file:/etc/etcd-contiv.env: exists=false
        port:tcp6:2379: listening=true
        http:http://127.0.0.1:2379/v2/members: status=200 body=gjson {members.#: 3}
    "#]].assert_eq(&assertions(ETCD, "service-worker"));
}

#[test]
fn contiv_network() {
    expect![[r#"
        service:netplugin: enabled=true running=true
        service:netmaster: enabled=true running=true
        process:netplugin: running=true
        process:netmaster: running=true
        file:/etc/default/netplugin: exists=true contents=[-vtep-ip 192.0.2.7, -ctrl-ip 192.0.2.7, -vlan-if eth2, -cluster-store etcd://192.0.2.7:2379]
        file:/etc/default/netmaster: exists=true
        file:/etc/hosts: exists=true contents=[127.0.0.1 netmaster]
        port:netplugin-agent1: listening=true
        port:netplugin-agent2: listening=true
        port:netmaster-api: listening=true
        port:ofnet-master: listening=true
    "#]].assert_eq(&assertions(CONTIV, "service-master"));
    expect![[r#"
        service:netplugin: enabled=true running=true
        service:netmaster: enabled=false running=false
        process:netplugin: running=true
        process:netmaster: running=false
        file:/etc/default/netplugin: exists=true contents=[-vtep-ip 192.0.2.7, -ctrl-ip 192.0.2.7, -vlan-if eth2, -cluster-store etcd://192.0.2.7:2379]
        file:/etc/default/netmaster: exists=false
        file:/etc/hosts: exists=true contents=[!127.0.0.1 netmaster]
        port:netplugin-agent1: listening=true
        port:netplugin-agent2: listening=true
        port:netmaster-api: listening=false
        port:ofnet-master: listening=false
    "#]].assert_eq(&assertions(CONTIV, "service-worker"));
}

#[test]
fn nginx() {
    expect![[r#"
        package:nginx: installed=true versions=contain-elements [match-regexp ^1\.2[2-9]\.]
        service:nginx: enabled=true running=true
        command:config-parses: exit-status=0
        port:tcp:80: listening=true ip=contain-elements [0.0.0.0]
        http:http://127.0.0.1/healthz: status=200 headers=[Server: nginx] body=[n1]
        file:/etc/nginx/nginx.conf: exists=true mode=0644 owner=root contents=[worker_processes]
        file:/etc/nginx/tls/site.key: exists=true mode=0600 owner=root
    "#]]
    .assert_eq(&assertions(NGINX, "web"));
    let (head, goss) = header("x.yml", NGINX).unwrap();
    // A manager that renders a check does not know the facts of the node; using them is a fault.
    for name in ["node.facts.cpus", "node.boot_id"] {
        let asks = goss.replace("worker_processes", &format!("worker_processes {{{{ {name} }}}};"));
        assert!(render("x.yml", &head, &asks, &context("web")).is_err(), "{name}");
    }
    assert_eq!(
        applies("x.yml", &head, "service-master", "manager", &context("service-master")),
        Ok(Applies::OtherRole)
    );
}
