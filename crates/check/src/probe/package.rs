//! `package`: packages that the machine's package manager has installed, listed with one call.

use super::super::deb::{Constraint, Version};
use super::super::spawn::{MAX_OUTPUT, run};
use super::{ProbeAnswer, ProbeAnswers, ProbeContext, failed_error, unknown_error};
use globset::Glob;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A package that is completely installed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Package {
    name: String,
    arch: String,
    version: String,
}

/// The installed packages, and their package manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packages {
    manager: Manager,
    packages: Vec<Package>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manager {
    Dpkg,
    Rpm,
    Apk,
    Pacman,
}

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let installed = match ask.world.packages() {
        Ok(installed) => installed,
        Err(why) => return ProbeAnswers::from([("installed", Err(unknown_error(why)))]),
    };
    let versions = installed.versions(&ask.check.name);
    let mut answers = ProbeAnswers::from([
        ("installed", Ok((!versions.is_empty()).into())),
        ("versions", Ok(versions.clone().into())),
    ]);
    if let Some(constraint) = ask.argument("deb-constraint") {
        answers.insert("deb-constraint", holds(constraint, installed.manager, &versions));
    }
    answers
}

/// Whether every installed version satisfies the constraint.
fn holds(constraint: &str, manager: Manager, versions: &[String]) -> ProbeAnswer {
    if manager != Manager::Dpkg {
        return Err(unknown_error("this machine does not use Debian packages"));
    }
    let constraint = Constraint::parse(constraint).map_err(unknown_error)?;
    for version in versions {
        let parsed = Version::parse(version)
            .ok_or_else(|| unknown_error(format!("`{version}` is not a valid Debian version")))?;
        if let Some(part) = constraint.first_unmet_part(&parsed) {
            return Err(failed_error(format!("{version} is installed, which is not {part}")));
        }
    }
    Ok(true.into())
}

impl Packages {
    /// The installed versions of a package. `asked` is its name, `NAME:ARCH`, or a glob pattern.
    fn versions(&self, asked: &str) -> Vec<String> {
        let glob = asked.contains(['*', '?', '[']).then(|| Glob::new(asked).ok()).flatten();
        let glob = glob.map(|glob| glob.compile_matcher());
        let is = |package: &&Package| match &glob {
            Some(glob) => glob.is_match(&package.name),
            None => self.manager.is_called(package, asked),
        };
        self.packages.iter().filter(is).map(|package| package.version.clone()).collect()
    }
}

/// Lists the installed packages. Blocks for at most `limit`.
pub(super) fn list(limit: Duration) -> Result<Packages, String> {
    let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let manager = Manager::from_os_release(&os_release).or_else(Manager::find_in_path);
    let manager = manager.ok_or("there is no dpkg, rpm, apk or pacman")?;
    let mut command = manager.command();
    let output = run(command.env("LC_ALL", "C"), limit)?;
    if output.status != 0 {
        return Err(format!("{}: {}", command.get_program().display(), output.stderr.text().trim()));
    }
    if output.stdout.truncated {
        return Err(format!("the list of packages is longer than {MAX_OUTPUT} bytes"));
    }
    let packages = output.stdout.text().lines().filter_map(|line| manager.package(line)).collect();
    Ok(Packages { manager, packages })
}

/// Whether a program is in a directory of `PATH`.
pub(super) fn is_in_path(program: &Path) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(program).is_file())
}

impl Manager {
    /// The package manager of the distribution. The distribution decides, because a machine may
    /// also have the tools of other distributions.
    fn from_os_release(os_release: &str) -> Option<Self> {
        let field = |name: &str| {
            let value = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
        };
        let (id, like) = (field("ID"), field("ID_LIKE"));
        std::iter::once(id.as_str()).chain(like.split_whitespace()).find_map(|id| match id {
            "debian" | "ubuntu" => Some(Manager::Dpkg),
            "fedora" | "rhel" | "centos" | "suse" | "opensuse" | "amzn" | "mariner" | "azurelinux" => {
                Some(Manager::Rpm)
            }
            "alpine" => Some(Manager::Apk),
            "arch" => Some(Manager::Pacman),
            _ => None,
        })
    }

    fn find_in_path() -> Option<Self> {
        [Manager::Dpkg, Manager::Rpm, Manager::Apk, Manager::Pacman]
            .into_iter()
            .find(|manager| is_in_path(Path::new(manager.command().get_program())))
    }

    /// The command that lists the installed packages, one per line.
    fn command(self) -> Command {
        let (program, arguments): (&str, &[&str]) = match self {
            Manager::Dpkg => ("dpkg-query", &["-W", "-f", "${Status} ${Package} ${Architecture} ${Version}\\n"]),
            Manager::Rpm => (
                "rpm",
                &[
                    "-qa",
                    "--nosignature",
                    "--nodigest",
                    "--qf",
                    "%{NAME} %{ARCH} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\\n",
                ],
            ),
            Manager::Apk => ("apk", &["info", "-v"]),
            Manager::Pacman => ("pacman", &["-Q", "--color", "never"]),
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }

    /// Parses one line of the package manager's list. None if the line is no package, or if the
    /// package is not completely installed.
    fn package(self, line: &str) -> Option<Package> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let package = |name: &str, arch: &str, version: &str| Package {
            name: name.into(),
            arch: arch.into(),
            version: version.into(),
        };
        match (self, &words[..]) {
            (Manager::Dpkg, [_wanted, "ok", "installed", name, arch, version]) => Some(package(name, arch, version)),
            (Manager::Rpm, [name, arch, version]) => Some(package(name, arch, version)),
            (Manager::Pacman, [name, version]) => Some(package(name, "", version)),
            // An entry of apk has the form `busybox-1.36.1-r5`, and the name itself may contain
            // dashes.
            (Manager::Apk, [whole]) => {
                let (rest, _release) = whole.rsplit_once("-r")?;
                let (name, _) = rest.rsplit_once('-')?;
                Some(package(name, "", &whole[name.len() + 1..]))
            }
            _ => None,
        }
    }

    fn is_called(self, package: &Package, asked: &str) -> bool {
        let Package { name, arch, version } = package;
        asked == name
            || match self {
                Manager::Dpkg => asked.split_once(':').is_some_and(|(n, a)| n == name && a == arch),
                Manager::Rpm => {
                    let rest = asked.strip_prefix(name.as_str()).unwrap_or_default();
                    let version = version.split_once(':').map_or(version.as_str(), |(_epoch, version)| version);
                    let upstream = version.split('-').next().unwrap_or_default();
                    rest.strip_prefix('.') == Some(arch)
                        || rest.strip_prefix('-').is_some_and(|rest| {
                            rest == upstream
                                || rest == version
                                || rest.strip_prefix(version) == Some(&format!(".{arch}"))
                        })
                }
                Manager::Apk | Manager::Pacman => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_packages(manager: Manager, text: &str) -> Packages {
        Packages { manager, packages: text.lines().filter_map(|line| manager.package(line)).collect() }
    }

    #[test]
    fn only_a_full_installation_counts() {
        let text = "install ok installed nginx amd64 1.22.1-9\nhold ok installed b all 2\ndeinstall ok config-files c all 1.0\n\
            install ok half-configured d all 3\nunknown ok not-installed e all \ninstall reinstreq installed f all 1\n\
            install ok installed libc6 amd64 2.41\ninstall ok installed libc6 i386 2.40\n";
        let here = parse_packages(Manager::Dpkg, text);
        let of = |name| here.versions(name);
        assert_eq!((of("nginx"), of("b")), (vec!["1.22.1-9".to_owned()], vec!["2".to_owned()]));
        assert_eq!(["c", "d", "e", "f", "ngin", "nginx:i386"].map(of), [const { Vec::<String>::new() }; 6]);
        assert_eq!((of("libc6"), of("libc6:i386")), (vec!["2.41".into(), "2.40".into()], vec!["2.40".to_owned()]));
        assert_eq!(of("ngin*"), ["1.22.1-9"]);
    }

    #[test]
    fn lists_of_other_package_managers() {
        let rpm = parse_packages(
            Manager::Rpm,
            "bash x86_64 5.2.26-3.fc40\nbind x86_64 32:9.18.28-2.fc40\ngpg-pubkey (none) a-b\n",
        );
        let names = ["bash", "bash.x86_64", "bash-5.2.26", "bash-5.2.26-3.fc40", "bash-5.2.26-3.fc40.x86_64"];
        assert!(names.iter().all(|name| rpm.versions(name) == ["5.2.26-3.fc40"]));
        assert_eq!(
            ["bas", "bash-5.2", "bash.i686", "bash-"].map(|name| rpm.versions(name)),
            [const { Vec::<String>::new() }; 4]
        );
        assert_eq!(rpm.versions("bind-9.18.28"), ["32:9.18.28-2.fc40"]);
        let apk = parse_packages(
            Manager::Apk,
            "WARNING: opening x: No such file\nmusl-1.2.5-r0\nca-certificates-bundle-20240226-r0\n",
        );
        assert_eq!((apk.versions("musl"), apk.packages.len()), (vec!["1.2.5-r0".to_owned()], 2));
        assert_eq!(apk.versions("ca-certificates-bundle"), ["20240226-r0"]);
        let pacman = parse_packages(Manager::Pacman, "linux 6.9.7.arch1-1\n");
        assert_eq!(pacman.versions("linux"), ["6.9.7.arch1-1"]);
    }

    #[test]
    fn the_distribution_says_who_manages_packages() {
        let of = Manager::from_os_release;
        assert_eq!(of("NAME=x\nID=debian\n"), Some(Manager::Dpkg));
        assert_eq!(of("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"), Some(Manager::Dpkg));
        assert_eq!(of("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"), Some(Manager::Rpm));
        assert_eq!((of("ID=alpine"), of("ID=arch"), of("")), (Some(Manager::Apk), Some(Manager::Pacman), None));
    }

    #[test]
    fn a_constraint_is_for_all_that_is_installed() {
        let ask = |versions: &[&str]| {
            holds(">= 2", Manager::Dpkg, &versions.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(ask(&["2.1", "1:0"]), Ok(true.into()));
        assert_eq!(ask(&["2.1", "2~rc1"]), Err(failed_error("2~rc1 is installed, which is not >= 2")));
        assert_eq!(holds(">= 2", Manager::Rpm, &[]), Err(unknown_error("this machine does not use Debian packages")));
    }
}
