/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon asks of an engine that is not up yet: its memory is not mapped, its monitor takes nothing. The
 * messages wait, few as they are, and are taken in their order. */
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "vmm/box/box_priv.h"

int box_keep_early(struct box *b, const struct msg *msg, int *fd)
{
	struct box_early *y = &b->early[b->nearly];

	if (b->nearly == BOX_EARLY_MAX)
		return -EBUSY;
	*y = (struct box_early){ .type = msg->type, .id = msg->id, .fd = -1, .len = msg->len };
	y->data = malloc(msg->len + 1);
	if (!y->data)
		return -ENOMEM;
	memcpy(y->data, msg->data, msg->len);
	y->fd = take_fd(fd);
	b->nearly++;
	return 0;
}

static struct box_early take_early(struct box *b)
{
	struct box_early y = b->early[0];

	b->nearly--;
	memmove(b->early, b->early + 1, b->nearly * sizeof(b->early[0]));
	return y;
}

static void replay(void *arg)
{
	struct box *b = arg;

	b->early_call = 0;
	while (b->nearly > 0) {
		struct box_early y = take_early(b);

		box_take_message(b, y.type, y.id, y.data, y.len, &y.fd);
		fd_close(&y.fd);
		free(y.data);
	}
}

void box_replay_early(struct box *b)
{
	if (b->nearly > 0 && loop_defer(b->loop, replay, b, &b->early_call) < 0)
		box_drop_early(b);
}

void box_drop_early(struct box *b)
{
	loop_del(b->loop, &b->early_call);
	while (b->nearly > 0) {
		struct box_early y = take_early(b);

		box_reply(b, y.id, -ENOTCONN, "the engine is gone");
		fd_close(&y.fd);
		free(y.data);
	}
}

void box_forget_early(struct box *b)
{
	for (size_t i = 0; i < b->nearly; i++)
		b->early[i].id = 0;
}
