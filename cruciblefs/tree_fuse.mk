# SPDX-License-Identifier: Apache-2.0
# The FUSE half: session, nodes, tables. Included by module.mk.
LIBS += cfsfuse
cfsfuse_SRCS := $(addprefix cruciblefs/, \
	session.c dispatch.c request.c handle.c poll.c dirbuf.c node.c idtable.c \
	tree.c place.c promise.c dir.c dirchange.c scratch.c \
	text.c control.c stream.c wait.c uploadfile.c livein.c lease.c \
	root.c readme.c run.c exec.c logs.c)

cfsfuse_UNIT := session listing text control cmd wait stream names slot
cfsfuse_FAKES := $(addprefix tests/unit/,fusewire.c fake_domain.c fake_exec.c)
UNIT += $(addprefix test_cfs_,$(cfsfuse_UNIT))
$(foreach t,$(cfsfuse_UNIT),$(eval test_cfs_$(t)_SRCS := tests/unit/test_cfs_$(t).c $(cfsfuse_FAKES)) \
	$(eval test_cfs_$(t)_LIBS := cfsfuse cfsguest agentproto base)$(eval test_cfs_$(t)_PKGS := fuse3 json-c))
