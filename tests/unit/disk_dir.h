/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of disks for a test, and its end. */
#ifndef CRUCIBLE_TEST_DISK_DIR_H
#define CRUCIBLE_TEST_DISK_DIR_H

#include <stdbool.h>
#include <stdint.h>

struct disk_dir {
	char path[64];
	int fd;
};

void disk_dir_make(struct disk_dir *d);
void disk_dir_end(struct disk_dir *d);
/* bases/@name, @bytes long, whose byte at offset n is disk_dir_byte(n); the descriptor is open for reading. */
int disk_dir_base(const struct disk_dir *d, const char *name, uint64_t bytes);
uint8_t disk_dir_byte(uint64_t off);
unsigned disk_dir_files(const struct disk_dir *d, const char *folder); /* how many there are */

#endif
