#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Commands: through the tree, against ssh (one connection, kept by ControlMaster) and QEMU's guest agent in a second machine of the same
# kernel, root image, size and devices, and against the bare channel between guest and host. See README.md.
#
#   tools/bench/exec.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin exec "$@"
OUTPUT=$((100 * 1024 * 1024))
S=$DIR/other # the second machine

start_daemon --set prepare=0 --set pool_size=0
new_sandbox a from=profile:bench limits/output_mib=256 limits/spool_mib=8192 limits/exec_timeout_s=120
facts_engine a
engine_argv a

# -- the second machine ---------------------------------------------------------------------------------------------------

# crucible's initramfs, with another /init behind it (the later of two archives wins).
make_initramfs() { # BOOT_DIR
	local tree=$S/tree

	mkdir -p "$tree/bin"
	install -m 0755 "$HERE/guest-init.sh" "$tree/init"
	install -m 0755 "$(command -v busybox)" "$tree/bin/busybox"
	for a in sh mount umount insmod sleep mkdir cp chmod cat switch_root; do
		ln -s busybox "$tree/bin/$a"
	done
	cp "$S/key.pub" "$tree/authorized_keys"
	install -m 0755 "$HERE/guest-services.sh" "$tree/services"
	{
		cat "$1/initramfs"
		(cd "$tree" && find . | cpio --quiet -R 0:0 -o -H newc)
	} >"$S/initramfs"
}

# The arguments of our own engine, but: sockets with names; console, image and overlay opened here; the other initramfs; a network that ends
# at this host's loopback.
other_argv() { # PORT
	local i a

	for ((i = 0; i < ${#ENGINE_ARGV[@]}; i++)); do
		a=${ENGINE_ARGV[i]}
		case $a in
		socket,id=monitor,*) a=socket,id=monitor,path=$S/monitor,server=on,wait=off ;;
		socket,id=control,*) a=socket,id=control,path=$S/qga,server=on,wait=off ;;
		socket,id=bulk,*) a=socket,id=bulk,path=$S/raw,server=on,wait=off ;;
		*/initramfs) a=$S/initramfs ;;
		tap,id=tap0,* | hubport,id=tap0,*) a=user,id=tap0,restrict=on,hostfwd=tcp:127.0.0.1:$1-:22 ;;
		esac
		OTHER_ARGV+=("$a")
	done
}

free_port() {
	local p

	for ((p = 20000 + $$ % 20000; ; p++)); do
		(exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || break
	done
	echo "$p"
}

start_other() {
	local port

	port=$(free_port)
	mkdir -p "$S"
	ssh-keygen -q -t ed25519 -N '' -f "$S/key"
	make_initramfs "$STORE/boot/current"
	new_overlay "$S/overlay" bench
	own_disk "$S/overlay"
	other_argv "$port"
	"${OTHER_ARGV[@]}" </dev/null >"$S/log" 2>&1 6>>"$S/console" &
	PIDS+=($!)
	SSH=(ssh -F none -i "$S/key" -p "$port" -o ControlPath="$S/mux" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null
		-o LogLevel=ERROR -o BatchMode=yes -o ConnectTimeout=20 root@127.0.0.1)
}

# A login of its own that stays; each command is then a session of it.
log_in() {
	ssh -o ControlMaster=yes -o ControlPersist=yes "${SSH[@]:1}" true
}

ssh_cell() { # COMMAND: the subject, if there is one
	[ -z "${have_ssh-}" ] || echo "ssh=sh:${SSH[*]} $1"
}

have_ssh='' have_other=''
if ! command -v ssh ssh-keygen busybox cpio >/dev/null; then
	line fact ssh "not measured: no ssh, busybox or cpio here"
	say "no ssh, busybox or cpio here: not compared with them"
else
	start_other
	have_other=1
	if until_true "ssh into the second machine (see $S/console)" log_in; then
		have_ssh=1
		line fact ssh "$(ssh -V 2>&1), ControlMaster; server $("${SSH[@]}" /usr/sbin/sshd -V 2>&1 | tail -n 1); user network of QEMU on loopback"
	fi
fi

# -- the cells -------------------------------------------------------------------------------------------------------------

A=$RUN/a
for what in true echo; do
	text=$what
	[ $what = true ] || text='echo hello'
	line cell "exec.$what" ns "\`$text\`: sh -c 'echo … > cmd; cat wait' against ssh host …, a new process each (crucible-direct, qga: from one process that stays)"
	mapfile -t more < <(ssh_cell "$text")
	[ -z "$have_other" ] || more+=("qga=qga:$S/qga")
	turns --rounds "$PAIRS" --text "$text" "exec.$what" "crucible=sh:echo '$text' >$A/cmd; cat $A/wait" "${more[@]}" \
		"crucible-direct=exec:$A"
	line faster "exec.$what" crucible ssh 3
done

line cell exec.output ns "100 MiB of zeros: command, record and all of stdout read; ssh the same; raw: the guest's cat /dev/zero into a bare port of the same device"
mapfile -t more < <(ssh_cell "head -c $OUTPUT /dev/zero")
[ -z "$have_other" ] || more+=("raw=raw:$S/raw")
turns --rounds "${BENCH_OUTPUT_PAIRS:-4}" --bytes "$OUTPUT" --text "head -c $OUTPUT /dev/zero" exec.output "crucible=output:$A" "${more[@]}"
line at-most exec.output crucible raw 2
line faster exec.output crucible ssh 3

[ -z "$have_ssh" ] || "${SSH[@]}" -O exit 2>/dev/null || :
bench_end
