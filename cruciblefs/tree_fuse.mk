# SPDX-License-Identifier: Apache-2.0
# The FUSE half: session, nodes, tables. Included by module.mk.
LIBS += cfsfuse
cfsfuse_SRCS := $(addprefix cruciblefs/, \
	session.c dispatch.c request.c handle.c poll.c dirbuf.c node.c idtable.c \
	tree.c place.c promise.c dir.c dirchange.c scratch.c \
	text.c control.c stream.c wait.c uploadfile.c livein.c lease.c \
	root.c readme.c run.c exec.c logs.c)
