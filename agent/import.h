/* SPDX-License-Identifier: Apache-2.0 */
/* `import`: a tar stream on standard input, unpacked into the guest's root. Runs as a command's process, in its cgroup,
 * as its user. */
#ifndef CRUCIBLE_AGENT_IMPORT_H
#define CRUCIBLE_AGENT_IMPORT_H

/* Unpack descriptor 0 below @root_fd; plain or gzip. Names are taken as relative to the root; ".." and paths through
 * symbolic links are refused, entry by entry. Modes, owners, times, links and extended attributes are kept. Complaints
 * go to standard error, one line each, at most 100. Returns the exit code: 0, 1 some entries failed, 2 the stream is
 * damaged or ends early. Thread: the process has one. Blocks: yes. */
int import_run(int root_fd);

#endif
