/* SPDX-License-Identifier: Apache-2.0 */
/* Where there is no libFuzzer: replay what was checked in. Each argument is a folder of inputs; an absent or empty one
 * is a failure, so that a lost corpus cannot pass. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define INPUT_MAX (16u << 20)

/* The number of inputs replayed, or -1. */
static long replay(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *d;
	long n = 0;

	if (!dir) {
		perror(path);
		return -1;
	}
	while ((d = readdir(dir))) {
		char *text, *exact;
		size_t len;
		int r;

		if (d->d_name[0] == '.')
			continue;
		r = fd_slurp(dirfd(dir), d->d_name, INPUT_MAX, &text, &len);
		if (r < 0) {
			fprintf(stderr, "%s/%s: %s\n", path, d->d_name, strerror(-r));
			n = -1;
			break;
		}
		/* A copy without the NUL behind it, so that the address sanitizer sees a read of one byte too many. */
		exact = malloc(len ? len : 1);
		if (!exact) {
			free(text);
			n = -1;
			break;
		}
		memcpy(exact, text, len);
		free(text);
		fprintf(stderr, "%s/%s\n", path, d->d_name); /* the last one named is the one that crashed */
		LLVMFuzzerTestOneInput((const uint8_t *)exact, len);
		free(exact);
		n++;
	}
	closedir(dir);
	return n;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s CORPUS-DIRECTORY…\n", argv[0]);
		return 2;
	}
	for (int i = 1; i < argc; i++) {
		long n = replay(argv[i]);

		if (n <= 0) {
			fprintf(stderr, "%s: %s\n", argv[i], n < 0 ? "cannot be replayed" : "empty");
			return 1;
		}
		printf("%s: %ld inputs\n", argv[i], n);
	}
	return 0;
}
