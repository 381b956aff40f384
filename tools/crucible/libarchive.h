/* SPDX-License-Identifier: Apache-2.0 */
/* libarchive, loaded when the first directory is packed or unpacked. It brings fifteen libraries along, some 3 MiB of
 * resident memory and most of the time that `crucible` needs to start; only `cp` of a directory and `import` use it,
 * and an agent's program keeps `mcp serve` running all day. Its headers are compiled in, so calls are checked as ever.
 */
#ifndef CRUCIBLE_TOOLS_LIBARCHIVE_H
#define CRUCIBLE_TOOLS_LIBARCHIVE_H

#include <archive.h>
#include <archive_entry.h>
#include "base/err.h"

#define LIBARCHIVE_FUNCTIONS(X)                    \
	X(archive_entry_filetype)                  \
	X(archive_entry_free)                      \
	X(archive_entry_hardlink)                  \
	X(archive_entry_linkify)                   \
	X(archive_entry_linkresolver_free)         \
	X(archive_entry_linkresolver_new)          \
	X(archive_entry_linkresolver_set_strategy) \
	X(archive_entry_new)                       \
	X(archive_entry_pathname)                  \
	X(archive_entry_perm)                      \
	X(archive_entry_set_gid)                   \
	X(archive_entry_set_gname)                 \
	X(archive_entry_set_mode)                  \
	X(archive_entry_set_pathname)              \
	X(archive_entry_set_uid)                   \
	X(archive_entry_set_uname)                 \
	X(archive_entry_size)                      \
	X(archive_entry_sparse_clear)              \
	X(archive_entry_symlink)                   \
	X(archive_entry_unset_atime)               \
	X(archive_entry_unset_birthtime)           \
	X(archive_entry_unset_ctime)               \
	X(archive_errno)                           \
	X(archive_error_string)                    \
	X(archive_format)                          \
	X(archive_read_data_block)                 \
	X(archive_read_disk_descend)               \
	X(archive_read_disk_new)                   \
	X(archive_read_disk_open)                  \
	X(archive_read_disk_set_behavior)          \
	X(archive_read_disk_set_symlink_hybrid)    \
	X(archive_read_free)                       \
	X(archive_read_new)                        \
	X(archive_read_next_header)                \
	X(archive_read_next_header2)               \
	X(archive_read_open_fd)                    \
	X(archive_read_support_format_tar)         \
	X(archive_set_error)                       \
	X(archive_write_close)                     \
	X(archive_write_data)                      \
	X(archive_write_data_block)                \
	X(archive_write_disk_new)                  \
	X(archive_write_disk_set_options)          \
	X(archive_write_finish_entry)              \
	X(archive_write_free)                      \
	X(archive_write_header)                    \
	X(archive_write_new)                       \
	X(archive_write_open)                      \
	X(archive_write_set_bytes_in_last_block)   \
	X(archive_write_set_bytes_per_block)       \
	X(archive_write_set_format_pax_restricted)

struct libarchive {
#define LIBARCHIVE_MEMBER(f) __typeof__(f) *(f);
	LIBARCHIVE_FUNCTIONS(LIBARCHIVE_MEMBER)
#undef LIBARCHIVE_MEMBER
};
extern struct libarchive la; /* to be used once libarchive_load() has returned 0 */

/* Thread: one at a time. Blocks on disk, the first time. Errors, with words that name the package: -ENOPKG. */
int libarchive_load(struct err *e);

#endif
