//! systemd's unit of the daemon, as `node add` installs it.

pub const UNIT: &str = "\
[Unit]
Description=remoor agent
After=network.target ssh.service

[Service]
ExecStart=/usr/local/bin/remoor agent
Restart=always
RestartSec=1
Environment=MALLOC_ARENA_MAX=2 MALLOC_TRIM_THRESHOLD_=131072
StateDirectory=remoor
StateDirectoryMode=0700
RuntimeDirectory=remoor

[Install]
WantedBy=multi-user.target
";

#[cfg(test)]
mod tests {
    #[test]
    fn the_lab_installs_the_same_unit() {
        assert_eq!(super::UNIT, include_str!("../../tests/demo/bin/remoor.service"));
    }
}
