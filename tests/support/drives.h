/* drives.h: files that claim to lie on different drives. */
#ifndef SUPPORT_DRIVES_H
#define SUPPORT_DRIVES_H

#include <sys/stat.h>

/* From now on the files that io_file opens claim n drives in turn, in the order in which they are
 * first opened; 0: the truth again. While no file is open. */
void drives_pretend(int n);

/* The drive that a file claims, from 0. */
int drives_claimed(const struct stat *st);

#endif
