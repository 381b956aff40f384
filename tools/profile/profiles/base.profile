# Debian 12 as small as it is still Debian: apt works once the sandbox may reach @debian.
description: Debian 12 minimal, with apt, curl and CA certificates
size_mib: 1024
packages: ca-certificates curl procps

file: /etc/default/locale <<EOF
LANG=C.UTF-8
EOF
file: /etc/apt/apt.conf.d/90crucible <<EOF
APT::Install-Recommends "false";
Acquire::Languages "none";
EOF
command: useradd --uid 1000 --user-group --create-home --shell /bin/bash user
