# What the benchmarks compare in: the base guest with the two ways into a machine that people use today.
description: Debian 12 with an SSH server and QEMU's guest agent, for the benchmarks
from: base
size_mib: 1280
packages: openssh-server qemu-guest-agent
