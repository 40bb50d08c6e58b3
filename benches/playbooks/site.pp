# The 20 tasks of benches/playbooks in Puppet's words. OWN is the host's own directory.
[1, 2, 3, 4, 5].each |$n| {
  file { "OWN/d${n}": ensure => directory, mode => '0755' }
  # A later resource adds lines to the first file, so it must only exist.
  file { "OWN/d${n}/copy": content => "a copied line\n", mode => '0644', replace => $n != 1 }
  file { "OWN/d${n}/template": content => inline_epp("port <%= \$port %>\n", { 'port' => $n }), mode => '0644' }
}
# Puppet itself has no resource for a line of a file.
[1, 2, 3].each |$n| {
  exec { "line ${n}":
    command  => "echo k${n}=v${n} >> OWN/d1/copy",
    unless   => "grep -q ^k${n}= OWN/d1/copy",
    path     => '/usr/bin:/bin',
    provider => shell,
    require  => File['OWN/d1/copy'],
  }
}
[1, 2].each |$n| {
  exec { "command ${n}": command => '/bin/true' }
}
