# A guest that can run crucible itself: QEMU, FUSE, and the kernel's own modules. Software emulation shows it a processor with
# AMD's extension, so kvm_amd loads and /dev/kvm in it is real.
description: Debian 12 with QEMU and kernel modules, to run crucible under KVM in a nested machine
from: base
size_mib: 2560
packages: qemu-system-x86 qemu-utils fuse3 kmod python3-minimal linux-image-cloud-amd64 libfuse3-3 libjson-c5 libseccomp2 libcap2 libarchive13 liburing2 liblz4-1 libssl3 libldns3 libnftables1 libnl-3-200 libnl-route-3-200
