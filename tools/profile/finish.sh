#!/bin/sh
# The last step of every image, run by the guest's own shell as root of the new tree: what all sandboxes need, and
# nothing of the host or of the build.
set -eu

mkdir -p /dev /proc /sys /run /tmp /var/tmp /root /etc /mnt
chmod 1777 /tmp /var/tmp
chmod 0700 /root
rm -rf /tmp/* /tmp/.[!.]* /var/tmp/* /root/.cache

# What each sandbox has of its own is the agent's, and in memory: a fork gets it anew without waiting for the disk.
rm -f /var/lib/dbus/machine-id
for f in resolv.conf machine-id hostname; do
	ln -sfn "/run/crucible/$f" "/etc/$f"
done
rm -f /etc/ssh/ssh_host_*

# A mirror's password must not get into an image.
for f in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
	[ ! -f "$f" ] || sed -i -E 's#(://)[^/@ ]*@#\1#' "$f"
done
rm -f /etc/apt/apt.conf.d/99mmdebstrap
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/cache/debconf/*-old /var/lib/dpkg/*-old
rm -f /var/log/dpkg.log /var/log/alternatives.log /var/log/bootstrap.log /var/log/apt/*

[ -x /bin/sh ] || { echo "cannot make an image without /bin/sh"; exit 1; }
[ -s /etc/os-release ] || { echo "cannot make an image without /etc/os-release"; exit 1; }
for user in root nobody; do
	grep -q "^$user:" /etc/passwd || { echo "cannot make an image without the user $user in /etc/passwd"; exit 1; }
done
