#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Every shipped profile boots: its root image under the kernel and the modules of boot/, in QEMU's software emulation, with an init
# of this test's own in place of the agent. Looks at the users, the os-release, the tools that the profile promises, writes, grows
# the file system to 64 GiB online, and checks it afterwards.
#
# CRUCIBLE_TEST_STORE=DIR takes a store that was built before; PROFILES='tiny python' takes only these.
set -euo pipefail

top=$(realpath "$(dirname "$0")/../..")
profile=$top/tools/profile/crucible-profile
tmp=$(mktemp -d "${TMPDIR:-/tmp}/profile_boot.XXXXXX")
qemu=

skip() {
	echo "SKIP: $*"
	[ -z "${CRUCIBLE_MUST_RUN-}" ] || exit 1
	exit 77
}

cleanup() {
	[ -z "$qemu" ] || kill -KILL "$qemu" 2>/dev/null || :
	rm -rf --one-file-system "$tmp"
}
trap cleanup EXIT

PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || skip "needs root"
for t in qemu-system-x86_64 qemu-img mmdebstrap debugfs e2fsck cpio lz4 jq; do
	command -v "$t" >/dev/null || skip "$t is not installed"
done

store=${CRUCIBLE_TEST_STORE:-$tmp/store}
if [ -z "${CRUCIBLE_TEST_STORE-}" ]; then
	# Any static program does as the agent here: it is never started.
	printf 'int main(void){return 0;}' | gcc -static -x c -o "$tmp/agent" -
	for p in tiny ${PROFILES:-base python}; do
		"$profile" build "$p" --store "$store" --agent "$tmp/agent" >"$tmp/out" || { tail -n 3 "$tmp/out"; exit 1; }
	done
fi

# The test's own initramfs: that of boot/, with busybox as init.
mkdir "$tmp/initramfs"
(cd "$tmp/initramfs" && cpio --quiet -idm <"$store/boot/current/initramfs")
mkdir "$tmp/initramfs/bin"
debugfs -R "dump -p /bin/busybox $tmp/initramfs/bin/busybox" "$store/profiles/tiny/root.img" 2>/dev/null
ln -s busybox "$tmp/initramfs/bin/sh"
cat >"$tmp/initramfs/init" <<'EOF'
#!/bin/sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
exec >/dev/console 2>&1
for m in $(cat /modules.order); do insmod "/lib/modules/$m" || echo "BAD module $m"; done
for m in $(cat /modules.net); do insmod "/lib/modules/$m" || echo "BAD module $m"; done
n=0
until [ -b /dev/vda ] || [ $n = 100 ]; do n=$((n + 1)); usleep 50000; done
echo "UP $(cut -d' ' -f1 /proc/uptime)"
mount -t ext4 /dev/vda /root || echo "BAD root file system"
mount -t proc proc /root/proc; mount --bind /dev /root/dev
mount -t tmpfs run /root/run
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 chroot /root /bin/sh -s </check.sh
umount /root/run /root/dev /root/proc
umount /root || echo "BAD unmount"
echo DONE
sync
echo o >/proc/sysrq-trigger
tail -f /dev/null
EOF
chmod 0755 "$tmp/initramfs/init"

# Runs in the guest, with the profile's own shell.
cat >"$tmp/check.sh" <<'EOF'
want() { # WORDS COMMAND...
	what=$1
	shift
	"$@" >/tmp/out 2>&1 && return
	echo "BAD $what: $(tail -n 1 /tmp/out)"
}
want "os-release" grep -q '^VERSION_ID="12"' /etc/os-release
want "the user root" test "$(id -u root)" = 0
want "the user nobody" test "$(id -u nobody)" = 65534
want "the user 'user'" test "$(id -u user):$(id -g user)" = 1000:1000
want "the home of 'user'" test "$(stat -c %u:%a /home/user)" = 1000:755
for f in resolv.conf machine-id hostname; do
	want "a link to the agent's $f" test "$(readlink "/etc/$f")" = "/run/crucible/$f"
done
want "no ssh keys" test -z "$(ls /etc/ssh 2>/dev/null | grep host)"
want "/tmp for all" test "$(stat -c %a /tmp)" = 1777
want "writing" sh -c 'echo x >/root/x && sync && test "$(cat /root/x)" = x'
want "a user's own shell" su -s /bin/sh user -c 'test "$(id -u)" = 1000'
EOF
cat >"$tmp/check.debian" <<'EOF'
want "bash" bash -c 'test -n "$BASH_VERSION"'
want "apt" apt-get --version
want "dpkg finds all in order" sh -c 'test -z "$(dpkg --audit)"'
want "curl" curl --version
want "ps" ps aux
want "CA certificates" test -s /etc/ssl/certs/ca-certificates.crt
want "the locale" sh -c 'locale | grep -q LC_CTYPE=.C.UTF-8'
want "no package lists" test -z "$(ls /var/lib/apt/lists)"
want "growing to 64 GiB" resize2fs /dev/vda
want "64 GiB" test "$(df -Pk / | awk 'NR == 2 { print int($2 / 1048576) }')" -ge 62
EOF
cat >"$tmp/check.python" <<'EOF'
want "python3" python3 -c 'import ssl, sqlite3, json, zlib, ctypes'
want "python" python -c 'import sys; assert sys.version_info >= (3, 11); assert sys.getfilesystemencoding() == "utf-8"'
want "pip" pip --version
want "a venv with pip" sh -c 'python3 -m venv /tmp/v && /tmp/v/bin/pip --version'
want "pip outside of a venv" pip install --no-index --dry-run pip
EOF

khz=$(awk '/^bogomips/ { printf "%d", $3 * 500; exit }' /proc/cpuinfo)
failed=0
passed=0
for p in ${PROFILES:-tiny base python}; do
	root=$tmp/initramfs
	cat "$tmp/check.sh" >"$root/check.sh"
	[ "$p" = tiny ] || cat "$tmp/check.debian" >>"$root/check.sh"
	[ "$p" != python ] || cat "$tmp/check.python" >>"$root/check.sh"
	(cd "$root" && find . | cpio --quiet -o -H newc) >"$tmp/cpio"
	e2fsck -fn "$store/profiles/$p/root.img" >"$tmp/fsck" 2>&1 || { cat "$tmp/fsck"; failed=$((failed + 1)); }
	qemu-img create -q -f qcow2 -F raw -b "$(realpath "$store/profiles/$p/root.img")" "$tmp/disk" 64G
	timeout -s KILL 240 qemu-system-x86_64 -M microvm,acpi=on -accel tcg,thread=multi,tb-size=128 -cpu max -m 512 -smp 1 \
		-nodefaults -no-user-config -display none -no-reboot -kernel "$store/boot/current/vmlinux" -initrd "$tmp/cpio" \
		-append "console=ttyS0 quiet panic=-1 tsc_early_khz=$khz tsc=reliable" -serial "file:$tmp/console" \
		-drive "if=none,id=d,file=$tmp/disk,format=qcow2" -device virtio-blk-device,drive=d -device virtio-rng-device &
	qemu=$!
	wait "$qemu" || :
	qemu=
	qemu-img convert -O raw "$tmp/disk" "$tmp/raw"
	if grep -aq BAD "$tmp/console" || ! grep -aq '^DONE' "$tmp/console" || ! e2fsck -fn "$tmp/raw" >"$tmp/fsck" 2>&1; then
		echo "not ok $p"
		tr -d '\r' <"$tmp/console" | grep -a 'BAD' || { tail -n 20 "$tmp/console" "$tmp/fsck"; }
		failed=$((failed + 1))
	else
		echo "ok $p (kernel to init in $(tr -d '\r' <"$tmp/console" | sed -n 's/^UP //p') s)"
		passed=$((passed + 1))
	fi
	rm -f "$tmp/disk" "$tmp/raw" "$tmp/cpio"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
