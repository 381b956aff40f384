/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/relay_fix.h"

#include "base/fd.h"

#define BACKLOG 1024

struct relay_rig rig;
int server = -1;

int fix_setup(void **state)
{
	(void)state;
	rig_start(&rig, fix_port);
	server = fix_port ? rig_listen(OUTSIDE, THERE, fix_port, BACKLOG)
			  : rig_listen(INSIDE, NET_GUEST_ADDR, 80, BACKLOG);
	return 0;
}

int fix_teardown(void **state)
{
	(void)state;
	fd_close(&server);
	rig_stop(&rig);
	return 0;
}

void fix_join(int *ret_guest, int *ret_far)
{
	*ret_guest = rig_dial(INSIDE, THERE, fix_port);
	*ret_far = rig_accept(&rig, server);
}
