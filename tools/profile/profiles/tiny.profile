# The smallest guest: one static program. Seconds to build, for tests and for commands that need a shell and nothing else.
description: busybox only: a shell and the small classic tools
method: busybox
size_mib: 48

file: /etc/os-release <<EOF
PRETTY_NAME="crucible tiny (Debian 12 busybox)"
NAME="crucible tiny"
ID=crucible-tiny
ID_LIKE=debian
VERSION_ID="12"
EOF
file: /etc/passwd <<EOF
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
user:x:1000:1000:user:/home/user:/bin/sh
EOF
file: /etc/group <<EOF
root:x:0:
tty:x:5:
nogroup:x:65534:
user:x:1000:
EOF
file: /etc/shadow 0640 <<EOF
root:*:19000:0:99999:7:::
nobody:*:19000:0:99999:7:::
user:*:19000:0:99999:7:::
EOF
file: /etc/shells <<EOF
/bin/sh
/bin/ash
EOF
file: /etc/profile <<EOF
export LANG=C.UTF-8
EOF
file: /etc/nsswitch.conf <<EOF
hosts: files dns
EOF
command: mkdir -p /home/user && chown 1000:1000 /home/user && chmod 0755 /home/user
