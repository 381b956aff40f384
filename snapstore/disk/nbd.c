/* SPDX-License-Identifier: Apache-2.0 */
/* The block server: what is exported, and who comes. */
#include "snapstore/disk/nbd_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

#define CONNS_MAX      8192u
#define WAITING_MAX    256u /* that have not named an export yet */
#define WAITING_UID    8u   /* of them, of one uid */
#define ACCEPTS_MAX    16   /* in one event */
#define ACCEPT_REST_NS 100000000ull

/* -- exports ----------------------------------------------------------------------------------------------------- */

struct nbd_export *nbd_export_find(struct nbd *n, const char *name)
{
	struct nbd_export *x = n->exports;

	while (x && strcmp(x->name, name))
		x = x->next;
	return x;
}

int nbd_export(struct nbd *n, const char *name, const char *disk_id, uid_t uid, struct err *e)
{
	struct nbd_export *x;
	int r;

	if (!name[0] || strlen(name) > NBD_NAME_MAX)
		return err_set(e, -EINVAL, "disk %s: not a name for an export", disk_id);
	if (nbd_export_find(n, name))
		return err_set(e, -EEXIST, "export %s: it exists", name);
	x = calloc(1, sizeof(*x));
	if (!x)
		return err_set(e, -ENOMEM, "export %s: no memory", name);
	r = disk_open(n->disks, disk_id, &x->disk, e);
	if (r < 0) {
		free(x);
		return r;
	}
	snprintf(x->name, sizeof(x->name), "%s", name);
	x->uid = uid;
	x->next = n->exports;
	n->exports = x;
	return 0;
}

static void export_free(struct nbd_export *x)
{
	nbd_conn_end(x->conn);
	disk_close(x->disk);
	free(x);
}

void nbd_unexport(struct nbd *n, const char *name)
{
	struct nbd_export **at = &n->exports, *x;

	while (*at && strcmp((*at)->name, name))
		at = &(*at)->next;
	x = *at;
	if (!x)
		return;
	*at = x->next;
	export_free(x);
}

unsigned nbd_busy(const struct nbd *n, const char *id)
{
	for (const struct nbd_export *x = n->exports; x; x = x->next) {
		if (!strcmp(disk_id(x->disk), id)) /* a disk is open once */
			return x->conn ? nbd_conn_busy(x->conn) : 0;
	}
	return 0;
}

/* -- who comes --------------------------------------------------------------------------------------------------- */

static void on_rested(void *arg)
{
	struct nbd *n = arg;

	n->again = 0;
	loop_mod(n->loop, n->src, EPOLLIN);
}

/* A socket that cannot be accepted would be told again and again. */
static void rest(struct nbd *n)
{
	if (loop_timer(n->loop, now_ns() + ACCEPT_REST_NS, on_rested, n, &n->again) == 0)
		loop_mod(n->loop, n->src, 0);
}

static bool welcome(const struct nbd *n, uid_t uid)
{
	return n->nconns < CONNS_MAX && n->nwaiting < WAITING_MAX && nbd_conn_waiting_of(n, uid) < WAITING_UID;
}

static void on_listen(void *arg, uint32_t events)
{
	struct nbd *n = arg;

	(void)events;
	for (int i = 0; i < ACCEPTS_MAX; i++) {
		AUTO_FD fd = accept4(n->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct ucred peer;
		socklen_t len = sizeof(peer);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
				rest(n);
			return;
		}
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || !welcome(n, peer.uid))
			continue;
		nbd_conn_new(n, take_fd(&fd), peer.uid); /* without memory there is one client less */
	}
}

int nbd_new(struct loop *l, int listen_fd, struct disks *d, struct nbd **ret, struct err *e)
{
	struct nbd *n = calloc(1, sizeof(*n));
	int r = n ? fd_set_nonblock(listen_fd, true) : -ENOMEM;

	if (r == 0) {
		n->loop = l;
		n->disks = d;
		n->listen_fd = listen_fd;
		r = loop_add(l, listen_fd, EPOLLIN, on_listen, n, &n->src);
	}
	if (r < 0) {
		free(n);
		fd_close(&listen_fd);
		return err_set(e, r, "block server: %s", strerror(-r));
	}
	*ret = n;
	return 0;
}

struct nbd *nbd_free(struct nbd *n)
{
	struct nbd_export *x;

	if (!n)
		return NULL;
	while ((x = n->exports)) {
		n->exports = x->next;
		export_free(x);
	}
	while (n->conns)
		nbd_conn_end(n->conns);
	loop_del(n->loop, &n->src);
	loop_del(n->loop, &n->again);
	fd_close(&n->listen_fd);
	free(n);
	return NULL;
}
