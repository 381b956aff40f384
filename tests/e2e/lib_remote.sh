# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For scripts about the tree on another machine, after lib.sh: an SSH server of the test's own, and mounts through it. The server has a network
# and a mount namespace of its own: no port of the machine is taken, and /etc/passwd, /run and home are the test's, so that neither
# the machine's SSH nor anybody's ~/.ssh is read or written.
#
#   remote_world          make it                            $REMOTE_UID: who logs in
#   sshfs_mount DIR [OPTIONS]    mount the tree at DIR as docs/REMOTE.md says, or with OPTIONS instead
#   sshfs_umount DIR      sshfs_cut DIR: kill its connection
#   remote COMMAND…       run in the client's network
#
# The server is sshd where it is installed ($SSHD), else dropbear, which comes without a service. Both hand over to OpenSSH's sftp-server.
need sshfs ssh ssh-keygen unshare nsenter ip fusermount3

REMOTE=$DIR/ssh
REMOTE_UID=61003
REMOTE_NET_PID=
# The options of docs/REMOTE.md, word for word; a test compares.
REMOTE_OPTIONS=direct_io,sshfs_sync,dir_cache=no,attr_timeout=0,entry_timeout=0
[[ $(sshfs --help 2>&1 || :) != *no_contain_symlinks* ]] || REMOTE_OPTIONS+=,no_contain_symlinks
SSHD=${CRUCIBLE_TEST_SSHD:-$(command -v sshd || command -v /usr/sbin/sshd || :)}

remote() {
	nsenter --net="/proc/$REMOTE_NET_PID/ns/net" -- "$@"
}

remote_keys() {
	ssh-keygen -q -t ed25519 -N '' -C test -f "$REMOTE/client"
	if [ -n "$SSHD" ]; then
		ssh-keygen -q -t ed25519 -N '' -C host -f "$REMOTE/host"
	else
		dropbearkey -t ed25519 -f "$REMOTE/host" 2>/dev/null | sed -n 's/^ssh-ed25519/&/p' >"$REMOTE/host.pub"
	fi
	echo "server $(cut -d' ' -f1,2 "$REMOTE/host.pub")" >"$REMOTE/known"
	mkdir -p "$REMOTE/home/.ssh"
	cp "$REMOTE/client.pub" "$REMOTE/home/.ssh/authorized_keys"
	chmod 700 "$REMOTE/home" "$REMOTE/home/.ssh"
	chown -R "$REMOTE_UID:$REMOTE_UID" "$REMOTE/home"
}

remote_world() {
	local command

	[ -n "$SSHD" ] || need dropbear dropbearkey
	[ -x /usr/lib/openssh/sftp-server ] || skip "openssh-sftp-server is not installed"
	mkdir -p "$REMOTE"
	remote_keys
	printf '%s\n' "root:x:0:0:root:/nonexistent:/bin/sh" "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin" \
		"agent:x:$REMOTE_UID:$REMOTE_UID::$REMOTE/home:/bin/sh" >"$REMOTE/passwd"
	printf '%s\n' root:x:0: nogroup:x:65534: "agent:x:$REMOTE_UID:" >"$REMOTE/group"
	printf '%s\n' 'agent:*:1::::::' >"$REMOTE/shadow"
	cat >"$REMOTE/sshd_config" <<-CONFIG
		ListenAddress 127.0.0.1:22
		HostKey $REMOTE/host
		PidFile none
		UsePAM no
		PasswordAuthentication no
		KbdInteractiveAuthentication no
		StrictModes no
		ClientAliveInterval 1
		ClientAliveCountMax 3
		Subsystem sftp internal-sftp
	CONFIG
	cat >"$REMOTE/ssh_config" <<-CONFIG
		Host *
		HostName 127.0.0.1
		HostKeyAlias server
		User agent
		IdentityFile $REMOTE/client
		IdentitiesOnly yes
		IdentityAgent none
		UserKnownHostsFile $REMOTE/known
		GlobalKnownHostsFile none
		StrictHostKeyChecking yes
	CONFIG
	if [ -n "$SSHD" ]; then
		command="exec $SSHD -D -e -f $REMOTE/sshd_config"
	else
		command="exec dropbear -F -E -s -K 1 -r $REMOTE/host -p 127.0.0.1:22 -P ''"
	fi
	# (A slave of the machine's mounts: the daemon's comes and goes there, too.)
	unshare --net --mount --propagation slave -- sh -c "ip link set lo up
		for f in passwd group shadow; do mount --bind $REMOTE/\$f /etc/\$f || exit 1; done
		mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/sshd || exit 1
		$command" </dev/null >"$REMOTE/log" 2>&1 &
	REMOTE_NET_PID=$!
	AT_EXIT=(remote_end "${AT_EXIT[@]}")
	wait_for "the SSH server" ssh_to true
}

ssh_to() { # COMMAND: on the server
	remote ssh -F "$REMOTE/ssh_config" server "$@" </dev/null
}

sshfs_mount() { # DIR [OPTIONS]
	local ssh=$REMOTE/client.${1##*/}

	mkdir -p "$1"
	# (The id of the client that belongs to this mount.)
	printf '#!/bin/sh\necho $$ >%q\nexec ssh "$@"\n' "$ssh.pid" >"$ssh"
	chmod +x "$ssh"
	remote sshfs -F "$REMOTE/ssh_config" -o "ssh_command=$ssh" -o "${2:-$REMOTE_OPTIONS}" "server:$MNT" "$1" </dev/null ||
		fail "sshfs: exit code $?: $(tail -n 3 "$REMOTE/log")"
}

sshfs_umount() { # DIR
	wait_for "$1 to be taken away" fusermount3 -u "$1"
}

# Kill the connection of a mount, as a network would that has gone for good. sshfs ends with it.
sshfs_cut() { # DIR
	kill -KILL "$(cat "$REMOTE/client.${1##*/}.pid")" 2>/dev/null || :
	wait_for "the mount to go" not_mounted "$1"
}

not_mounted() { # DIR
	! is_mounted "$1"
}

remote_end() {
	kill "$REMOTE_NET_PID" 2>/dev/null || :
}
